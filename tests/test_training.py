"""Training as a whole: determinism, one compilation, probes with known answers."""

import dataclasses
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ecop.algorithms.cpo import CPO
from ecop.algorithms.ecop import ECOP
from ecop.algorithms.ppo_lag import PPOLagrangian
from ecop.errors import UserError
from ecop.evaluate import fresh_episodes
from ecop.rollout import Actor, collector, lengthened
from ecop.training import (
    DISPATCH,
    Learner,
    TrainConfig,
    init_seeds,
    run_seeds,
    stack,
)
from ecop.types import Episodes
from probes import Coin, NumpyWalk, Spend, Walk

SMALL = TrainConfig(
    seeds=2, episodes=4, hidden=(8,), critic_epochs=1, critic_minibatches=2
)
QUICK = ECOP(backward_steps=2)


def learner(env, algorithm=QUICK, config=SMALL, limits=None):
    spec = env.spec if limits is None else env.spec.with_limits(limits)
    return Learner(env, spec, algorithm, config)


def bits(states):
    leaves = jax.tree.leaves(
        [s._replace(key=jax.random.key_data(s.key)) for s in states]
    )
    return [np.asarray(leaf) for leaf in leaves]


def finish(task, states, counts):
    parts = list(run_seeds(task, states, counts))
    return parts[-1].after, parts


def assert_same_bits(a, b):
    for x, y in zip(bits(a), bits(b), strict=True):
        np.testing.assert_array_equal(x, y)


def test_same_seed_same_bits_twice_alone_and_in_any_portions():
    task = learner(Walk())
    states = init_seeds(task)
    whole, _ = finish(task, states, [5, 5])
    again, _ = finish(learner(Walk()), states, [5, 5])
    assert_same_bits(whole, again)
    portions, parts = finish(task, states, [1, 4, 3, 2])
    assert_same_bits(whole, portions)
    assert [part.count for part in parts] == [1, 4, 3, 2]
    alone, _ = finish(task, states[1:], [5, 5])
    assert_same_bits(whole[1:], alone)
    assert any(
        (x != y).any() for x, y in zip(bits(whole[:1]), bits(whole[1:]), strict=True)
    )


def test_a_host_environment_trains_alike():
    task, twin = learner(Walk()), learner(NumpyWalk())
    states = init_seeds(task)
    _, ours = finish(task, states, [2])
    after, theirs = finish(twin, states, [2])
    # A host environment yields every iteration, so that a fault loses no more.
    assert [part.count for part in theirs] == [1, 1]
    for seed, a in enumerate(ours[0].metrics):
        b = {k: np.concatenate([part.metrics[seed][k] for part in theirs]) for k in a}
        np.testing.assert_allclose(a["reward"], b["reward"], rtol=1e-4)
        np.testing.assert_allclose(a["costs"], b["costs"], rtol=1e-4)
        np.testing.assert_allclose(a["kl"], b["kl"], rtol=0.05, atol=1e-6)
    again, _ = finish(twin, states, [2])
    assert_same_bits(after, again)


def test_compiled_once(monkeypatch):
    traces = []
    iteration = Learner.iteration

    def counted(self, state):
        traces.append(1)
        return iteration(self, state)

    monkeypatch.setattr(Learner, "iteration", counted)
    task = learner(Walk())
    states = init_seeds(task)
    finish(task, states, [1])
    first = len(traces)
    after, _ = finish(task, states, [DISPATCH, 2, 1])
    finish(task, after, [3])
    assert len(traces) == first
    assert task.advance._cache_size() == 1


def test_metrics_are_of_the_episodes_collected():
    """And an evaluation is of others, even at the same state."""
    task = learner(Walk(horizon=24))
    collect = collector(task.env, task.policy, SMALL.episodes)
    for part in run_seeds(task, init_seeds(task), [1, 1]):
        actors = stack([Actor(s.policy, s.normaliser) for s in part.before])
        seen = collect(actors, stack([task.keys(s)[0] for s in part.before]))
        other = fresh_episodes(task, part.before, SMALL.episodes)
        starts = (np.asarray(x.observation)[:, :, 0, 0] for x in (seen, other))
        assert np.not_equal(*starts).all()
        for seed, metrics in enumerate(part.metrics):
            for name, sums in (("reward", seen.reward), ("costs", seen.costs)):
                mean = np.asarray(sums[seed]).sum(axis=1).mean(axis=0)
                np.testing.assert_allclose(metrics[name][0], mean, rtol=1e-5, atol=1e-6)
            failed = np.asarray(seen.failed[seed]).mean()
            assert metrics["failed"][0] == pytest.approx(failed)
        assert bool(seen.failed.any())
        assert np.asarray(seen.costs).sum(axis=(0, 1, 2)).all()


@pytest.mark.parametrize("form", ["time", "per_step", "stationary"])
def test_forms_and_unconstrained_training_run(form):
    config = dataclasses.replace(SMALL, policy=form)
    task = learner(Coin(), config=config, limits=(float("inf"),))
    assert task.critics.count == 1
    _, parts = finish(task, init_seeds(task), [2])
    assert parts[0].metrics[0]["multipliers"].shape == (2, 0)
    assert np.isfinite(parts[0].metrics[0]["loss"]).all()


