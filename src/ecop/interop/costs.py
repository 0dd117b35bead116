"""Where a Gymnasium environment's costs are: one explicit adapter for each convention.

An adapter turns one `Reading` into (reward, costs [C]). None of them invents a zero:
a cost that is not where it should be is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from ecop.errors import UserError

WAYS = (
    'costs="costs" (an array), costs="cost" (one number), '
    'costs=["cost_a", ...] (named keys), costs="tuple" (6-tuple step), '
    "costs=VectorReward(...), or costs=a function (obs, action, next_obs, info, t)"
)


class Reading(NamedTuple):
    """All that a step of a Gymnasium environment gave."""

    observation: Any  # before the step
    action: Any  # as the environment got it
    next_observation: Any
    reward: Any
    cost: Any  # third entry of a 6-tuple, otherwise None
    info: dict[str, Any]
    t: int


class Costs(Protocol):
    """An adapter."""

    @property
    def names(self) -> tuple[str, ...]:
        """One name per cost."""
        ...

    def read(self, reading: Reading) -> tuple[float, np.ndarray]:
        """Reward and costs [C] of a step."""
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

    def read(self, reading: Reading) -> tuple[float, np.ndarray]:
        """Take the array."""
        if "costs" not in reading.info:
            raise missing("costs", reading.info)
        return float(reading.reward), vector(reading.info["costs"], len(self.names))


@dataclass(frozen=True)
class NamedCosts:
    """`info["cost_a"]`, ...: one number per key.

    absent_is_zero: for environments that leave a key out when it is zero
    """

    names: tuple[str, ...]
    absent_is_zero: bool = False

    def read(self, reading: Reading) -> tuple[float, np.ndarray]:
        """Take each key."""
        info = reading.info
        for name in self.names:
            if name not in info and not self.absent_is_zero:
                raise UserError(
                    f"{missing(name, info)} If the environment leaves it out when it "
                    "is zero: costs=NamedCosts((...), absent_is_zero=True)."
                )
        values = [info.get(name, 0.0) for name in self.names]
        return float(reading.reward), vector(values, len(self.names))


@dataclass(frozen=True)
class ScalarCost:
    """`info["cost"]`: one number."""

    names: tuple[str, ...] = ("cost",)

    def read(self, reading: Reading) -> tuple[float, np.ndarray]:
        """Take the number."""
        if "cost" not in reading.info:
            raise missing("cost", reading.info)
        return float(reading.reward), vector(reading.info["cost"], 1)


@dataclass(frozen=True)
class TupleCost:
    """Safety-Gymnasium's step: (obs, reward, cost, terminated, truncated, info)."""

    names: tuple[str, ...] = ("cost",)

    def read(self, reading: Reading) -> tuple[float, np.ndarray]:
        """Take the third entry."""
        if reading.cost is None:
            raise UserError(
                "The environment's step returns 5 values, not the 6 with a cost; say "
                f"where the cost is: {WAYS}."
            )
        return float(reading.reward), vector(reading.cost, len(self.names))


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

    def read(self, reading: Reading) -> tuple[float, np.ndarray]:
        """Split the vector."""
        entries = np.atleast_1d(np.asarray(reading.reward, np.float64))
        places = [self.reward, *self.costs.values()]
        if entries.ndim != 1 or not all(0 <= i < len(entries) for i in places):
            raise UserError(
                f"VectorReward asks for entries {places}, but the environment's "
                f"reward has the shape {np.shape(reading.reward)}."
            )
        return float(entries[self.reward]), self.sign * entries[places[1:]]


@dataclass(frozen=True)
class CostFunction:
    """A function of yours: (obs, action, next_obs, info, t) -> number or array."""

    function: Callable[[Any, Any, Any, dict[str, Any], int], Any]
    names: tuple[str, ...] = ("cost",)

    def read(self, reading: Reading) -> tuple[float, np.ndarray]:
        """Call it."""
        value = self.function(
            reading.observation,
            reading.action,
            reading.next_observation,
            reading.info,
            reading.t,
        )
        if value is None:
            raise UserError("The cost function returned None; return a number.")
        return float(reading.reward), vector(value, len(self.names))


def vector(value: Any, size: int) -> np.ndarray:
    """A number or an array as an array [C]; refuse another size."""
    array = np.atleast_1d(np.asarray(value, np.float64))
    if array.shape != (size,):
        raise UserError(
            f"A step gave costs of shape {array.shape} where {size} were expected; "
            "name them all, e.g. costs=CostFunction(f, names=('a', 'b'))."
        )
    return array


def detect(first: Reading, cost_names: Sequence[str] | None) -> Costs | None:
    """The adapter for what a step shows; None if there is no cost in it."""
    info = first.info
    if "costs" in info:
        count = np.size(info["costs"])
        return ArrayCosts(tuple(cost_names or (f"cost_{i}" for i in range(count))))
    if "cost" in info:
        return ScalarCost()
    if first.cost is not None:
        count = np.size(first.cost)
        single = ("cost",) if count == 1 else tuple(f"cost_{i}" for i in range(count))
        return TupleCost(single)
    named = tuple(key for key in info if key.startswith("cost_"))
    return NamedCosts(named) if named else None
