"""The optimum: published values, dynamic programming, certificates, infeasibility."""

import time
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose

from ecop.exact import (
    PROBLEMS,
    Infeasible,
    backward_induction,
    evaluate_exact,
    frontier,
    random_cmdp,
    smallest_cost,
    solve,
    tabular_cmdp,
)

# problem, limit, optimal reward, multiplier (None: not published)
OPTIMA = [
    ("FactoredRing", 3.0, 2.0, 2 / 3),
    ("FactoredRing", 0.6, 0.4, 2 / 3),
    ("MediaStreaming", 5.0, -6.746704, 0.495190),
    ("MediaStreaming", 1.0, -8.983489, 0.587177),
    ("Inventory", 3.5, 6.665322, 0.921212),
    ("Inventory", 0.7, 1.555711, 2.222444),
    ("MarsRover", 0.3, 1.5363, 0.1930),
    ("MarsRover", 0.2, 1.5170, None),
    ("MarsRover", 0.1, 1.4974, 0.2047),
    ("Box", 0.2, 1.7573, 0.0756),
    ("Box", 0.1, 1.7497, 0.0782),
    ("Box", 0.05, 1.7381, 37.0),
    # By hand: 2 of the limit buy 4 charges at 0.5 each, the rest charges at 1.
    ("PeakHours", 3.0, 0.9 * (2 / 0.5 + 1), 0.9),
]
UNCONSTRAINED = [
    ("FactoredRing", 4.0, 6.0),
    ("MediaStreaming", -5.393138, None),
    ("Inventory", 7.0, 4.5053),
    ("MarsRover", 1.8168, None),
    ("Box", 1.8158, 0.9732),
]
METHODS = ("lp", "decomposition")


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("name", "limit", "value", "multiplier"), OPTIMA)
def test_published_optima(name, limit, value, multiplier, method):
    solution = solve(PROBLEMS[name](limit=limit), method=method)
    assert_allclose(solution.value, value, atol=5.1e-5)
    assert solution.costs[0] <= limit + 1e-7
    assert abs(solution.gap) < 1e-6
    if multiplier is not None:
        assert_allclose(solution.multipliers, [multiplier], atol=1e-4)


@pytest.mark.parametrize(("name", "value", "cost"), UNCONSTRAINED)
def test_published_unconstrained_optima(name, value, cost):
    best = backward_induction(PROBLEMS[name]())
    assert_allclose(best.value, value, atol=5.1e-5)
    if cost is not None:
        assert_allclose(best.costs, [cost], atol=5.1e-5)


def test_mars_rover_without_reward_for_rocks_does_not_bind():
    cmdp = PROBLEMS["MarsRover"](rock_reward=0.0)
    assert_allclose(solve(cmdp).value, 1.4030, atol=5.1e-5)
    assert_allclose(backward_induction(cmdp).costs, [0.0898], atol=5.1e-5)
    assert_allclose(solve(cmdp).multipliers, [0.0], atol=1e-8)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("seed", range(4))
def test_without_a_binding_limit_the_program_is_backward_induction(seed, method):
    cmdp = random_cmdp(seed=seed, constraints=2, time_varying=seed % 2 == 0)
    best = backward_induction(cmdp)
    loose = cmdp.with_limits(*(best.costs + 1.0))
    for free in (loose, cmdp.with_limits(np.inf, np.inf)):
        solution = solve(free, method=method)
        assert_allclose(solution.value, best.value, atol=1e-8)
        assert_allclose(solution.multipliers, 0.0, atol=1e-8)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("seed", range(6))
def test_certificate_on_random_cmdps(seed, method):
    cmdp = random_cmdp(
        seed=seed,
        states=8,
        successors=3,
        constraints=1 + seed % 3,
        tightness=0.6,
        time_varying=seed > 2,
    )
    solution = solve(cmdp, method=method)
    value, costs = evaluate_exact(cmdp, solution.policy)
    assert_allclose(value, solution.value, atol=1e-8)
    assert_allclose(costs, solution.costs, atol=1e-8)
    assert (costs <= np.asarray(cmdp.limits) + 1e-7).all()
    assert abs(solution.gap) < 1e-6
    assert (solution.multipliers >= 0).all()
    assert solution.multipliers.max() > 1e-3
    slack = np.asarray(cmdp.limits) - costs
    assert_allclose(solution.multipliers * slack, 0.0, atol=1e-6)
    assert solution.value < backward_induction(cmdp).value - 1e-3


