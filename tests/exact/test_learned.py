"""Trained policies evaluated exactly, and e-COP's loss at the LP's multiplier."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

import ecop
from ecop.algorithms.ecop import ECOP
from ecop.api import Run
from ecop.config import RunConfig
from ecop.errors import UserError
from ecop.exact import PROBLEMS, evaluate_exact, solve
from ecop.exact.learned import evaluate_learned, policy_table
from ecop.exact.values import value_functions
from ecop.learning import normaliser
from ecop.training import Learner, TrainConfig
from ecop.types import Batch
from probes import with_scales

SMALL = TrainConfig(
    iterations=4,
    episodes=8,
    policy="per_step",
    hidden=(),
    gae_decay=1.0,
    normalise_observations=False,
)


def learner(form, **options):
    env = ecop.make("FactoredRing")
    config = replace(SMALL, policy=form, hidden=(5,), **options)
    return Learner(env, env.spec, ECOP(), config)


def random_state(made):
    """A training state with random parameters; nothing is compiled for it."""
    rng = np.random.default_rng(3)
    shapes = jax.eval_shape(made.init, jnp.uint32(0))
    policy = jax.tree.map(
        lambda leaf: jnp.asarray(rng.normal(size=leaf.shape), jnp.float32),
        shapes.policy,
    )
    return shapes._replace(policy=policy, normaliser=normaliser.init(3))


@pytest.mark.parametrize("form", ["time", "per_step", "stationary"])
def test_policy_table_is_what_the_policy_samples(form):
    made = learner(form, normalise_observations=True)
    state = random_state(made)
    table = policy_table(made, state)
    assert table.shape == (6, 3, 2)
    assert_allclose(table.sum(axis=-1), 1, rtol=1e-12)
    assert table.max() > 0.6
    config = RunConfig("FactoredRing", made.algorithm, made.config)
    run = Run(config, made, [state], [], None)
    for h in (0, 5):
        assert run.policy(np.eye(3), h).tolist() == table[h].argmax(axis=-1).tolist()
    assert (np.ptp(table, axis=0).max() < 1e-6) == (form == "stationary")
    (found,) = evaluate_learned(made, [state])
    assert found == evaluate_exact(made.env.cmdp, table)


def test_only_tabular_tasks_have_a_table():
    env = ecop.make("PointCircle")
    made = Learner(env, env.spec, ECOP(), TrainConfig())
    with pytest.raises(UserError, match="tabular"):
        policy_table(made, jax.eval_shape(made.init, jnp.uint32(0)))


def exact_batch(cmdp, policy, episodes=20_000):
    """A batch whose advantages are the exact ones of sampled steps."""
    rng = np.random.default_rng(0)
    reward, costs = value_functions(cmdp, policy)
    state = rng.choice(cmdp.states, size=episodes, p=cmdp.initial)
    adv, cost_adv = [], []
    for h in range(cmdp.horizon):
        cumulative = policy[h, state].cumsum(axis=-1)
        action = (rng.random((episodes, 1)) > cumulative).sum(axis=-1)
        adv.append(reward.advantage[h, state, action])
        cost_adv.append(costs.advantage[0, h, state, action])
        rows = cmdp.transition_at(h).toarray()[state * cmdp.actions + action]
        state = (rng.random((episodes, 1)) > rows.cumsum(axis=-1)).sum(axis=-1)
    shape = (episodes, cmdp.horizon)
    zero = jnp.zeros(shape, jnp.float32)
    return Batch(
        observation=zero[..., None],
        action=zero,
        log_prob=zero,
        alive=jnp.ones(shape, jnp.float32),
        adv=jnp.asarray(np.stack(adv, axis=1), jnp.float32),
        cost_adv=jnp.asarray(np.stack(cost_adv, axis=1)[..., None], jnp.float32),
        cost_error=jnp.zeros(1, jnp.float32),
        violation=jnp.zeros(1, jnp.float32),
        reward_scale=jnp.ones((), jnp.float32),
        cost_scale=jnp.ones(1, jnp.float32),
    )


def test_the_price_balances_reward_and_cost_in_the_loss():
    """At the LP's multiplier the dimensionless loss has no first-order gain.

    The optimal policy's loss is flat where it randomises: A = price * A_C there.
    """
    cmdp = PROBLEMS["Inventory"]()
    optimum = solve(cmdp)
    reward, costs = value_functions(cmdp, optimum.policy)
    mixed = (optimum.policy > 1e-6) & (optimum.policy < 1 - 1e-6)
    mixed &= optimum.occupancy > 1e-9
    assert mixed.any()
    price = optimum.multipliers[0]
    assert_allclose(
        reward.advantage[mixed], price * costs.advantage[0][mixed], atol=1e-8
    )
    # e-COP sees both advantages divided by standard deviations of the batch.
    policy = 0.8 * optimum.policy + 0.2 / cmdp.actions
    batch = with_scales(exact_batch(cmdp, policy))
    algorithm = ECOP()
    scaled = algorithm.in_units(batch)
    scale = float(np.std(batch.cost_adv))
    dimensionless = price * scale / float(np.std(batch.adv))
    # r A - price A_C in reward units is the scaled sum times one common factor.
    raw = batch.adv - price * batch.cost_adv[..., 0]
    both = scaled.adv - dimensionless * scaled.cost_adv[..., 0]
    factor = np.std(batch.adv)
    assert_allclose(
        np.asarray(both) * factor + np.mean(raw), np.asarray(raw), atol=1e-4
    )


@pytest.mark.parametrize(
    ("name", "iterations", "gap", "violation"),
    [
        ("FactoredRing", 300, 0.03, 0.03),
        pytest.param("Inventory", 1000, 0.05, 0.03, marks=pytest.mark.slow),
    ],
)
def test_ecop_comes_near_the_optimum_with_what_a_user_gets(
    name, iterations, gap, violation
):
    cmdp = PROBLEMS[name]()
    optimum = solve(cmdp)
    run = ecop.train(name, seeds=1, first_seed=16, iterations=iterations)
    ((value, costs),) = evaluate_learned(run.learner, run.states)
    assert (optimum.value - value) / abs(optimum.value) < gap
    assert (costs[0] - cmdp.limits[0]) / cmdp.limits[0] < violation