# What is automatic


def with_horizon(env, horizon, **options):
    made = learner(env(horizon=horizon), config=TrainConfig(**options))
    return made, jax.eval_shape(made.init, jnp.uint32(0))


@pytest.mark.parametrize(
    ("horizon", "episodes"),
    [(1, 60), (33, 60), (40, 50), (100, 20), (300, 7), (1000, 2), (5000, 2)],
)
def test_episodes_make_two_thousand_steps(horizon, episodes):
    for env in (Walk, NumpyWalk):
        assert with_horizon(env, horizon)[0].episodes == episodes
        assert with_horizon(env, horizon, episodes=3)[0].episodes == 3


@pytest.mark.parametrize(
    ("length", "factor"),
    [(1000, 1), (510, 1), (490, 4), (130, 4), (120, 16), (20, 64), (0, 64)],
)
def test_more_episodes_where_they_end_early(length, factor):
    """Powers of four, and only where a dead step costs nothing."""
    for env, options, expected in (
        (NumpyWalk, {}, 2 * factor),
        (NumpyWalk, {"episodes": 3}, 3),
        (Walk, {}, 2),
    ):
        made, state = with_horizon(env, 1000, **options)
        state = state._replace(length=np.float32(length))
        assert made.episodes_now(state) == expected


@pytest.mark.parametrize(
    ("horizon", "discount"), [(1, 1.0), (200, 1.0), (400, 0.995), (2000, 0.991)]
)
def test_long_horizons_are_discounted(horizon, discount):
    assert with_horizon(Walk, horizon)[0].discount == pytest.approx(discount)
    assert with_horizon(Walk, horizon, discount=0.9)[0].discount == 0.9


@pytest.mark.parametrize(
    ("options", "iterations"),
    [
        ({}, 1000),
        ({"steps": 2000}, 1),
        ({"steps": 2001}, 2),
        ({"steps": 2001, "episodes": 5}, 5),
        ({"steps": 2001, "iterations": 7}, 7),
    ],
)
def test_steps_or_iterations(options, iterations):
    made, _ = with_horizon(Walk, 100, **options)
    assert made.iterations == iterations
    assert not made.open_ended
    host, _ = with_horizon(NumpyWalk, 100, **options)
    assert host.iterations == iterations
    assert host.open_ended == ("steps" in options and "iterations" not in options)


# Batches cut short


def cut_short(lengths, kept, horizon=8):
    """The same episodes with and without their last dead steps."""
    rng = np.random.default_rng(0)
    count = len(lengths)
    alive = (np.arange(horizon)[None] < np.array(lengths)[:, None]).astype(np.float32)
    wide = alive[..., None]
    floats = (
        rng.normal(size=(count, horizon, 2)) * wide,
        rng.normal(size=(count, horizon, 1)) * wide,
        rng.normal(size=(count, horizon)) * alive,
        rng.random(size=(count, horizon, 2)) * wide,
        alive,
    )
    arrays = [jnp.asarray(x, jnp.float32) for x in floats]
    failed = jnp.asarray(np.array(lengths) < horizon)
    short = Episodes(*(x[:, :kept] for x in arrays), failed=failed)
    return short, lengthened(short, horizon)


def close(a, b, **tolerance):
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, **tolerance), a, b)


def test_a_batch_cut_short_has_the_same_numbers():
    task = learner(NumpyWalk())
    state = jax.jit(task.init)(jnp.uint32(0))
    # Values that are not zero.
    values = state.critics._replace(std=state.critics.std._replace(value=jnp.ones(3)))
    state = state._replace(critics=values)

    @jax.jit
    def parts(episodes):
        x = task.seen(state, episodes)
        advantages, values = task.advantages(state.critics, x, episodes)
        batch, scale = task.batch(state, episodes, x, advantages)
        return batch, advantages + values, scale

    made = [parts(episodes) for episodes in cut_short([5, 2, 4, 1], 5)]
    (short, target, scale), (long, more, same_scale) = made
    for name in short._fields:
        a, b = (np.asarray(getattr(x, name)) for x in (short, long))
        b = b[:, :5] if a.shape[:2] == (4, 5) else b
        alive = np.asarray(short.alive)
        if a.shape[:2] == (4, 5):
            a, b = a[alive > 0], b[alive > 0]
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5, err_msg=name)
    gap = np.asarray(target - more[:, :5])[np.asarray(short.alive) > 0]
    np.testing.assert_allclose(gap, 0.0, atol=1e-5)
    close(scale, same_scale, rtol=1e-5)


ONE = {"minibatches": 1, "epochs": 3, "learning_rate": 0.01}


