"""Where a Gymnasium environment's costs are: one explicit adapter for each convention.

An adapter reads (reward, [cost, ...]) from what a step returned and from what it began
with. None of them invents a zero: a cost that is not where it should be is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from ecop.errors import UserError

WAYS = (
    'costs="costs" (an array), costs="cost" (one number), '
    'costs=["cost_a", ...] (named keys), costs="tuple" (6-tuple step), '
    "costs=VectorReward(...), or costs=a function (obs, action, next_obs, info, t)"
)


# What a step of an environment returned: (observation, reward, terminated, truncated,
# info), or with a cost in third place. The info is the last entry of either.
Taken = tuple[Any, ...]


class Costs(Protocol):
    """An adapter."""

    @property
    def names(self) -> tuple[str, ...]:
        """One name per cost."""
        ...

    def read(
        self, step: Taken, before: Any, action: Any, t: int
    ) -> tuple[float, list[float]]:
        """Reward and costs of step t, which was taken with this action from there."""
        ...


def missing(key: str, info: dict[str, Any]) -> UserError:
    """Say that a cost is not in `info`, and what is."""
    found = ", ".join(f"'{name}'" for name in info) or "nothing"
    return UserError(
        f"The environment's info has no '{key}' but {found}; say where the cost is: "
        f"{WAYS}."
    )


@dataclass(frozen=True)
class ArrayCosts:
    """`info["costs"]`: an array with one entry per name."""

    names: tuple[str, ...]

    def read(
        self, step: Taken, before: Any, action: Any, t: int
    ) -> tuple[float, list[float]]:
        """Take the array."""
        if "costs" not in step[-1]:
            raise missing("costs", step[-1])
        return float(step[1]), vector(step[-1]["costs"], len(self.names))


@dataclass(frozen=True)
class NamedCosts:
    """`info["cost_a"]`, ...: one number per key.

    absent_is_zero: for environments that leave a key out when it is zero
    """

    names: tuple[str, ...]
    absent_is_zero: bool = False

    def read(
        self, step: Taken, before: Any, action: Any, t: int
    ) -> tuple[float, list[float]]:
        """Take each key."""
        info = step[-1]
        for name in self.names:
            if name not in info and not self.absent_is_zero:
                raise UserError(
                    f"{missing(name, info)} If the environment leaves it out when it "
                    "is zero: costs=NamedCosts((...), absent_is_zero=True)."
                )
        values = [info.get(name, 0.0) for name in self.names]
        return float(step[1]), vector(values, len(self.names))


@dataclass(frozen=True)
class ScalarCost:
    """`info["cost"]`: one number."""

    names: tuple[str, ...] = ("cost",)

    def read(
        self, step: Taken, before: Any, action: Any, t: int
    ) -> tuple[float, list[float]]:
        """Take the number."""
        if "cost" not in step[-1]:
            raise missing("cost", step[-1])
        return float(step[1]), vector(step[-1]["cost"], 1)


@dataclass(frozen=True)
class TupleCost:
    """Safety-Gymnasium's step: (obs, reward, cost, terminated, truncated, info)."""

    names: tuple[str, ...] = ("cost",)

    def read(
        self, step: Taken, before: Any, action: Any, t: int
    ) -> tuple[float, list[float]]:
        """Take the third entry."""
        if len(step) == 5 or step[2] is None:
            raise UserError(
                "The environment's step returns 5 values, not the 6 with a cost; say "
                f"where the cost is: {WAYS}."
            )
        return float(step[1]), vector(step[2], len(self.names))


@dataclass(frozen=True)
class VectorReward:
    """MO-Gymnasium's vector reward: one entry is the reward, others are costs.

    reward: index of the entry to maximise
    costs: name -> index of an entry to keep low
    sign: of the costs; -1, the default, because such entries are penalties
    """

    reward: int
    costs: Mapping[str, int]
    sign: float = -1.0

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the costs."""
        return tuple(self.costs)

    def read(
        self, step: Taken, before: Any, action: Any, t: int
    ) -> tuple[float, list[float]]:
        """Split the vector."""
        entries = np.atleast_1d(np.asarray(step[1], np.float64))
        places = [self.reward, *self.costs.values()]
        if entries.ndim != 1 or not all(0 <= i < len(entries) for i in places):
            raise UserError(
                f"VectorReward asks for entries {places}, but the environment's "
                f"reward has the shape {np.shape(step[1])}."
            )
        return float(entries[self.reward]), (self.sign * entries[places[1:]]).tolist()


@dataclass(frozen=True)
class CostFunction:
    """A function of yours: (obs, action, next_obs, info, t) -> number or array."""

    function: Callable[[Any, Any, Any, dict[str, Any], int], Any]
    names: tuple[str, ...] = ("cost",)

    def read(
        self, step: Taken, before: Any, action: Any, t: int
    ) -> tuple[float, list[float]]:
        """Call it."""
        value = self.function(before, action, step[0], step[-1], t)
        if value is None:
            raise UserError("The cost function returned None; return a number.")
        return float(step[1]), vector(value, len(self.names))


def vector(value: Any, size: int) -> list[float]:
    """A number or an array as a list of numbers; refuse another size."""
    if size == 1 and isinstance(value, float):
        return [value]
    array = np.atleast_1d(np.asarray(value, np.float64))
    if array.shape != (size,):
        raise UserError(
            f"A step gave costs of shape {array.shape} where {size} were expected; "
            "name them all, e.g. costs=CostFunction(f, names=('a', 'b'))."
        )
    return array.tolist()


def detect(first: Taken, cost_names: Sequence[str] | None) -> Costs | None:
    """The adapter for what a step shows; None if there is no cost in it."""
    info = first[-1]
    if "costs" in info:
        count = np.size(info["costs"])
        return ArrayCosts(tuple(cost_names or (f"cost_{i}" for i in range(count))))
    if "cost" in info:
        return ScalarCost()
    if len(first) == 6 and first[2] is not None:
        count = np.size(first[2])
        single = ("cost",) if count == 1 else tuple(f"cost_{i}" for i in range(count))
        return TupleCost(single)
    named = tuple(key for key in info if key.startswith("cost_"))
    return NamedCosts(named) if named else None
