"""The seam: JAX and host environments give the same whole episodes."""

import jax
import jax.numpy as jnp
import numpy as np

from ecop.learning import normaliser
from ecop.learning.networks import Policy
from ecop.rollout import Actor, collector, draws, replay
from ecop.simulators.pool import SimulatorPool
from ecop.training import stack
from probes import Coin, NumpyWalk, Walk
from simulators import SPEC, Make


def actors(policy, seeds):
    return stack(
        [
            Actor(
                policy.init(jax.random.key(s)),
                normaliser.init(policy.spec.observation_size),
            )
            for s in seeds
        ]
    )


def keys(seeds):
    return stack([jax.random.key(100 + s) for s in seeds])


def test_a_numpy_twin_gives_the_same_episodes():
    policy = Policy(Walk().spec, initial_log_std=0.5)
    ours = collector(Walk(), policy, 16)(actors(policy, [0, 1]), keys([0, 1]))
    twin = collector(NumpyWalk(), policy, 16)(actors(policy, [0, 1]), keys([0, 1]))
    assert ours.observation.shape == (2, 16, 8, 2)
    assert bool(ours.failed.any())
    assert not bool(ours.failed.all())
    for name, a, b in zip(ours._fields, ours, twin, strict=True):
        assert a.shape == b.shape, name
        if name in ("observation", "action"):  # of the dead they may be anything
            a, b = (x[np.asarray(ours.alive) > 0] for x in (a, b))
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_after_a_failure_nothing_counts():
    policy = Policy(Walk().spec, initial_log_std=0.5)
    out = collector(Walk(), policy, 32)(actors(policy, [0]), keys([0]))
    alive = np.asarray(out.alive[0])
    assert (np.diff(alive, axis=1) <= 0).all()
    np.testing.assert_array_equal(np.asarray(out.reward[0])[alive == 0], 0.0)
    np.testing.assert_array_equal(np.asarray(out.costs[0])[alive == 0], 0.0)
    dead = alive[:, -1] == 0
    assert dead.any()
    assert np.asarray(out.failed[0])[dead].all()


def test_a_seed_acts_alike_alone_and_beside_others():
    for env in (Walk(), NumpyWalk()):
        policy = Policy(env.spec)
        collect = collector(env, policy, 4)
        both = collect(actors(policy, [5, 6]), keys([5, 6]))
        alone = collect(actors(policy, [6]), keys([6]))
        jax.tree.map(
            lambda b, a: np.testing.assert_array_equal(b[1], a[0]), both, alone
        )


def test_discrete_actions():
    policy = Policy(Coin().spec)
    out = collector(Coin(), policy, 64)(actors(policy, [0]), keys([0]))
    assert out.action.shape == (1, 64, 4)
    np.testing.assert_array_equal(out.reward[0], out.action[0].astype(jnp.float32))
    assert 0.3 < float(out.reward.mean()) < 0.7


def test_replay_gives_the_states_of_the_episode():
    policy = Policy(Walk().spec)
    episodes = collector(Walk(), policy, 1)(actors(policy, [0]), keys([0]))
    seeds, _ = draws(policy, keys([0])[0], 1)
    states = jax.jit(lambda *x: replay(Walk(), *x))(seeds[0], episodes.action[0, 0])
    observed = np.asarray(episodes.observation[0, 0])
    np.testing.assert_allclose(np.stack(states, axis=1), observed, atol=1e-6)


def test_waves_give_the_bits_of_one_batch():
    policy = Policy(SPEC)
    whole, waves = (
        collector(SimulatorPool(Make(), SPEC, per_process=size), policy, 5)(
            actors(policy, [0, 1]), keys([0, 1])
        )
        for size in (None, 3)
    )
    assert whole.observation.shape == (2, 5, 6, 2)
    jax.tree.map(np.testing.assert_array_equal, whole, waves)
