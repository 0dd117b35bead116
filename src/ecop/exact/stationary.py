"""The best stationary policy under the limits: what ignoring the step costs.

With one pi(a|s) for all steps, J is a polynomial of degree H in pi, no longer linear
in an occupancy, and the problem is not convex. So this is a search, not a proof:

1. Starts: the occupancy-weighted mean over time of the optimal policy, the same of the
   unconstrained optimum and of the smallest costs; the uniform policy; random ones.
2. From each, sequential quadratic programming (SLSQP) on the probabilities themselves
   with exact gradients, dJ/dpi(a|s) = sum_h rho_h(s) Q_h(s,a). Probabilities, not
   softmax logits, because optima are nearly deterministic and logits would run off.
3. A result counts only if its exactly evaluated costs keep the limits.

`hits` says how many starts ended within 1e-6 of the best value; a single hit among many
is a reason to raise `restarts`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize

from ecop.errors import UserError
from ecop.exact.cmdp import TabularCMDP
from ecop.exact.lp import Solution, solve
from ecop.exact.values import (
    backward_induction,
    best_response,
    deterministic,
    evaluate_exact,
    occupancy_of,
    value_functions,
)

ALLOWED_EXCESS = 1e-6


class Stationary(NamedTuple):
    """The best stationary policy found and how far below the optimum it is."""

    value: float
    costs: np.ndarray  # [C]
    policy: np.ndarray  # [S, A]
    gap: float  # optimum over all policies - value
    hits: int  # starts that ended within 1e-6 of `value`
    starts: int


def best_stationary(
    cmdp: TabularCMDP,
    *,
    restarts: int = 20,
    seed: int = 0,
    max_iterations: int = 300,
    optimum: Solution | None = None,
) -> Stationary:
    """Search for the best pi(a|s) [S, A]; `restarts` counts the random starts."""
    optimum = solve(cmdp) if optimum is None else optimum
    starts = _starts(cmdp, optimum, restarts, np.random.default_rng(seed))
    ends = [_ascend(cmdp, start, max_iterations) for start in starts]
    limits = np.asarray(cmdp.limits)
    found = [(*evaluate_exact(cmdp, end), end) for end in ends]
    kept = [row for row in found if (row[1] <= limits + ALLOWED_EXCESS).all()]
    if not kept:
        raise UserError(
            f"No stationary policy within the limits of {cmdp.name} was found from "
            f"{len(starts)} starts; raise `restarts` or the limits."
        )
    value, costs, policy = max(kept, key=lambda row: row[0])
    hits = sum(row[0] >= value - 1e-6 for row in kept)
    gap = optimum.value - value
    return Stationary(value, costs, policy, gap, hits, len(starts))


def stationary_gradients(
    cmdp: TabularCMDP, policy: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the totals [1 + C] and their gradients [1 + C, S, A] at pi [S, A].

    The first row is the reward, the others the costs.
    """
    reward, costs = value_functions(cmdp, policy)
    visits = occupancy_of(cmdp, policy).sum(axis=-1)
    q = np.concatenate([reward.action_value[None], costs.action_value])
    v = np.concatenate([reward.value[None], costs.value])
    return v[:, 0] @ cmdp.initial, np.einsum("hs,khsa->ksa", visits, q)


def _starts(
    cmdp: TabularCMDP, optimum: Solution, restarts: int, rng: np.random.Generator
) -> list[np.ndarray]:
    shape = (cmdp.states, cmdp.actions)
    occupancies = [
        optimum.occupancy,
        occupancy_of(cmdp, backward_induction(cmdp).policy),
    ]
    for cost in cmdp.costs:
        _, actions, _ = best_response(cmdp, -cost)
        policy = deterministic(actions, cmdp.actions)
        occupancies.append(occupancy_of(cmdp, policy))
    means = [_mean_over_time(occupancy) for occupancy in occupancies]
    random = [rng.dirichlet(np.ones(shape[1]), shape[0]) for _ in range(restarts)]
    return [*means, np.full(shape, 1 / shape[1]), *random]


def _mean_over_time(occupancy: np.ndarray) -> np.ndarray:
    """Return the policy [S, A] with the action shares of an occupancy [H, S, A]."""
    # The small constant makes states without visits uniform.
    visits = np.maximum(occupancy.sum(axis=0), 0.0) + 1e-9
    return visits / visits.sum(axis=-1, keepdims=True)


def _ascend(cmdp: TabularCMDP, start: np.ndarray, max_iterations: int) -> np.ndarray:
    """Improve a policy [S, A] by SLSQP; return a proper policy [S, A]."""
    enforced = list(cmdp.enforced)
    limits = np.asarray(cmdp.limits)[enforced]
    states, actions = start.shape
    normalised = np.kron(np.eye(states), np.ones((1, actions)))

    def policy_of(x: np.ndarray) -> np.ndarray:
        policy = np.clip(x.reshape(start.shape), 0.0, None) + 1e-300
        return policy / policy.sum(axis=-1, keepdims=True)

    latest: dict[bytes, tuple[np.ndarray, np.ndarray]] = {}

    def at(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        # SLSQP asks for four things at the same point.
        key = x.tobytes()
        if key not in latest:
            latest.clear()
            latest[key] = stationary_gradients(cmdp, policy_of(x))
        return latest[key]

    constraints = [
        {
            "type": "eq",
            "fun": lambda x: normalised @ x - 1,
            "jac": lambda x: normalised,
        },
        {
            "type": "ineq",
            "fun": lambda x: limits - at(x)[0][1:][enforced],
            "jac": lambda x: -at(x)[1][1:][enforced].reshape(len(enforced), -1),
        },
    ]
    result = minimize(
        lambda x: -at(x)[0][0],
        start.reshape(-1),
        jac=lambda x: -at(x)[1][0].reshape(-1),
        bounds=[(0, 1)] * start.size,
        constraints=constraints if enforced else constraints[:1],
        method="SLSQP",
        options={"maxiter": max_iterations, "ftol": 1e-12},
    )
    return policy_of(result.x)
