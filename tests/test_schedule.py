"""Schedules of learning rates: how they fall, what follows, the bits of a resume."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import ecop
from ecop.algorithms.ecop import ECOP
from ecop.training import LEAST, Learner, TrainConfig, init_seeds, run_seeds
from ecop.watching import Quiet
from probes import NumpyWalk, Walk

SMALL = TrainConfig(
    seeds=1, episodes=4, hidden=(8,), critic_epochs=1, critic_minibatches=2
)
PLAIN = ecop.PPO(kl_goal=0.0)


def finish(task, states, counts):
    parts = list(run_seeds(task, states, counts))
    return parts[-1].after, parts


def metric(parts, name, seed=0):
    return np.concatenate([part.metrics[seed][name] for part in parts])


def scheduled(schedule, *, env=None, algorithm=PLAIN, **options):
    env = env or Walk()
    config = dataclasses.replace(SMALL, schedule=schedule, **options)
    return Learner(env, env.spec, algorithm, config)


@pytest.mark.parametrize("algorithm", [PLAIN, ECOP(backward_steps=2, kl_goal=0.0)])
def test_rates_fall_over_the_planned_iterations(algorithm):
    left = 1.0 - np.arange(10) / 10
    for schedule, expected in (
        ("constant", np.ones(10)),
        ("late", np.minimum(2 * left, 1.0)),
        ("linear", left),
        ("cosine", 0.5 * (1.0 + np.cos(np.pi * (1.0 - left)))),
    ):
        task = scheduled(schedule, algorithm=algorithm, iterations=10)
        _, parts = finish(task, init_seeds(task), [5, 5])
        rates = metric(parts, "learning_rate")
        np.testing.assert_allclose(
            rates, algorithm.descent.learning_rate * expected, rtol=1e-5
        )


def test_a_falling_rate_moves_policy_and_critics_less():
    tasks = [scheduled(s, iterations=100) for s in ("constant", "linear")]
    (first,) = finish(tasks[0], init_seeds(tasks[0]), [1])[0]
    late = first._replace(iteration=jnp.int32(99))
    moved = [jax.jit(task.iteration)(late)[0] for task in tasks]
    for get in (lambda s: s.policy, lambda s: s.critics.params):
        full, small = (
            optax.tree.norm(optax.tree.sub(get(state), get(late))) for state in moved
        )
        assert 0.005 < float(small / full) < 0.02  # a hundredth, of so many Adam steps


def test_a_rate_that_follows_the_kl_follows_a_falling_one():
    task = scheduled("linear", algorithm=ecop.PPO(), iterations=60)
    state = init_seeds(task)
    _, parts = finish(task, state, [5] * 12)
    kl = metric(parts, "kl") / Walk().spec.action.freedom
    aim = task.algorithm.descent.kl_goal * metric(parts, "pace")
    factor = 1.0 - np.arange(60) / 60
    ratios = kl / (aim * factor**2)
    assert 0.5 < np.median(ratios[20:50]) < 2.0
    assert np.median(kl[50:]) < 0.1 * np.median(kl[10:20])


def test_a_schedule_by_steps_ends_with_them():
    task = scheduled("linear", env=NumpyWalk(), steps=200)
    states, done = init_seeds(task), [0]
    found = []
    for _ in range(12):
        states, parts = finish(task, states, [1])
        found += metric(parts, "learning_rate").tolist()
        done.append(int(states[0].steps))
    expected = np.maximum(1.0 - np.array(done[:-1]) / 200, LEAST)
    assert done[3] < 200 < done[-2]
    np.testing.assert_allclose(
        found, PLAIN.descent.learning_rate * expected, rtol=1e-4, atol=1e-9
    )


def test_a_schedule_resumes_to_the_bit(tmp_path):
    class Halt(Quiet):
        def advanced(self, run):
            return "Halt." if run.iteration >= 10 else None

    options = {**dataclasses.asdict(SMALL), "schedule": "cosine", "iterations": 30}
    whole = ecop.train(Walk(), "ppo", watch=None, **options)
    part = ecop.train(Walk(), "ppo", watch=Halt(), out=tmp_path / "run", **options)
    assert part.iteration == 10
    again = ecop.resume(tmp_path / "run", env=Walk(), watch=None)
    for a, b in zip(
        jax.tree.leaves(whole.states[0]._replace(key=0)),
        jax.tree.leaves(again.states[0]._replace(key=0)),
        strict=True,
    ):
        np.testing.assert_array_equal(a, b)


def test_without_a_schedule_the_plan_is_no_part_of_the_program():
    def program(**options):
        task = scheduled("constant", **options)
        (state,) = init_seeds(task)
        return jax.jit(task.iteration).lower(state).as_text()

    assert program(iterations=10) == program(iterations=20)


def test_the_scale_of_observations_rests_with_the_policy():
    gained = []
    for schedule in ("constant", "linear"):
        task = scheduled(schedule, iterations=100)
        (state,) = init_seeds(task)
        late = state._replace(iteration=jnp.int32(90))
        gained.append(float(jax.jit(task.iteration)(late)[0].normaliser.count))
    assert gained[1] == pytest.approx(0.1**2 * gained[0], rel=1e-4)


def test_trust_regions_fall_by_the_square():
    algorithm = ecop.TRPOLagrangian(target_kl=0.01)
    kls = []
    for iteration in (0, 90):
        task = scheduled("linear", algorithm=algorithm, iterations=100)
        (state,) = init_seeds(task)
        state = state._replace(iteration=jnp.int32(iteration))
        kls.append(float(jax.jit(task.iteration)(state)[1]["kl"]))
    assert 0.2 * 0.01 < kls[0] <= 0.01 * 1.001
    assert 0.2 * 0.0001 < kls[1] <= 0.0001 * 1.01
