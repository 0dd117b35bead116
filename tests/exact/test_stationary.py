"""The best stationary policy: against a grid, and its gap."""

import itertools

import numpy as np
import pytest
from numpy.testing import assert_allclose

from ecop.errors import UserError
from ecop.exact import PROBLEMS, evaluate_exact, random_cmdp, solve, tabular_cmdp
from ecop.exact.stationary import best_stationary, stationary_gradients


def test_ring_against_a_grid():
    cmdp = PROBLEMS["FactoredRing"]()
    found = best_stationary(cmdp, restarts=4)
    grid = np.linspace(0, 1, 11)
    best = -np.inf
    for moves in itertools.product(grid, repeat=3):
        policy = np.stack([1 - np.array(moves), moves], axis=-1)
        value, costs = evaluate_exact(cmdp, policy)
        if costs[0] <= 3.0 + 1e-9:
            best = max(best, value)
    assert best <= found.value + 1e-6
    assert found.value <= best + 0.08
    assert found.costs[0] <= 3.0 + 1e-6


@pytest.mark.parametrize(
    ("name", "gap"),
    [
        ("FactoredRing", 0.122118),
        ("MediaStreaming", 0.719546),
        ("PeakHours", 2.356434),
    ],
)
def test_gap_of_the_named_problems(name, gap):
    found = best_stationary(PROBLEMS[name](), restarts=3)
    assert_allclose(found.gap, gap, atol=1e-5)
    assert found.hits >= 2
    assert_allclose(
        evaluate_exact(PROBLEMS[name](), found.policy)[0], found.value, atol=1e-12
    )


def test_no_gap_when_there_is_one_step():
    cmdp = random_cmdp(horizon=1, tightness=0.5, seed=1)
    assert_allclose(best_stationary(cmdp, restarts=2).gap, 0.0, atol=1e-6)


def test_gap_is_measured_against_the_given_optimum():
    cmdp = PROBLEMS["FactoredRing"]()
    optimum = solve(cmdp)._replace(value=5.0)
    found = best_stationary(cmdp, restarts=0, optimum=optimum)
    assert_allclose(found.gap, 5.0 - found.value)


def test_gradients_against_differences():
    cmdp = random_cmdp(seed=2, constraints=2, time_varying=True)
    rng = np.random.default_rng(0)
    policy = rng.dirichlet(np.ones(cmdp.actions), cmdp.states)
    direction = rng.dirichlet(np.ones(cmdp.actions), cmdp.states) - policy
    totals, gradient = stationary_gradients(cmdp, policy)
    value, costs = evaluate_exact(cmdp, policy)
    assert_allclose(totals, [value, *costs], atol=1e-12)
    step = 1e-6
    ends = [
        np.array([v, *c])
        for v, c in (
            evaluate_exact(cmdp, policy + sign * step * direction) for sign in (-1, 1)
        )
    ]
    slope = (ends[1] - ends[0]) / (2 * step)
    assert_allclose(np.einsum("ksa,sa->k", gradient, direction), slope, atol=1e-7)


def test_limits_no_stationary_policy_keeps():
    # Free are action 0 at the first step and action 1 at the second: a policy that
    # does not see the step pays 1 on average, whatever it does.
    cmdp = tabular_cmdp(
        "Alternate",
        transition=np.ones((1, 2, 1)),
        reward=np.zeros((1, 2)),
        costs=[[[[0.0, 1.0]], [[1.0, 0.0]]]],
        limits=[0.5],
        horizon=2,
    )
    assert solve(cmdp).costs[0] <= 0.5
    with pytest.raises(UserError, match="No stationary policy"):
        best_stationary(cmdp, restarts=2)
