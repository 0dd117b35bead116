"""Where a Gymnasium environment's costs are: one explicit adapter for each convention.

An adapter reads (reward, [cost, ...]) from what a step returned and from what it began
with. None of them invents a zero: a cost that is not where it should be is an error.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ecop.errors import UserError
from ecop.simulators.wire import imported, reference

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    # What a step of an environment returned: (observation, reward, terminated,
    # truncated, info), or with a cost in third place. The info is the last of either.
    Taken = tuple[Any, ...]

WAYS = (
    'costs="costs" (an array), costs="cost" (one number), '
    'costs=["cost_a", ...] (named keys), costs="tuple" (6-tuple step), '
    'costs=["energy=-reward.1"] (entry 1 of a vector reward, times -1), '
    "or costs=a function (obs, action, next_obs, info, t)"
)
ENTRY = re.compile(r"(\w+)=([+-]?)reward\.(\d{1,6})")  # name, sign, index


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
    sign: of the costs, or of each; -1, the default, because such entries are penalties
    """

    reward: int
    costs: Mapping[str, int]
    sign: float | tuple[float, ...] = -1.0

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
        costs = np.multiply(self.sign, entries[places[1:]])
        return float(entries[self.reward]), costs.tolist()


@dataclass(frozen=True)
class CostFunction:
    """A function of yours: (obs, action, next_obs, info, t) -> number or array."""

    function: Callable[[Any, Any, Any, dict[str, Any], int], Any]
    names: tuple[str, ...] = ("cost",)

    def read(
        self, step: Taken, before: Any, action: Any, t: int
    ) -> tuple[float, list[float]]:
        """Call it."""
        try:
            value = self.function(before, action, step[0], step[-1], t)
        except UserError:
            raise
        except Exception as error:
            raise UserError(
                f"The cost function raised {type(error).__name__}: {error}; it is "
                "called with (obs, action, next_obs, info, t)."
            ) from error
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
            "name them all, e.g. costs=CostFunction(f, names=('a', 'b')), or write "
            "f.names = ('a', 'b') below your function f."
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


@dataclass(frozen=True)
class NoCosts:
    """An environment without costs, for an algorithm that needs none."""

    names: tuple[str, ...] = ()

    def read(
        self, step: Taken, before: Any, action: Any, t: int
    ) -> tuple[float, list[float]]:
        """Take the reward alone."""
        return float(step[1]), []


ADAPTERS = (
    ArrayCosts,
    NamedCosts,
    ScalarCost,
    TupleCost,
    VectorReward,
    CostFunction,
    NoCosts,
)


def as_costs(costs: Any) -> Costs | None:
    """The adapter a `costs` argument asks for; None if it is to be found out."""
    if costs is None or costs == "costs" or isinstance(costs, ADAPTERS):
        return None if isinstance(costs, str) else costs
    if isinstance(costs, (list, tuple)):
        if any(isinstance(key, str) and ENTRY.fullmatch(key) for key in costs):
            return entries(costs)
        return as_costs(costs[0]) if len(costs) == 1 else NamedCosts(tuple(costs))
    if isinstance(costs, str) and ENTRY.fullmatch(costs):
        return entries([costs])
    if isinstance(costs, str) and ":" in costs:
        costs = imported(costs)
    if callable(costs):
        name = getattr(costs, "__name__", "cost")
        names = getattr(costs, "names", ("cost" if name == "<lambda>" else name,))
        return CostFunction(costs, tuple(names))
    if not isinstance(costs, str):
        raise UserError(f"costs must not be {costs!r:.60}; say where it is: {WAYS}.")
    known = {"cost": ScalarCost(), "tuple": TupleCost()}
    return known.get(costs) or NamedCosts((costs,))


def entries(words: Sequence[str]) -> VectorReward:
    """Entries of a vector reward, such as "energy=-reward.1".

    What is maximised is entry 0, or what "reward=reward.2" names.
    """
    found: dict[str, tuple[float, int]] = {}
    for word in words:
        match = ENTRY.fullmatch(word)
        if match is None or match[1] in found:
            raise UserError(
                f"'{word}' is no entry of a vector reward, or named twice; write "
                "NAME=reward.INDEX, or NAME=-reward.INDEX for a penalty."
            )
        found[match[1]] = (-1.0 if match[2] == "-" else 1.0, int(match[3]))
    sign, reward = found.pop("reward", (1.0, 0))
    if sign < 0 or not found:
        raise UserError(
            "A vector reward needs one entry to maximise, reward=reward.INDEX (default "
            "0) and costs, NAME=-reward.INDEX."
        )
    signs = tuple(sign for sign, _ in found.values())
    return VectorReward(reward, {name: i for name, (_, i) in found.items()}, signs)


def plain_costs(costs: Any) -> Any:
    """The `costs` argument as JSON, where it can be; otherwise None."""
    if isinstance(costs, str):
        return costs
    if isinstance(costs, (list, tuple)):
        return list(costs)
    return None if isinstance(costs, ADAPTERS) else reference(costs)
