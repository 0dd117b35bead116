"""The paper's penalties as formulas, for the tests of Proposition 1 and Theorem 1.

Psi is the violation J_C - d (per constraint), lambda the multiplier, beta the damping.
All functions work entry by entry on arrays of any one shape.

| function | in the paper |
|---|---|
| `slack_penalty` | Problem 5, with the slack variable x |
| `best_slack` | its minimiser over x >= 0 |
| `augmented_penalty` | Problem 6: Problem 5 with x eliminated (Proposition 1) |
| `relu_penalty` | Problem (Q) of the proof of Theorem 1 |
| `double_penalty` | Problem 8, the loss of Algorithm 2: lambda enters twice |
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.optimize import minimize_scalar

from ecop.exact.cmdp import TabularCMDP
from ecop.exact.lp import frontier, smallest_cost
from ecop.exact.values import backward_induction

Number = float | np.ndarray


def slack_penalty(
    violation: Number, multiplier: Number, beta: Number, slack: Number
) -> Number:
    """Return lambda w + beta/2 w^2 with w = Psi + x."""
    equality = violation + slack
    return multiplier * equality + beta / 2 * equality**2


def best_slack(violation: Number, multiplier: Number, beta: Number) -> Number:
    """Return x* = max(0, -Psi - lambda/beta)."""
    return np.maximum(0.0, -violation - multiplier / beta)


def augmented_penalty(violation: Number, multiplier: Number, beta: Number) -> Number:
    """Return beta/2 (max(0, Psi + lambda/beta)^2 - (lambda/beta)^2)."""
    ratio = multiplier / beta
    return beta / 2 * (np.maximum(0.0, violation + ratio) ** 2 - ratio**2)


def relu_penalty(violation: Number, multiplier: Number, beta: Number) -> Number:
    """Return lambda max(0, Psi) + beta/2 max(0, Psi)^2."""
    excess = np.maximum(0.0, violation)
    return multiplier * excess + beta / 2 * excess**2


def double_penalty(violation: Number, multiplier: Number, beta: Number) -> Number:
    """Return lambda max(0, Psi) + `augmented_penalty`."""
    linear = multiplier * np.maximum(0.0, violation)
    return linear + augmented_penalty(violation, multiplier, beta)


def penalised_cost(cmdp: TabularCMDP, penalty: Callable[[float], Number]) -> float:
    """Return J_C of the policy that minimises -J + penalty(J_C - d), one constraint.

    For a penalty that does not fall with the violation, the best policy with cost c
    collects the frontier's J*(c), so a convex search over the number c is exact.
    """
    limit = cmdp.limits[0]

    def loss(cost: float) -> float:
        best = frontier(cmdp, [cost]).values[0]
        return float(penalty(cost - limit) - best)

    least = smallest_cost(cmdp)
    most = float(backward_induction(cmdp).costs[0])
    found = minimize_scalar(
        loss, bounds=(least, most), method="bounded", options={"xatol": 1e-9}
    )
    ends = (float(found.x), least, most)  # the search never tries the ends themselves
    return min(ends, key=loss)
