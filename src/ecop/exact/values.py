"""Exact values of policies by forward and backward sweeps: no sampling anywhere.

A policy is an array [H, S, A]; a stationary one may be given as [S, A].
V_h, Q_h and A_h are the paper's value, action-value and advantage functions, with
value zero after the last step.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ecop.errors import UserError
from ecop.exact.cmdp import SUM_TOLERANCE, TabularCMDP


class Values(NamedTuple):
    """Value functions of one policy; those of the costs lead with the axis C."""

    value: np.ndarray  # [..., H, S]
    action_value: np.ndarray  # [..., H, S, A]

    @property
    def advantage(self) -> np.ndarray:
        """A_h(s,a) = Q_h(s,a) - V_h(s), shape [..., H, S, A]."""
        return self.action_value - self.value[..., None]


class Unconstrained(NamedTuple):
    """The optimum when all limits are ignored."""

    value: float
    costs: np.ndarray  # [C] of `policy`
    policy: np.ndarray  # [H, S, A], deterministic


def checked_policy(cmdp: TabularCMDP, policy: np.ndarray) -> np.ndarray:
    """Return the policy as float64 [H, S, A]; refuse what is not a policy."""
    policy = np.asarray(policy, np.float64)
    shape = cmdp.reward.shape
    if policy.shape not in (shape, shape[1:]):
        raise UserError(
            f"The policy must have shape {list(shape)} or, if stationary, "
            f"{list(shape[1:])}, not {list(policy.shape)}."
        )
    total = policy.sum(axis=-1)
    # `not (a <= b)` also catches NaN.
    if (policy < 0).any() or not (np.abs(total - 1) <= 1e3 * SUM_TOLERANCE).all():
        raise UserError(
            "The policy must hold probabilities that sum to 1 over the actions."
        )
    return np.broadcast_to(policy, shape)


def uniform_policy(cmdp: TabularCMDP) -> np.ndarray:
    """Return the policy [H, S, A] that picks all actions alike."""
    return np.full(cmdp.reward.shape, 1 / cmdp.actions)


def occupancy_of(cmdp: TabularCMDP, policy: np.ndarray) -> np.ndarray:
    """Return q_h(s,a) [H, S, A]: how likely the policy is in s and picks a at h."""
    policy = checked_policy(cmdp, policy)
    occupancy = np.empty(policy.shape)
    state = cmdp.initial
    for h in range(cmdp.horizon):
        occupancy[h] = state[:, None] * policy[h]
        state = cmdp.push_forward(h, occupancy[h])
    return occupancy


def evaluate_exact(cmdp: TabularCMDP, policy: np.ndarray) -> tuple[float, np.ndarray]:
    """Return J and J_C [C] of a policy [H, S, A]."""
    return totals(cmdp, occupancy_of(cmdp, policy))


def totals(cmdp: TabularCMDP, occupancy: np.ndarray) -> tuple[float, np.ndarray]:
    """Return the reward and the costs [C] that an occupancy [H, S, A] collects."""
    costs = np.einsum("chsa,hsa->c", cmdp.costs, occupancy)
    return float(np.vdot(cmdp.reward, occupancy)), costs


def value_functions(cmdp: TabularCMDP, policy: np.ndarray) -> tuple[Values, Values]:
    """Return the value functions of a policy: reward's, and costs' (leading axis C)."""
    policy = checked_policy(cmdp, policy)
    signals = np.concatenate([cmdp.reward[None], cmdp.costs])
    action_value = np.empty(signals.shape)
    value = np.empty(signals.shape[:-1])
    after = np.zeros((cmdp.states, len(signals)))
    for h in reversed(range(cmdp.horizon)):
        action_value[:, h] = signals[:, h] + np.moveaxis(
            cmdp.expected_next(h, after), -1, 0
        )
        value[:, h] = (action_value[:, h] * policy[h]).sum(axis=-1)
        after = value[:, h].T
    return Values(value[0], action_value[0]), Values(value[1:], action_value[1:])


def best_response(
    cmdp: TabularCMDP, signal: np.ndarray
) -> tuple[float, np.ndarray, np.ndarray]:
    """Maximise the sum of `signal` [H, S, A], whatever it is, by dynamic programming.

    Returns the optimal total, the best actions [H, S] and the action values [H, S, A].
    """
    action_value = np.empty(signal.shape)
    after = np.zeros(cmdp.states)
    for h in reversed(range(cmdp.horizon)):
        action_value[h] = signal[h] + cmdp.expected_next(h, after)
        after = action_value[h].max(axis=-1)
    return float(cmdp.initial @ after), action_value.argmax(axis=-1), action_value


def deterministic(actions: np.ndarray, count: int) -> np.ndarray:
    """Return actions [H, S] as a policy [H, S, A] with A = `count`."""
    return np.eye(count)[actions]


def lagrangian_signal(cmdp: TabularCMDP, multipliers: np.ndarray) -> np.ndarray:
    """Return r - sum_i lambda_i c_i, shape [H, S, A], for multipliers [C]."""
    return cmdp.reward - np.tensordot(multipliers, cmdp.costs, axes=1)


def backward_induction(cmdp: TabularCMDP) -> Unconstrained:
    """Solve the CMDP as if it had no limits."""
    value, actions, _ = best_response(cmdp, cmdp.reward)
    policy = deterministic(actions, cmdp.actions)
    return Unconstrained(value, evaluate_exact(cmdp, policy)[1], policy)
