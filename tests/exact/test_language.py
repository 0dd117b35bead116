"""The language world against enumeration and against a general-purpose optimiser."""

import itertools

import numpy as np
import pytest
from scipy.optimize import minimize

from ecop.errors import UserError
from ecop.exact import backward_induction, evaluate_exact, solve
from ecop.exact.language import (
    END,
    LanguageWorld,
    divergence,
    language,
    language_world,
    soft_response,
    solve_language,
)

SMALL = language_world(horizon=3, words=3, limits=(1.0, 2.0), kl_limit=0.3)


def sentences(world, policy):
    """Yield every sentence: first state, words, probability under policy, p."""
    cmdp = world.cmdp
    for first, *words in itertools.product(range(cmdp.states), repeat=cmdp.horizon + 1):
        under = reference = cmdp.initial[first]
        state = first
        for h, word in enumerate(words):
            under = under * policy[h, state, word]
            reference = reference * world.reference[h, state, word]
            state = END if state == END else word
        yield first, words, under, reference


def drawn(world, seed):
    """Draw a policy that keeps a finished sentence finished."""
    policy = np.random.default_rng(seed).dirichlet(
        np.ones(world.cmdp.actions), world.reference.shape[:2]
    )
    policy[:, END] = np.eye(world.cmdp.actions)[END]
    return policy


def test_divergence_against_all_sentences():
    policy = drawn(SMALL, 0)
    slow = sum(p * np.log(p / q) for _, _, p, q in sentences(SMALL, policy) if p > 0)
    assert divergence(SMALL, policy) == pytest.approx(slow, rel=1e-9)
    assert divergence(SMALL, SMALL.reference) == pytest.approx(0.0, abs=1e-12)


def test_soft_response_against_all_sentences():
    """V_0 = mu log E_p[exp((R - lambda.C) / mu)], one term per sentence."""
    multipliers, price = np.array([0.7, 0.2]), 0.5
    value, policy = soft_response(SMALL, multipliers, price)
    cmdp = SMALL.cmdp
    slow = np.zeros(cmdp.states)
    for first, words, _, q in sentences(SMALL, policy):
        total, state = 0.0, first
        for h, word in enumerate(words):
            total += cmdp.reward[h, state, word]
            total -= multipliers @ cmdp.costs[:, h, state, word]
            state = END if state == END else word
        if q > 0:
            slow[first] += q / cmdp.initial[first] * np.exp(total / price)
    starts = cmdp.initial > 0
    expected = cmdp.initial[starts] @ (price * np.log(slow[starts]))
    assert value == pytest.approx(expected, rel=1e-9)
    reward, costs = evaluate_exact(cmdp, policy)
    spent = multipliers @ costs + price * divergence(SMALL, policy)
    assert value == pytest.approx(reward - spent, rel=1e-9)


def test_optimum_against_a_general_optimiser():
    solution = solve_language(SMALL)
    cmdp = SMALL.cmdp
    limits = np.array([*cmdp.limits, SMALL.kl_limit])
    shape = SMALL.reference.shape

    def measured(x):
        policy = np.exp(x.reshape(shape)) / np.exp(x.reshape(shape)).sum(-1)[..., None]
        policy[:, END] = SMALL.reference[:, END]
        reward, costs = evaluate_exact(cmdp, policy)
        return reward, np.array([*costs, divergence(SMALL, policy)])

    start = np.log(np.maximum(SMALL.reference, 1e-9)).reshape(-1)
    found = minimize(
        lambda x: -measured(x)[0],
        start,
        method="SLSQP",
        constraints={"type": "ineq", "fun": lambda x: limits - measured(x)[1]},
        options={"maxiter": 500, "ftol": 1e-12},
    )
    assert found.success
    assert solution.value == pytest.approx(-found.fun, abs=1e-5)
    assert abs(solution.gap) < 1e-6


def test_default_world_binds_all_limits():
    world = language_world()
    reward, costs = evaluate_exact(world.cmdp, world.reference)
    assert reward == pytest.approx(6.39, abs=0.01)
    np.testing.assert_allclose(costs, [2.40, 11.50], atol=0.01)
    solution = solve_language(world)
    assert solution.value == pytest.approx(6.6347, abs=1e-4)
    np.testing.assert_allclose(solution.costs, [0.5, 12.0], atol=1e-4)
    assert solution.kl == pytest.approx(2.0, abs=1e-4)
    assert (solution.multipliers > 0).all()
    assert abs(solution.gap) < 1e-6


def test_a_wide_kl_limit_leaves_the_linear_programs_optimum():
    world = language_world(kl_limit=60.0)
    exact = solve(world.cmdp).value
    found = solve_language(world)
    assert found.value == pytest.approx(exact, rel=0.01)
    assert found.value < backward_induction(world.cmdp).value


def test_it_is_a_task():
    from ecop.envs.tabular import TabularEnv

    env = TabularEnv(language(horizon=5))
    assert [c.name for c in env.spec.constraints] == ["unsafe", "length"]
    assert env.spec.horizon == 5


def test_limits_that_cannot_be_kept_are_refused():
    with pytest.raises(UserError, match="keeps all limits"):
        solve_language(language_world(limits=(0.01, 12.0), kl_limit=0.01))
    with pytest.raises(UserError, match="must be positive"):
        language_world(kl_limit=0.0)
    with pytest.raises(UserError, match="at least 3"):
        language_world(words=2)
    world = language_world(horizon=2, words=3)
    with pytest.raises(UserError, match="must be positive"):
        LanguageWorld(world.cmdp, world.reference, -1.0)
