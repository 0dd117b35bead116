r"""Finite-horizon constrained MDPs as tables, in float64 and sparse where it pays.

In this package S counts states and A actions; H steps and C costs as everywhere.
States, actions and steps are numbered from 0, so h runs over 0 .. H-1.

| symbol | field | shape |
|---|---|---|
| P_h(s'\|s,a) | `transition` | 1 or H sparse matrices [S*A, S], row s*A + a |
| r_h(s,a) | `reward` | [H, S, A] |
| c_{i,h}(s,a) | `costs` | [C, H, S, A] |
| mu(s) | `initial` | [S] |
| d_i | `limits` | C numbers, infinite where the constraint is off |

A reward r(s,a,s') of the paper enters as its mean over s', which leaves J unchanged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import sparse

from ecop.errors import UserError
from ecop.types import Constraint, Discrete, Spec

SUM_TOLERANCE = 1e-9


@dataclass(frozen=True, eq=False, kw_only=True)
class TabularCMDP:
    """A tabular CMDP in canonical form; `tabular_cmdp` builds it from plain arrays.

    name: shown in tables and messages.
    transition: one matrix [S*A, S] if stationary, else one per step.
    reward: mean reward [H, S, A].
    costs: mean costs [C, H, S, A].
    initial: distribution of the first state [S].
    limits: one per cost; infinite switches the constraint off.
    cost_names: one per cost.
    """

    name: str
    transition: tuple[sparse.csr_array, ...]
    reward: np.ndarray
    costs: np.ndarray
    initial: np.ndarray
    limits: tuple[float, ...]
    cost_names: tuple[str, ...]

    def __post_init__(self) -> None:
        _check_tables(self)
        _check_transition(self)
        _check_initial(self.initial)
        if len(self.cost_names) != len(self.costs):
            raise UserError(
                f"There are {len(self.costs)} cost(s) but {len(self.cost_names)} "
                "cost name(s); give one name per cost."
            )
        free = Constraint("", np.inf)
        names = tuple(replace(free, name=name) for name in self.cost_names)
        Spec(1, Discrete(1), 1, names).with_limits(self.limits)

    @property
    def horizon(self) -> int:
        """Number of steps H."""
        return self.reward.shape[0]

    @property
    def states(self) -> int:
        """Number of states S."""
        return self.reward.shape[1]

    @property
    def actions(self) -> int:
        """Number of actions A."""
        return self.reward.shape[2]

    @property
    def spec(self) -> Spec:
        """What an algorithm must know when the CMDP runs as a task."""
        rows = zip(self.cost_names, self.limits, self.bounds, strict=True)
        constraints = tuple(Constraint(*row) for row in rows)
        return Spec(self.states, Discrete(self.actions), self.horizon, constraints)

    @property
    def bounds(self) -> tuple[float, ...]:
        """The most that an episode can cost; infinite for costs below 0."""
        largest = self.costs.max(axis=(2, 3)).sum(axis=1).tolist()
        return tuple(
            most if (cost >= 0).all() else np.inf
            for most, cost in zip(largest, self.costs, strict=True)
        )

    @property
    def enforced(self) -> tuple[int, ...]:
        """Indices of the costs with a finite limit."""
        return self.spec.enforced

    def transition_at(self, h: int) -> sparse.csr_array:
        """Return P_h as a sparse matrix [S*A, S]."""
        return self.transition[h if len(self.transition) > 1 else 0]

    def expected_next(self, h: int, values: np.ndarray) -> np.ndarray:
        """Return sum_s' P_h(s'|s,a) values[s', ...] as [S, A, ...]."""
        shape = (self.states, self.actions, *values.shape[1:])
        return (self.transition_at(h) @ values).reshape(shape)

    def push_forward(self, h: int, occupancy: np.ndarray) -> np.ndarray:
        """Return the distribution [S] after step h from the occupancy [S, A]."""
        return self.transition_at(h).T @ occupancy.reshape(-1)

    def with_limits(self, *limits: float) -> TabularCMDP:
        """Return this CMDP with other limits, one per cost."""
        return replace(self, limits=tuple(float(limit) for limit in limits))


def tabular_cmdp(
    name: str,
    *,
    transition: Any,
    reward: Any,
    costs: Any = None,
    initial: Any = 0,
    limits: Sequence[float] = (),
    cost_names: Sequence[str] | None = None,
    horizon: int,
) -> TabularCMDP:
    """Build a `TabularCMDP` from arrays; what is given once holds at every step.

    transition: dense [S, A, S] or [H, S, A, S], or sparse [S*A, S], or H of those.
    reward: [S, A] or [H, S, A].
    costs: [C, S, A] or [C, H, S, A]; None means no costs.
    initial: a state, or a distribution [S].
    limits: one per cost.
    """
    if horizon != int(horizon) or horizon < 1:
        raise UserError(f"The horizon must be an integer of at least 1, not {horizon}.")
    reward = _table("reward", reward)
    if reward.ndim not in (2, 3):
        raise UserError(
            f"The reward must have shape [S, A] or [H, S, A], not {reward.shape}."
        )
    states, actions = reward.shape[-2:]
    if costs is None:
        costs = np.zeros((0, states, actions))
    costs = _table("cost", costs)
    if costs.ndim not in (3, 4):
        raise UserError(
            f"The costs must have shape [C, S, A] or [C, H, S, A], not {costs.shape}."
        )
    if costs.ndim == 3:
        costs = costs[:, None]
    if cost_names is None:
        cost_names = tuple(f"cost_{i}" for i in range(len(costs)))
    return TabularCMDP(
        name=name,
        transition=_matrices(transition, states, actions, horizon),
        reward=_over_time("reward", reward.reshape(-1, states, actions), horizon),
        costs=_over_time("costs", costs, horizon),
        initial=_distribution(initial, states),
        limits=tuple(float(limit) for limit in limits),
        cost_names=tuple(cost_names),
    )


def _table(what: str, values: Any) -> np.ndarray:
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise UserError(f"The {what} table is not a plain array of numbers.") from error


def _over_time(what: str, values: np.ndarray, horizon: int) -> np.ndarray:
    """Broadcast the axis of steps (third from the end) to the horizon, as a view."""
    steps = values.shape[-3]
    if steps not in (1, horizon):
        raise UserError(
            f"The {what} table has {steps} steps but the horizon is {horizon}."
        )
    return np.broadcast_to(
        values, (*values.shape[:-3], horizon, *values.shape[-2:])
    ).view()


def _matrices(
    transition: Any, states: int, actions: int, horizon: int
) -> tuple[sparse.csr_array, ...]:
    if sparse.issparse(transition):
        return (_csr(transition),)
    if isinstance(transition, list | tuple) and any(map(sparse.issparse, transition)):
        matrices = tuple(_csr(matrix) for matrix in transition)
    else:
        dense = _table("transition", transition)
        wanted = (states, actions, states)
        if dense.ndim not in (3, 4) or dense.shape[-3:] != wanted:
            raise UserError(
                f"The transition must have shape {list(wanted)} (states, actions, "
                f"next states), once or per step, not {list(dense.shape)}."
            )
        rows = dense.reshape(-1, states * actions, states)
        matrices = tuple(_csr(matrix) for matrix in rows)
    if len(matrices) not in (1, horizon):
        raise UserError(
            f"The transition has {len(matrices)} steps but the horizon is {horizon}."
        )
    return matrices


def _csr(matrix: Any) -> sparse.csr_array:
    return sparse.csr_array(matrix, dtype=np.float64)


def _distribution(initial: Any, states: int) -> np.ndarray:
    initial = np.asarray(initial)
    if initial.ndim:
        return _table("initial", initial)
    if not (np.issubdtype(initial.dtype, np.integer) and 0 <= initial < states):
        raise UserError(
            f"The first state must be an integer from 0 to {states - 1}, not {initial}."
        )
    return np.eye(states)[int(initial)]


def _check_tables(cmdp: TabularCMDP) -> None:
    if cmdp.reward.ndim != 3 or 0 in cmdp.reward.shape:
        raise UserError(
            "The reward must have shape [H, S, A] with at least one step, state and "
            f"action, not {list(cmdp.reward.shape)}."
        )
    if cmdp.costs.ndim != 4 or cmdp.costs.shape[1:] != cmdp.reward.shape:
        raise UserError(
            f"The costs must have shape [C, *{list(cmdp.reward.shape)}] like the "
            f"reward, not {list(cmdp.costs.shape)}."
        )
    if cmdp.initial.shape != (cmdp.states,):
        raise UserError(
            f"The initial distribution must have shape [{cmdp.states}], not "
            f"{list(cmdp.initial.shape)}."
        )
    for what, values in (("reward", cmdp.reward), ("costs", cmdp.costs)):
        if not np.isfinite(values).all():
            raise UserError(f"The {what} table holds NaN or infinite entries.")


def _check_transition(cmdp: TabularCMDP) -> None:
    if len(cmdp.transition) not in (1, cmdp.horizon):
        raise UserError(
            f"The transition has {len(cmdp.transition)} steps but the horizon is "
            f"{cmdp.horizon}."
        )
    shape = (cmdp.states * cmdp.actions, cmdp.states)
    for h, matrix in enumerate(cmdp.transition):
        if matrix.shape != shape:
            raise UserError(
                f"The transition at step {h} must have shape {list(shape)} "
                f"(states x actions, next states), not {matrix.shape}."
            )
        if not np.isfinite(matrix.data).all():
            raise UserError(f"The transition at step {h} holds NaN or infinite.")
        if (matrix.data < 0).any():
            row = np.repeat(np.arange(shape[0]), np.diff(matrix.indptr))
            state, action = divmod(int(row[matrix.data < 0][0]), cmdp.actions)
            raise UserError(
                f"A transition probability is negative at step {h}, state {state}, "
                f"action {action}."
            )
        total = np.asarray(matrix.sum(axis=1)).reshape(-1)
        wrong = np.flatnonzero(np.abs(total - 1) > SUM_TOLERANCE)
        if wrong.size:
            state, action = divmod(int(wrong[0]), cmdp.actions)
            raise UserError(
                f"The transition probabilities at step {h}, state {state}, action "
                f"{action} sum to {total[wrong[0]]:.6g}, not 1."
            )


def _check_initial(initial: np.ndarray) -> None:
    if not np.isfinite(initial).all():
        raise UserError("The initial distribution holds NaN or infinite entries.")
    if (initial < 0).any():
        raise UserError("The initial distribution holds a negative probability.")
    if abs(initial.sum() - 1) > SUM_TOLERANCE:
        raise UserError(f"The initial distribution sums to {initial.sum():.6g}, not 1.")