@pytest.mark.parametrize(
    "algorithm",
    [
        PPOLagrangian(**ONE),
        ECOP(**ONE),
        ECOP(**ONE, backward_steps=4),
        ECOP(**ONE, backward_steps=0),
        CPO(),
    ],
)
def test_a_batch_cut_short_gives_the_same_update(algorithm):
    """With dead steps a minibatch of all is filled up: here each row is twice in it."""
    config = dataclasses.replace(SMALL, critic_minibatches=1, critic_epochs=3)
    task = learner(NumpyWalk(), algorithm, config)
    learn = jax.jit(task.learn)
    ends = []
    for episodes in cut_short([4] * 5, 4):
        state = jax.jit(task.init)(jnp.uint32(0))
        for _ in range(2):
            state, metrics = learn(state, episodes)
        ends.append((state._replace(key=0), metrics))
    close(*ends, rtol=2e-3, atol=1e-5)


# Probes: the answer is known


PROBE = TrainConfig(
    seeds=2,
    episodes=32,
    hidden=(16,),
    critic_epochs=3,
    critic_minibatches=4,
    gae_decay=1.0,
)
EXACT = ECOP(beta=10.0, caution=0.0, kl_goal=0.0)
PROBER = dataclasses.replace(
    EXACT, backward_steps=6, epochs=2, minibatches=1, learning_rate=3e-3
)


def late(task, iterations=150, share=30):
    _, parts = finish(task, init_seeds(task), [DISPATCH] * (iterations // DISPATCH))
    metrics = [
        {
            k: np.concatenate([p.metrics[s][k] for p in parts])
            for k in ("reward", "costs")
        }
        for s in range(task.config.seeds)
    ]
    reward = np.mean([m["reward"][-share:] for m in metrics])
    cost = np.mean([m["costs"][-share:] for m in metrics], axis=(0, 1))
    return reward, cost


def test_slack_constraint_gives_the_unconstrained_optimum():
    env = Spend(limit=100.0)
    reward, _ = late(learner(env, PROBER, PROBE))
    assert reward > 0.93 * env.optimum(5.999)


def test_active_constraint_ends_at_the_limit_and_time_matters():
    env = Spend(limit=2.0)
    reward, cost = late(learner(env, PROBER, PROBE), iterations=300)
    assert cost[0] == pytest.approx(2.0, abs=0.25)
    assert reward > 0.9 * env.optimum(2.0)
    # Without the time a policy spends evenly: 2/6 of each weight.
    config = dataclasses.replace(PROBE, policy="stationary")
    blind, cost = late(learner(env, PROBER, config), iterations=300)
    assert cost[0] == pytest.approx(2.0, abs=0.25)
    assert blind < 0.75 * env.optimum(2.0)


def test_per_step_policies_reach_the_optimum():
    config = dataclasses.replace(PROBE, policy="per_step", hidden=())
    # A coin's reward is its cost, so the best is exactly the limit.
    algorithm = dataclasses.replace(
        EXACT, backward_steps=4, epochs=4, minibatches=1, learning_rate=0.03
    )
    reward, cost = late(learner(Coin(), algorithm, config))
    assert cost[0] == pytest.approx(1.0, abs=0.15)
    assert reward == pytest.approx(1.0, abs=0.15)


def test_two_constraints_one_active():
    env = Walk()
    free, cost = late(learner(env, PROBER, PROBE, limits=(np.inf, np.inf)))
    assert cost[0] > 3.0
    reward, cost = late(learner(env, PROBER, PROBE, limits=(2.0, 4.0)))
    assert cost[0] == pytest.approx(2.0, abs=0.4)
    assert cost[1] < 4.0
    assert reward < free


# Bad input


@pytest.mark.parametrize(
    "options",
    [
        {"seeds": 0},
        {"iterations": -1},
        {"steps": -1},
        {"episodes": -1},
        {"discount": 1.1},
        {"critic_epochs": 0},
        {"critic_minibatches": 0},
        {"horizon": 0},
        {"hidden": (0,)},
        {"gae_decay": 2.0},
        {"schedule": "steep"},
    ],
)
def test_bad_config(options):
    with pytest.raises(UserError):
        TrainConfig(**options)


@pytest.mark.parametrize(
    "limits", [(), (1.0, 2.0, 3.0), (-1.0, 1.0), (float("nan"), 1.0)]
)
def test_bad_limits(limits):
    with pytest.raises(UserError, match="limit"):
        Walk().spec.with_limits(limits)


def test_initial_states_differ_by_seed_only():
    task = learner(Walk())
    a, b = init_seeds(task)
    assert (jax.random.key_data(a.key) != jax.random.key_data(b.key)).any()
    assert int(a.iteration) == int(b.iteration) == 0
    assert jnp.shape(a.algorithm.multiplier) == (2,)


@pytest.mark.parametrize("seeds", [5, pytest.param(1, marks=pytest.mark.slow)])
def test_seeds_are_spread_over_devices(seeds):
    """In a process of its own: the number of devices is settled at JAX's start."""
    script = Path(__file__).with_name("on_devices.py")
    subprocess.run([sys.executable, script, str(seeds)], check=True)
