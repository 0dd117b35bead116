"""The exact optimum of a tabular CMDP: the linear program over occupancy measures.

    max_q  sum_h <q_h, r_h>
    s.t.   sum_a q_1(s,a) = mu(s)
           sum_a q_{h+1}(s',a) = sum_{s,a} P_h(s'|s,a) q_h(s,a)
           sum_h <q_h, c_{i,h}> <= d_i        (multiplier lambda_i >= 0)
           q >= 0

The policy is pi_h(a|s) = q_h(s,a) / sum_a q_h(s,a). Two ways to the same optimum:

- "lp": the program as printed, sparse, by scipy's HiGHS.
- "decomposition": Dantzig-Wolfe. The flow constraints describe the mixtures of
  deterministic policies, so a small program holds one column (J, J_C) per policy found
  so far, and dynamic programming on r - lambda.c prices the next column. It needs a
  few dozen backward sweeps whatever S, A and H are.

The duality gap does not trust the solver: g(lambda) = max_pi J - lambda.(J_C - d) is
an upper bound of the optimum for any lambda >= 0, and is computed by dynamic
programming.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from scipy import sparse
from scipy.optimize import OptimizeResult, linprog

from ecop.errors import UserError
from ecop.exact.cmdp import TabularCMDP
from ecop.exact.values import (
    best_response,
    deterministic,
    lagrangian_signal,
    occupancy_of,
    totals,
)

Method = Literal["auto", "lp", "decomposition"]

# HiGHS took 5 s for 25,000 variables, 33 s for 50,000 and gave up at 100,000; the
# decomposition took 0.1 s for each.
LARGEST_LP = 20_000
FEASIBILITY = 1e-7  # relative to the limit where that is above 1


class Infeasible(UserError):
    """No policy keeps the limits; the message names the constraint and its minimum."""


class Solution(NamedTuple):
    """The constrained optimum and its certificate."""

    value: float
    costs: np.ndarray  # [C]
    multipliers: np.ndarray  # [C], zero where the constraint is off or slack
    policy: np.ndarray  # [H, S, A]
    occupancy: np.ndarray  # [H, S, A]
    gap: float  # g(multipliers) - value: the optimum lies at most this much higher


class Frontier(NamedTuple):
    """The optimal reward as a function of one limit; NaN where it is infeasible."""

    limits: np.ndarray  # [L]
    values: np.ndarray  # [L]
    slopes: np.ndarray  # [L] shadow prices: multiplier of the limit
    costs: np.ndarray  # [L] of an optimal policy; any up to the limit where it is slack


def solve(cmdp: TabularCMDP, *, method: Method = "auto") -> Solution:
    """Return the optimum under the limits; raise `Infeasible` if there is none."""
    if method == "auto":
        method = "lp" if cmdp.reward.size <= LARGEST_LP else "decomposition"
    _refuse_infeasible(cmdp)
    enforced = list(cmdp.enforced)
    multipliers = np.zeros(len(cmdp.costs))
    if not enforced or method == "decomposition":
        occupancy, multipliers[enforced] = _decompose(cmdp, enforced)
    else:
        occupancy, multipliers[enforced] = _solve_lp(cmdp, enforced)
    value, costs = totals(cmdp, occupancy)
    policy = policy_from_occupancy(cmdp, occupancy, multipliers)
    gap = dual_value(cmdp, multipliers) - value
    return Solution(value, costs, multipliers, policy, occupancy, gap)


def dual_value(cmdp: TabularCMDP, multipliers: np.ndarray) -> float:
    """Return g(lambda) = max_pi J - lambda.(J_C - d) for multipliers [C]."""
    best, _, _ = best_response(cmdp, lagrangian_signal(cmdp, multipliers))
    limits = np.where(multipliers > 0, cmdp.limits, 0.0)
    return best + float(multipliers @ limits)


def smallest_cost(cmdp: TabularCMDP, constraint: int = 0) -> float:
    """Return the smallest value that J_Ci can take, whatever the other costs are."""
    best, _, _ = best_response(cmdp, -cmdp.costs[constraint])
    return 0.0 - best


def frontier(
    cmdp: TabularCMDP, limits: Sequence[float] | np.ndarray, *, constraint: int = 0
) -> Frontier:
    """Solve for each limit of one constraint, the other limits kept."""
    limits = np.asarray(limits, np.float64)
    rows = np.full((len(limits), 3), np.nan)
    for row, limit in zip(rows, limits, strict=True):
        others = list(cmdp.limits)
        others[constraint] = float(limit)
        try:
            found = solve(cmdp.with_limits(*others))
        except Infeasible:
            continue
        row[:] = found.value, found.multipliers[constraint], found.costs[constraint]
    return Frontier(limits, *rows.T)


def policy_from_occupancy(
    cmdp: TabularCMDP, occupancy: np.ndarray, multipliers: np.ndarray
) -> np.ndarray:
    """Return pi_h(a|s) [H, S, A]; states never visited act best for r - lambda.c."""
    _, actions, _ = best_response(cmdp, lagrangian_signal(cmdp, multipliers))
    occupancy = np.maximum(occupancy, 0.0)
    mass = occupancy.sum(axis=-1, keepdims=True)
    visited = mass > 1e-12
    shares = occupancy / np.where(visited, mass, 1.0)
    return np.where(visited, shares, deterministic(actions, cmdp.actions))


def _solve_lp(cmdp: TabularCMDP, enforced: list[int]) -> tuple[np.ndarray, np.ndarray]:
    flow, start = _flow_constraints(cmdp)
    result = linprog(
        -cmdp.reward.reshape(-1),
        A_ub=cmdp.costs[enforced].reshape(len(enforced), -1),
        b_ub=np.asarray(cmdp.limits)[enforced],
        A_eq=flow,
        b_eq=start,
        method="highs",
        # Flow rows repeat their right-hand side H times at most, so errors add up.
        options={
            "primal_feasibility_tolerance": 1e-9,
            "dual_feasibility_tolerance": 1e-9,
        },
    )
    _refuse_failure(result)
    occupancy = result.x.reshape(cmdp.reward.shape)
    return occupancy, np.maximum(-result.ineqlin.marginals, 0.0)


def _flow_constraints(cmdp: TabularCMDP) -> tuple[sparse.csr_array, np.ndarray]:
    """Return the matrix [H*S, H*S*A] and right-hand side of the flow equations."""
    horizon, states, actions = cmdp.reward.shape
    leaving = sparse.kron(sparse.eye_array(states), np.ones((1, actions)), "csr")
    blocks: list[list[Any]] = [[None] * horizon for _ in range(horizon)]
    for h in range(horizon):
        blocks[h][h] = leaving
        if h:
            blocks[h][h - 1] = -cmdp.transition_at(h - 1).T
    start = np.zeros(horizon * states)
    start[:states] = cmdp.initial
    return sparse.csr_array(sparse.block_array(blocks)), start


def _refuse_failure(result: OptimizeResult) -> None:
    if result.status != 0:
        raise RuntimeError(f"HiGHS stopped without an optimum: {result.message}")


class _Columns(NamedTuple):
    """Deterministic policies found so far and what they collect."""

    actions: list[np.ndarray]  # each [H, S]
    rewards: list[float]
    costs: list[np.ndarray]  # each [C]


def _price(cmdp: TabularCMDP, columns: _Columns, signal: np.ndarray) -> float:
    """Add the policy that is best for `signal`; return its total of the signal."""
    best, actions, _ = best_response(cmdp, signal)
    policy = deterministic(actions, cmdp.actions)
    reward, costs = totals(cmdp, occupancy_of(cmdp, policy))
    columns.actions.append(actions)
    columns.rewards.append(reward)
    columns.costs.append(costs)
    return best


def _repeats(columns: _Columns) -> bool:
    """Say whether pricing found nothing new, so that only rounding is left to gain."""
    *before, last = columns.actions
    return any(np.array_equal(last, actions) for actions in before)


def _master(
    rewards: np.ndarray, costs: np.ndarray, limits: np.ndarray, *, elastic: bool
) -> OptimizeResult:
    """Mix columns [J] with costs [J, m] under the limits [m]; elastic ones may break.

    The elastic program minimises the total excess over the limits instead.
    """
    count, m = costs.shape
    objective = np.concatenate([np.zeros(count) if elastic else -rewards, np.ones(m)])
    return linprog(
        objective,
        A_ub=np.hstack([costs.T, -np.eye(m)]),
        b_ub=limits,
        A_eq=np.concatenate([np.ones(count), np.zeros(m)])[None],
        b_eq=np.ones(1),
        bounds=[(0, None)] * count + [(0, None if elastic else 0)] * m,
        method="highs",
        options={
            "primal_feasibility_tolerance": 1e-10,
            "dual_feasibility_tolerance": 1e-10,
        },
    )


def _least_excess(
    cmdp: TabularCMDP, constraints: list[int], columns: _Columns
) -> np.ndarray:
    """Return the excess max(0, J_Ci - d_i) [m] with the smallest sum over policies.

    The columns that reach it are left in `columns`.
    """
    limits = np.asarray(cmdp.limits)[constraints]
    while True:
        costs = np.array(columns.costs)[:, constraints]
        result = _master(np.zeros(len(costs)), costs, limits, elastic=True)
        _refuse_failure(result)
        excess = result.x[len(costs) :]
        if result.fun <= 1e-12:
            return excess
        weights = np.maximum(-result.ineqlin.marginals, 0.0)
        signal = -np.tensordot(weights, cmdp.costs[constraints], axes=1)
        bound = -_price(cmdp, columns, signal) - weights @ limits
        if bound >= result.fun - 1e-9 or _repeats(columns):
            return excess


def _decompose(cmdp: TabularCMDP, enforced: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """Return the optimal occupancy and multipliers by column generation."""
    columns = _Columns([], [], [])
    _price(cmdp, columns, cmdp.reward)
    allowed = np.asarray(cmdp.limits)[enforced]
    if enforced:
        for i in enforced:
            _price(cmdp, columns, -cmdp.costs[i])
        # A limit at the edge of feasibility is met up to rounding only.
        allowed = allowed + _least_excess(cmdp, enforced, columns)
    multipliers = np.zeros(len(cmdp.costs))
    scale = max(1.0, max(abs(reward) for reward in columns.rewards))
    while True:
        costs = np.array(columns.costs)[:, enforced]
        result = _master(np.array(columns.rewards), costs, allowed, elastic=False)
        _refuse_failure(result)
        multipliers[enforced] = np.maximum(-result.ineqlin.marginals, 0.0)
        signal = lagrangian_signal(cmdp, multipliers)
        bound = _price(cmdp, columns, signal) + multipliers[enforced] @ allowed
        if bound + result.fun <= 1e-9 * scale or _repeats(columns):
            break
    weights = np.maximum(result.x[: len(costs)], 0.0)
    occupancy = np.zeros(cmdp.reward.shape)
    for weight, actions in zip(weights, columns.actions, strict=False):
        if weight > 0:
            policy = deterministic(actions, cmdp.actions)
            occupancy += weight / weights.sum() * occupancy_of(cmdp, policy)
    return occupancy, multipliers[enforced]


def _refuse_infeasible(cmdp: TabularCMDP) -> None:
    """Raise `Infeasible` with the first constraint that cannot be kept."""
    for i in cmdp.enforced:
        least, limit, name = smallest_cost(cmdp, i), cmdp.limits[i], cmdp.cost_names[i]
        if least > limit + FEASIBILITY * max(1.0, limit):
            raise Infeasible(
                f"The limit {limit:g} of '{name}' is infeasible in {cmdp.name}: the "
                f"smallest feasible cost is {least:.6g}."
            )
    columns = _Columns([], [], [])
    for count, i in enumerate(cmdp.enforced, start=1):
        _price(cmdp, columns, -cmdp.costs[i])
        together = list(cmdp.enforced[:count])
        if count == 1:
            continue
        scale = max(1.0, *(cmdp.limits[j] for j in together))
        if _least_excess(cmdp, together, columns).sum() > FEASIBILITY * scale:
            raise Infeasible(_joint_message(cmdp, together))


def _joint_message(cmdp: TabularCMDP, together: list[int]) -> str:
    *others, last = together
    limits = np.full(len(cmdp.costs), np.inf)
    limits[others] = np.asarray(cmdp.limits)[others]
    signal = -cmdp.costs[last]
    alone = TabularCMDP(
        name=cmdp.name,
        transition=cmdp.transition,
        reward=signal,
        costs=cmdp.costs,
        initial=cmdp.initial,
        limits=tuple(limits),
        cost_names=cmdp.cost_names,
    )
    occupancy, _ = _decompose(alone, others)
    least = -totals(alone, occupancy)[0]
    kept = " and ".join(f"'{cmdp.cost_names[i]}' <= {limits[i]:g}" for i in others)
    return (
        f"The limits of {cmdp.name} are feasible one by one but not together: with "
        f"{kept} the smallest feasible cost of '{cmdp.cost_names[last]}' is "
        f"{least:.6g}, above its limit {cmdp.limits[last]:g}."
    )
