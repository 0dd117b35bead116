"""The seam: JAX and host environments give the same whole episodes."""

from typing import get_args

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ecop.algorithms.ppo import PPO
from ecop.learning import normaliser
from ecop.learning.networks import Form, Policy
from ecop.rollout import (
    Actor,
    collect_host,
    collector,
    distribution,
    draws,
    exporter,
    replay,
)
from ecop.simulators.acting import act_together
from ecop.simulators.pool import SimulatorPool
from ecop.training import Learner, TrainConfig, stack
from ecop.types import Box, Discrete, Spec
from probes import Coin, NumpyWalk, Walk
from simulators import SPEC, CountersAtOnce, Make


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
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


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


def test_an_episode_does_not_depend_on_how_many_are_drawn():
    policy = Policy(Walk().spec)
    draw = jax.jit(lambda numbers: draws(policy, jax.random.key(3), numbers))
    many = draw(jnp.arange(33))
    assert len(np.unique(many[0])) == 33
    for part in (jnp.arange(1), jnp.arange(5), jnp.arange(7, 20)):
        few = draw(part)
        for a, b in zip(few, many, strict=True):
            np.testing.assert_array_equal(a, b[part])


def test_discrete_actions():
    policy = Policy(Coin().spec)
    out = collector(Coin(), policy, 64)(actors(policy, [0]), keys([0]))
    assert out.action.shape == (1, 64, 4)
    np.testing.assert_array_equal(out.reward[0], out.action[0].astype(jnp.float32))
    assert 0.3 < float(out.reward.mean()) < 0.7


@pytest.mark.parametrize("std", ["shared", "predicted"])
@pytest.mark.parametrize("env", [Walk(), NumpyWalk(), Coin()], ids=lambda e: str(e)[:9])
def test_deterministic_actions_are_the_most_likely_ones(env, std):
    policy = Policy(env.spec, std=std, initial_log_std=0.5)
    who, chance = actors(policy, [0]), keys([0])
    out = collector(env, policy, 16, deterministic=True)(who, chance)
    drawn = collector(env, policy, 16)(who, chance)
    np.testing.assert_array_equal(out.observation[:, :, 0], drawn.observation[:, :, 0])
    assert not np.array_equal(out.action, drawn.action)
    actor = jax.tree.map(lambda x: x[0], who)
    for h in range(env.spec.horizon):
        living = np.asarray(out.alive[0, :, h]) > 0
        likely = distribution(policy, actor, out.observation[0, :, h], jnp.int32(h))
        found = np.asarray(out.action[0, :, h])[living]
        np.testing.assert_allclose(found, likely.mode()[living], rtol=1e-4, atol=1e-6)


def test_replay_gives_the_states_of_the_episode():
    policy = Policy(Walk().spec)
    episodes = collector(Walk(), policy, 1)(actors(policy, [0]), keys([0]))
    seeds, _ = draws(policy, keys([0])[0], jnp.arange(1))
    states = jax.jit(lambda *x: replay(Walk(), *x))(seeds[0], episodes.action[0, 0])
    observed = np.asarray(episodes.observation[0, 0])
    np.testing.assert_allclose(np.stack(states, axis=1), observed, atol=1e-6)


@pytest.mark.parametrize("form", get_args(Form))
@pytest.mark.parametrize(
    ("action", "std"), [(Box(3), "shared"), (Box(3), "predicted"), (Discrete(4), "")]
)
@pytest.mark.parametrize("hidden", [(8, 5), ()])
def test_numpy_acts_as_jax_does(form, action, std, hidden):
    """Up to rounding; observations that are cut off among them."""
    spec = Spec(5, action, 6)
    policy = Policy(spec, form, hidden, std or "shared")
    params = jax.tree.map(
        lambda x: x + 0.3 * jax.random.normal(jax.random.key(x.size), x.shape),
        policy.init(jax.random.key(0)),
    )
    rng = np.random.default_rng(0)
    seen = jnp.asarray(rng.normal(2.0, 3.0, (4, 6, 5)), jnp.float32)
    statistics = normaliser.update(normaliser.init(5), seen, jnp.ones((4, 6)))
    actor = Actor(params, statistics)
    observation = seen.at[1].set(1e4)
    noise = np.asarray(policy.noise(jax.random.key(1), (4, 6)))
    plain, spread = exporter(policy)(actor)
    for h in range(6):
        theirs = distribution(policy, actor, observation[:, h], jnp.int32(h))
        ours = act_together(
            plain, np.asarray(observation)[:, h], h, (noise * spread)[:, h]
        )
        expected = theirs.sample(jnp.asarray(noise[:, h]))
        assert ours.dtype == expected.dtype
        np.testing.assert_allclose(ours, expected, rtol=1e-4, atol=1e-5)


def play(env, form: Form = "time", counts=(5, 2, 9)):
    """Episodes of three seeds, each with a policy of its own."""
    policy = Policy(env.spec, form, initial_log_std=0.3)
    seeds = range(len(counts))
    all_actors = [
        jax.tree.map(lambda x, s=s: x[s], actors(policy, seeds)) for s in seeds
    ]
    return collect_host(env, policy)(all_actors, list(keys(seeds)), list(counts))


@pytest.mark.parametrize("form", get_args(Form))
def test_episodes_are_the_same_in_any_company_and_place(form):
    """Whatever the workers, the live simulators and the other episodes."""
    expected = play(SimulatorPool(Make(), SPEC, live=1), form)
    assert [x.reward.shape for x in expected] == [(5, 6), (2, 6), (9, 6)]
    for workers, live in ((0, 3), (0, 8), (1, 8), (2, 1), (3, 8)):
        pool = SimulatorPool(Make(), SPEC, workers=workers, live=live)
        jax.tree.map(np.testing.assert_array_equal, play(pool, form), expected)
        pool.close()
    for counts in ((7, 1, 1), (1, 1, 20)):
        other = play(SimulatorPool(Make(), SPEC), form, counts)
        for ours, theirs in zip(other, expected, strict=True):
            n = min(len(ours.reward), len(theirs.reward))
            for a, b in zip(ours, theirs, strict=True):
                np.testing.assert_array_equal(a[:n], b[:n])


def test_a_batched_task_has_the_bits_of_single_ones():
    """And of a pool, one simulator for each of its episodes."""
    together = play(CountersAtOnce())
    single = play(SimulatorPool(Make(), SPEC))
    jax.tree.map(np.testing.assert_array_equal, together, single)


def test_no_step_is_taken_after_all_have_ended():
    env = CountersAtOnce(end=3)
    out = play(env, counts=(4, 4, 4))
    assert env.steps == 3
    for episodes in out:
        np.testing.assert_array_equal(episodes.alive.sum(axis=1), 3)
        assert bool(episodes.failed.all())
        assert not np.asarray(episodes.reward)[:, 3:].any()


def test_the_first_ratio_is_one():
    env = SimulatorPool(Make(), SPEC)
    learner = Learner(env, SPEC, PPO(), TrainConfig(seeds=1, episodes=3))
    state = jax.jit(learner.init)(jnp.uint32(0))
    actor = Actor(state.policy, state.normaliser)
    episodes = collect_host(env, learner.policy)([actor], [state.key], [3])[0]

    @jax.jit
    def ratio(state, episodes):
        x = learner.seen(state, episodes)
        advantages, _ = learner.advantages(state.critics, x, episodes)
        batch, _ = learner.batch(state, episodes, x, advantages)
        now = learner.policy.over(state.policy, batch.observation)
        return jnp.exp(now.log_prob(batch.action) - batch.log_prob)

    np.testing.assert_array_equal(ratio(state, episodes), 1.0)
