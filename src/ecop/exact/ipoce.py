"""Algorithm 1 of the e-COP paper (IPOCE) with exact advantages on tabular CMDPs.

Each iteration k evaluates A^{pi_{k-1}} and A_Ci^{pi_{k-1}} exactly, then runs backward
over t = H .. 1 and solves for pi_{k,t}

    max  sum_{h>=t} E[A_h(s,a)]
    s.t. J_Ci(pi_{k-1}) + sum_{h>=t} E[A_Ci,h(s,a)] <= d_i.

| symbol | here | shape |
|---|---|---|
| A^{pi_{k-1}}, A_Ci^{pi_{k-1}} | `advantage` | [1 + C, H, S, A] |
| sum_{h>=t} of both, given (s_t, a_t) | `to_go` | [1 + C, S, A] |
| rho_{pi_{k-1},t} | `state` | [S] |
| lambda_{t,i} | `multipliers` | [K, H, C] |

Deviations, where the printed algorithm leaves something open:

- The expectation is under rho_{pi_k,h}, but pi_{k,1..t-1} does not exist yet when the
  pass is at t. Reading "propagated" (default): steps before t follow pi_{k-1}, steps
  from t on follow pi_k, and states are propagated exactly. By the policy difference
  lemma the problem at t is then max J s.t. J_Ci <= d_i over the one block pi_t of the
  policy (pi_{k-1,1..t-1}, pi_t, pi_{k,t+1..H}): block coordinate ascent. Reading
  "previous": rho_{pi_{k-1},h} at every h, as the practical Algorithm 2 samples it.
- If no pi_t keeps the limits (an infeasible start), pi_t minimises the total excess
  and, among those minimisers, maximises the objective.
- Where rho_t(s) = 0 any pi_t(.|s) is a solution; we take the best action for
  A - lambda_t . A_C, so that without constraints one pass is backward induction.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
from scipy import sparse
from scipy.optimize import linprog

from ecop.exact.cmdp import TabularCMDP
from ecop.exact.values import (
    checked_policy,
    evaluate_exact,
    occupancy_of,
    uniform_policy,
    value_functions,
)

Reading = Literal["propagated", "previous"]
MASS = 1e-12


class History(NamedTuple):
    """What Algorithm 1 did; row 0 of values and costs is the initial policy."""

    values: np.ndarray  # [K + 1]
    costs: np.ndarray  # [K + 1, C]
    multipliers: np.ndarray  # [K, H, C] of the problem at each t
    policy: np.ndarray  # [H, S, A] the last one


class Step(NamedTuple):
    """Solution of the problem at one t."""

    policy: np.ndarray  # [S, A]
    multipliers: np.ndarray  # [C]


def ipoce(
    cmdp: TabularCMDP,
    *,
    iterations: int,
    initial: np.ndarray | None = None,
    reading: Reading = "propagated",
) -> History:
    """Run Algorithm 1 from a policy [H, S, A] (uniform by default)."""
    policy = uniform_policy(cmdp) if initial is None else checked_policy(cmdp, initial)
    results = [evaluate_exact(cmdp, policy)]
    multipliers = []
    for _ in range(iterations):
        policy, used = backward_pass(cmdp, policy, reading=reading)
        results.append(evaluate_exact(cmdp, policy))
        multipliers.append(used)
    values, costs = zip(*results, strict=True)
    shape = (iterations, cmdp.horizon, len(cmdp.costs))
    return History(
        np.array(values), np.array(costs), np.reshape(multipliers, shape), policy
    )


def backward_pass(
    cmdp: TabularCMDP, previous: np.ndarray, *, reading: Reading = "propagated"
) -> tuple[np.ndarray, np.ndarray]:
    """Return pi_k [H, S, A] and the multipliers [H, C] used, from pi_{k-1}."""
    reward, costs = value_functions(cmdp, previous)
    advantage = np.concatenate([reward.advantage[None], costs.advantage])
    cost_return = costs.value[:, 0] @ cmdp.initial
    slack = np.asarray(cmdp.limits) - cost_return
    states = occupancy_of(cmdp, previous).sum(axis=-1)
    policy = np.array(previous)
    multipliers = np.zeros((cmdp.horizon, len(cmdp.costs)))
    after = np.zeros((cmdp.states, len(advantage)))  # sum_{h>t} given s_{t+1}
    spent = np.zeros(len(cmdp.costs))  # the same as a number, reading "previous"
    for t in reversed(range(cmdp.horizon)):
        to_go = advantage[:, t]
        if reading == "propagated":
            to_go = to_go + np.moveaxis(cmdp.expected_next(t, after), -1, 0)
        policy[t], multipliers[t] = solve_step(states[t], to_go, slack - spent)
        after = (to_go * policy[t]).sum(axis=-1).T
        if reading == "previous":
            spent += states[t] @ after[:, 1:]
    return policy, multipliers


def solve_step(state: np.ndarray, to_go: np.ndarray, slack: np.ndarray) -> Step:
    """Solve the problem at one t.

    state: distribution [S]; to_go: gain and cost changes [1 + C, S, A]; slack: [C].
    """
    visited = state > MASS
    enforced = np.isfinite(slack)
    gain = to_go[0, visited]
    change = to_go[1:][enforced][:, visited]
    shares, used = _mix(state[visited], gain, change, slack[enforced])
    multipliers = np.zeros(len(slack))
    multipliers[enforced] = used
    score = to_go[0] - np.tensordot(multipliers, to_go[1:], axes=1)
    policy = np.eye(score.shape[-1])[score.argmax(axis=-1)]
    policy[visited] = shares
    return Step(policy, multipliers)


def _mix(
    mass: np.ndarray, gain: np.ndarray, change: np.ndarray, slack: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return pi [S, A] and multipliers [m]: max <q, gain>, <q, change_i> <= slack_i."""
    rows = sparse.kron(sparse.eye_array(len(mass)), np.ones((1, gain.shape[-1])), "csr")
    m = len(slack)
    # Weighted by the mass, so that rare states are solved as exactly as others.
    change = (change * mass[:, None]).reshape(m, gain.size)
    objective = -(gain * mass[:, None]).reshape(-1)
    options = {
        "primal_feasibility_tolerance": 1e-9,
        "dual_feasibility_tolerance": 1e-9,
    }
    fixed = {"A_eq": rows, "b_eq": np.ones(len(mass)), "method": "highs"}
    result = linprog(objective, change, slack, options=options, **fixed)
    if result.status == 2:
        elastic = linprog(
            np.concatenate([np.zeros(gain.size), np.ones(m)]),
            np.hstack([change, -np.eye(m)]),
            slack,
            np.hstack([rows.toarray(), np.zeros((len(mass), m))]),
            np.ones(len(mass)),
            method="highs",
            options=options,
        )
        raised = np.maximum(slack, change @ elastic.x[: gain.size]) + 1e-8
        result = linprog(objective, change, raised, options=options, **fixed)
    if result.status != 0:
        raise RuntimeError(f"HiGHS stopped without an optimum: {result.message}")
    policy = np.maximum(result.x.reshape(gain.shape), 0.0)
    policy /= policy.sum(axis=-1, keepdims=True)
    return policy, np.maximum(-result.ineqlin.marginals, 0.0)