def test_both_methods_agree_with_one_limit_off():
    cmdp = random_cmdp(seed=3, constraints=3, tightness=0.7)
    cmdp = cmdp.with_limits(cmdp.limits[0], np.inf, cmdp.limits[2])
    by_lp, by_columns = (solve(cmdp, method=method) for method in METHODS)
    assert_allclose(by_lp.value, by_columns.value, atol=1e-8)
    assert_allclose(by_lp.multipliers, by_columns.multipliers, atol=1e-6)
    assert by_lp.multipliers[1] == 0


@pytest.mark.parametrize("scale", [1e-4, 1e6])
def test_units_of_reward_and_cost_do_not_matter(scale):
    cmdp = random_cmdp(seed=7, constraints=2, tightness=0.5)
    base = solve(cmdp)
    scaled = replace(
        cmdp,
        reward=cmdp.reward * scale,
        costs=cmdp.costs * scale,
        limits=tuple(limit * scale for limit in cmdp.limits),
    )
    for method in METHODS:
        solution = solve(scaled, method=method)
        assert_allclose(solution.value, base.value * scale, rtol=1e-6)
        assert_allclose(solution.multipliers, base.multipliers, atol=1e-5)


def test_policy_randomises_at_no_more_places_than_binding_limits():
    # A basic optimum splits at most one (state, step) per binding constraint.
    cmdp = random_cmdp(seed=5, constraints=2, tightness=0.5)
    solution = solve(cmdp, method="lp")
    split = (solution.policy.max(axis=-1) < 1 - 1e-9) & (
        solution.occupancy.sum(axis=-1) > 1e-9
    )
    assert split.sum() <= 2


def test_infeasible_limit_names_constraint_and_smallest_cost():
    cmdp = PROBLEMS["Box"](limit=0.02)
    least = smallest_cost(cmdp)
    with pytest.raises(Infeasible, match=rf"'box'.*{least:.6g}"):
        solve(cmdp)
    solution = solve(cmdp.with_limits(least))
    assert_allclose(solution.costs, [least], atol=1e-7)


@pytest.mark.parametrize("method", METHODS)
def test_jointly_infeasible_limits_are_named(method):
    # One step, one choice: action 0 costs (1, 0), action 1 costs (0, 1).
    cmdp = tabular_cmdp(
        "Either",
        transition=np.ones((1, 2, 1)),
        reward=np.zeros((1, 2)),
        costs=[[[1.0, 0.0]], [[0.0, 1.0]]],
        limits=[0.25, 0.5],
        cost_names=["left", "right"],
        horizon=1,
    )
    with pytest.raises(Infeasible, match=r"'left' <= 0.25 .*'right' is 0.75, .* 0.5"):
        solve(cmdp, method=method)
    assert_allclose(solve(cmdp.with_limits(0.25, 0.75), method=method).costs[1], 0.75)


def test_frontier_slope_is_the_difference_quotient():
    cmdp = random_cmdp(seed=2, tightness=0.5)
    step = 1e-4
    line = frontier(cmdp, cmdp.limits[0] + step * np.array([-1, 0, 1]))
    quotient = (line.values[2] - line.values[0]) / (2 * step)
    assert line.slopes[2] - 1e-9 <= quotient <= line.slopes[0] + 1e-9
    assert line.slopes[1] > 0


def test_frontier_is_concave_and_marks_infeasible_limits():
    cmdp = PROBLEMS["PeakHours"]()
    line = frontier(cmdp, np.linspace(0, 5, 11))
    assert (np.diff(line.slopes) <= 1e-9).all()
    assert_allclose(line.values[[2, 4, 6]], [1.8, 3.6, 4.5], atol=1e-9)
    assert_allclose(line.costs[:7], line.limits[:7], atol=1e-7)
    assert_allclose(line.values[-1], backward_induction(cmdp).value, atol=1e-9)
    box = frontier(PROBLEMS["Box"](), [0.01, 0.1])
    assert np.isnan(box.values[0])
    assert box.values[1] > 1.7


def test_frontier_moves_one_limit_and_keeps_the_others():
    cmdp = random_cmdp(seed=4, constraints=2, tightness=0.5)
    line = frontier(cmdp, [cmdp.limits[1]], constraint=1)
    solution = solve(cmdp)
    assert_allclose(line.values, [solution.value], atol=1e-9)
    assert_allclose(line.slopes, solution.multipliers[1:], atol=1e-9)


@pytest.mark.slow
def test_thousand_states_within_a_minute():
    cmdp = random_cmdp(
        states=1000, actions=10, horizon=50, successors=5, constraints=2, seed=1
    )
    start = time.perf_counter()
    solution = solve(cmdp)
    assert time.perf_counter() - start < 60
    assert abs(solution.gap) < 1e-6
    value, costs = evaluate_exact(cmdp, solution.policy)
    assert_allclose(value, solution.value, atol=1e-7)
    assert (costs <= np.asarray(cmdp.limits) + 1e-7).all()
