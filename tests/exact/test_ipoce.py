"""Algorithm 1: what it guarantees, and that it need not reach the optimum."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from ecop.exact import (
    PROBLEMS,
    backward_induction,
    evaluate_exact,
    occupancy_of,
    random_cmdp,
    solve,
    tabular_cmdp,
    value_functions,
)
from ecop.exact.ipoce import backward_pass, ipoce, solve_step
from ecop.exact.values import best_response, deterministic, uniform_policy


def two_offers(limit=1.0):
    """One state, two steps: buying earns 2, then 1, and costs 1 each time."""
    reward = np.zeros((2, 1, 2))
    reward[:, 0, 1] = [2.0, 1.0]
    return tabular_cmdp(
        "TwoOffers",
        transition=np.ones((1, 2, 1)),
        reward=reward,
        costs=[[[0.0, 1.0]]],
        limits=[limit],
        horizon=2,
    )


def safest(cmdp):
    _, actions, _ = best_response(cmdp, -cmdp.costs.sum(axis=0))
    return deterministic(actions, cmdp.actions)


def test_one_pass_without_limits_is_backward_induction():
    for seed in range(4):
        cmdp = random_cmdp(seed=seed, time_varying=True).with_limits(np.inf)
        history = ipoce(cmdp, iterations=1)
        assert_allclose(history.values[1], backward_induction(cmdp).value, atol=1e-9)


def test_coordinate_ascent_stops_short_of_the_optimum():
    """The last step takes the whole limit first, and no single step gives it back."""
    cmdp = two_offers()
    assert_allclose(solve(cmdp).value, 2.0)
    never = np.tile([1.0, 0.0], (2, 1, 1))
    history = ipoce(cmdp, iterations=5, initial=never)
    assert_allclose(history.values, [0, 1, 1, 1, 1, 1], atol=1e-9)
    assert_allclose(history.costs[1:, 0], 1.0, atol=1e-9)


@pytest.mark.parametrize("seed", range(5))
def test_feasible_start_stays_feasible_and_never_loses(seed):
    cmdp = random_cmdp(seed=seed, constraints=2, tightness=0.5, time_varying=True)
    history = ipoce(cmdp, iterations=6, initial=safest(cmdp))
    assert (np.diff(history.values) >= -1e-7).all()
    assert (history.costs <= np.asarray(cmdp.limits) + 1e-6).all()
    assert history.values[-1] > history.values[0] + 1e-2
    assert (history.values <= solve(cmdp).value + 1e-6).all()


def test_infeasible_start_recovers():
    cmdp = PROBLEMS["Inventory"](limit=2.0)
    history = ipoce(cmdp, iterations=3)
    assert history.costs[0, 0] > 2.5
    assert_allclose(history.costs[-1], 2.0, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "stuck_at"),
    [("MediaStreaming", -7.2737), ("Inventory", 6.4792), ("Box", 0.7075)],
)
def test_measured_shortfall_from_the_uniform_policy(name, stuck_at):
    cmdp = PROBLEMS[name]()
    history = ipoce(cmdp, iterations=3)
    assert_allclose(history.values[2:], stuck_at, atol=1e-3)
    assert solve(cmdp).value > stuck_at + 0.1


def test_the_optimum_is_a_fixed_point():
    cmdp = PROBLEMS["Inventory"]()
    optimum = solve(cmdp)
    history = ipoce(cmdp, iterations=3, initial=optimum.policy)
    assert_allclose(history.values, optimum.value, atol=1e-6)


def test_objective_of_a_pass_is_the_policy_difference():
    """Reading "propagated": at t the objective is J(mixed policy) - J(pi_{k-1})."""
    cmdp = random_cmdp(seed=9, tightness=0.4)
    previous = uniform_policy(cmdp)
    policy, _ = backward_pass(cmdp, previous)
    mixed = np.concatenate([previous[:2], policy[2:]])
    occupancy = occupancy_of(cmdp, mixed)
    gain = evaluate_exact(cmdp, mixed)[0] - evaluate_exact(cmdp, previous)[0]
    advantage = value_functions(cmdp, previous)[0].advantage
    assert_allclose(np.vdot(occupancy[2:], advantage[2:]), gain, atol=1e-9)
    assert gain > 0


def test_readings_differ():
    cmdp = PROBLEMS["PeakHours"]()
    one, other = (
        ipoce(cmdp, iterations=2, reading=reading)
        for reading in ("propagated", "previous")
    )
    assert abs(one.values[-1] - other.values[-1]) > 0.1


def test_step_spends_the_slack_where_it_earns_most():
    # Two equally likely states; action 1 earns 1 or 3 for the same cost 1.
    to_go = np.array([[[0.0, 1.0], [0.0, 3.0]], [[0.0, 1.0], [0.0, 1.0]]])
    step = solve_step(np.array([0.5, 0.5]), to_go, np.array([0.75]))
    assert_allclose(step.policy, [[0.5, 0.5], [0.0, 1.0]], atol=1e-9)
    assert_allclose(step.multipliers, [1.0], atol=1e-9)


def test_step_acts_greedily_where_nobody_comes():
    to_go = np.array([[[0.0, 1.0], [5.0, 3.0]], [[0.0, 1.0], [9.0, 0.0]]])
    step = solve_step(np.array([1.0, 0.0]), to_go, np.array([0.5]))
    assert_allclose(step.policy, [[0.5, 0.5], [0.0, 1.0]], atol=1e-9)
