"""The paper's statements in numbers: Lemma 1, Proposition 1, Theorem 1."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from theory import (
    augmented_penalty,
    best_slack,
    double_penalty,
    penalised_cost,
    relu_penalty,
    slack_penalty,
)

from ecop.exact import (
    PROBLEMS,
    evaluate_exact,
    occupancy_of,
    random_cmdp,
    solve,
    tabular_cmdp,
    value_functions,
)


def random_policy(cmdp, rng):
    horizon, states, actions = cmdp.reward.shape
    return rng.dirichlet(np.full(actions, 0.5), (horizon, states))


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 10_000),
    states=st.integers(1, 7),
    actions=st.integers(1, 4),
    horizon=st.integers(1, 8),
    time_varying=st.booleans(),
)
def test_policy_difference_lemma(seed, states, actions, horizon, time_varying):
    """Lemma 1: J(pi) - J(pi') = sum_h E_pi[A^{pi'}_h], for the reward and all costs."""
    cmdp = random_cmdp(
        states=states,
        actions=actions,
        horizon=horizon,
        constraints=2,
        time_varying=time_varying,
        seed=seed,
    )
    rng = np.random.default_rng(seed)
    policy, other = random_policy(cmdp, rng), random_policy(cmdp, rng)
    (value, costs), (value_other, costs_other) = (
        evaluate_exact(cmdp, each) for each in (policy, other)
    )
    reward, cost = value_functions(cmdp, other)
    occupancy = occupancy_of(cmdp, policy)
    assert_allclose(
        value - value_other, np.vdot(occupancy, reward.advantage), atol=1e-9
    )
    assert_allclose(
        costs - costs_other,
        np.einsum("hsa,chsa->c", occupancy, cost.advantage),
        atol=1e-9,
    )


def test_value_functions_by_enumeration_of_paths():
    cmdp = random_cmdp(states=2, actions=2, horizon=3, time_varying=True, seed=3)
    policy = random_policy(cmdp, np.random.default_rng(0))
    matrices = [matrix.toarray().reshape(2, 2, 2) for matrix in cmdp.transition]

    def value(h, s):
        return sum(policy[h, s, a] * action_value(h, s, a) for a in range(2))

    def action_value(h, s, a):
        later = (
            sum(matrices[h][s, a, n] * value(h + 1, n) for n in range(2))
            if h + 1 < 3
            else 0.0
        )
        return cmdp.reward[h, s, a] + later

    reward, _ = value_functions(cmdp, policy)
    for h, s, a in np.ndindex(3, 2, 2):
        assert_allclose(reward.value[h, s], value(h, s), atol=1e-12)
        assert_allclose(reward.action_value[h, s, a], action_value(h, s, a), atol=1e-12)
    start = cmdp.initial @ reward.value[0]
    assert_allclose(evaluate_exact(cmdp, policy)[0], start, atol=1e-12)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(
    violation=st.floats(-5, 5),
    multiplier=st.floats(0, 10),
    beta=st.floats(0.1, 20),
)
def test_slack_elimination(violation, multiplier, beta):
    """Proposition 1 against a brute-force minimum over the slack."""
    slack = np.linspace(0, 6, 12_001)
    grid = np.asarray(slack_penalty(violation, multiplier, beta, slack))
    eliminated = augmented_penalty(violation, multiplier, beta)
    # A grid of step 5e-4 misses the minimum of a parabola by beta/2 (step/2)^2.
    assert eliminated <= grid.min() + 1e-9
    assert grid.min() <= eliminated + beta / 2 * 2.6e-4**2 + 1e-9
    found = best_slack(violation, multiplier, beta)
    assert found >= 0
    assert_allclose(
        slack_penalty(violation, multiplier, beta, found), eliminated, atol=1e-9
    )


@pytest.fixture(scope="module", params=[1, 7])
def binding(request):
    """A random CMDP whose limit lies off the kinks of the frontier: a unique price."""
    cmdp = random_cmdp(states=4, horizon=4, tightness=0.45, seed=request.param)
    return cmdp, solve(cmdp).multipliers[0]


@pytest.mark.parametrize("beta", [0.0, 20.0])
@pytest.mark.parametrize("factor", [1.05, 3.0])
def test_relu_penalty_is_exact_above_the_threshold(binding, beta, factor):
    """Theorem 1, Problem (Q): any lambda above lambda* gives the right optimum."""
    cmdp, price = binding
    cost = penalised_cost(cmdp, lambda x: relu_penalty(x, factor * price, beta))
    assert_allclose(cost, cmdp.limits[0], atol=1e-6)


def test_relu_penalty_breaks_the_limit_below_the_threshold(binding):
    cmdp, price = binding
    cost = penalised_cost(cmdp, lambda x: relu_penalty(x, 0.9 * price, 0.5))
    assert cost > cmdp.limits[0] + 1e-2


@pytest.mark.parametrize("beta", [0.5, 50.0])
def test_augmented_penalty_needs_the_right_multiplier(binding, beta):
    """Problem 6: exact at lambda*; off it the cost is off by (lambda* - lambda)/beta.

    So lambda above a threshold is *not* enough there, whatever beta: the theorem holds
    for Problem (Q) and for the saddle point of Problem 6, not for a fixed lambda.
    """
    cmdp, price = binding
    cost = penalised_cost(cmdp, lambda x: augmented_penalty(x, price, beta))
    assert_allclose(cost, cmdp.limits[0], atol=1e-5)
    # Small enough to stay on the frontier's segment of slope lambda*.
    shift = 1e-2 * beta
    for sign in (-1, 1):
        cost = penalised_cost(
            cmdp,
            lambda x, sign=sign: augmented_penalty(x, price + sign * shift, beta),
        )
        assert_allclose(cost - cmdp.limits[0], -sign * 1e-2, atol=1e-5)


def test_double_penalty_is_exact_between_half_and_the_whole_price():
    """Problem 8 counts lambda twice: exact for lambda in [lambda*/2, lambda*] only."""
    cmdp = PROBLEMS["FactoredRing"]()
    price, beta = 2 / 3, 1.0

    def excess(multiplier):
        cost = penalised_cost(cmdp, lambda x: double_penalty(x, multiplier, beta))
        return cost - cmdp.limits[0]

    for share in (0.51, 0.75, 1.0):
        assert_allclose(excess(share * price), 0.0, atol=1e-5)
    assert_allclose(excess(0.4 * price), price - 2 * 0.4 * price, atol=1e-5)
    assert_allclose(excess(1.3 * price), -0.3 * price, atol=1e-5)


def tied_cmdp():
    """Two steps; the reward needs action 1 in both: a tied policy p earns p^2."""
    transition = np.zeros((3, 2, 3))
    transition[0, 1, 1] = transition[0, 0, 2] = 1
    transition[1, :, 1] = transition[2, :, 2] = 1
    reward = np.zeros((3, 2))
    reward[1, 1] = 1
    cost = np.tile([0.0, 1.0], (3, 1))
    return tabular_cmdp(
        "Tied",
        transition=transition,
        reward=reward,
        costs=cost[None],
        limits=[1.0],
        horizon=2,
    )


@pytest.mark.parametrize(("beta", "exact"), [(0.3, False), (0.6, True), (5.0, True)])
def test_damping_threshold_for_a_restricted_policy_class(beta, exact):
    """Theorem 1's beta: min -p^2 s.t. 2p <= 1 has p* = lambda* = 1/2, beta-bar = 1/2.

    One probability p for all states and steps makes the problem concave, so even at
    lambda* Problem 6 has its minimiser at p* only above the threshold; below it the
    minimisers are the ends p = 0 and p = 1.
    """
    cmdp = tied_cmdp()
    grid = np.linspace(0, 1, 1001)
    results = [evaluate_exact(cmdp, np.tile([1 - p, p], (3, 1))) for p in grid]
    value = np.array([value for value, _ in results])
    cost = np.array([costs[0] for _, costs in results])
    assert_allclose(value, grid**2, atol=1e-12)
    loss = -value + augmented_penalty(cost - 1.0, 0.5, beta)
    assert_allclose(abs(grid[loss.argmin()] - 0.5), 0.0 if exact else 0.5, atol=1e-9)
