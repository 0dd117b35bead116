"""What a policy's vectors stand for: an environment's observations and actions.

As data, so that a policy can leave the machine it was trained on. No JAX, no Gymnasium.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Literal, NamedTuple, TypedDict

import numpy as np

from ecop.errors import UserError
from ecop.files import LARGEST, Count, Name, Within
from ecop.types import Action, Box, Discrete, MultiDiscrete

Whole = Annotated[int, Within(-LARGEST, LARGEST)]


class Leaf(TypedDict):
    """An array of numbers inside an observation; one-hot if it has `sizes`."""

    path: list[Name | Count]  # keys that lead to it; none if it is the observation
    shape: list[Count]
    sizes: list[Count] | None  # values that each entry can have
    start: list[Whole]  # the smallest of each


def vector(leaves: Sequence[Leaf], observation: Any) -> np.ndarray:
    """An observation as a vector [O] float32, its leaves one after the other."""
    parts = []
    for leaf in leaves:
        x = observation
        try:
            for key in leaf["path"]:
                x = x[key]
            x = np.asarray(x)
            if x.dtype.kind not in "fiub" or x.shape != tuple(leaf["shape"]):
                raise TypeError
            if leaf["sizes"] is not None:
                x = one_hot(x.reshape(-1), leaf["sizes"], leaf["start"])
        except (KeyError, IndexError, TypeError, ValueError):
            name = "".join(f"[{key!r}]" for key in leaf["path"])
            raise UserError(
                f"observation{name} must be numbers of shape {tuple(leaf['shape'])}"
                f"{' in their range' if leaf['sizes'] else ''}, not {x!r:.80}."
            ) from None
        parts.append(x.reshape(-1))
    return np.concatenate(parts).astype(np.float32)


def one_hot(x: np.ndarray, sizes: Sequence[int], start: Sequence[int]) -> np.ndarray:
    """For each entry, as many zeros as it has values, and a one."""
    rows = [np.zeros(size, np.float32) for size in sizes]
    for row, value, first in zip(rows, x.tolist(), start, strict=True):
        if not 0 <= value - first < len(row):
            raise ValueError
        row[int(value - first)] = 1.0
    return np.concatenate(rows)


@dataclass(frozen=True)
class Scaled:
    """Actions of [-1, 1], clipped and scaled to the bounds of a Box."""

    low: np.ndarray
    high: np.ndarray

    @property
    def space(self) -> Box:
        """The library's action space."""
        return Box(self.low.size)

    @cached_property
    def _line(self) -> tuple[np.ndarray, np.ndarray]:
        low = self.low.astype(np.float64)
        return low, (self.high.astype(np.float64) - low) / 2.0

    def __call__(self, actions: np.ndarray) -> Any:
        """Actions [B, A] as the environment wants them."""
        low, half = self._line
        unit = np.minimum(np.maximum(actions.astype(np.float64), -1.0), 1.0)
        value = low + (unit.reshape(-1, *self.low.shape) + 1.0) * half
        whole = np.issubdtype(self.low.dtype, np.integer)
        value = (np.rint(value) if whole else value).astype(self.low.dtype)
        return np.minimum(np.maximum(value, self.low), self.high)


@dataclass(frozen=True)
class Chosen:
    """A choice among n actions start, start + 1, ...: a Discrete."""

    n: int
    start: int

    @property
    def space(self) -> Discrete:
        """The library's action space."""
        return Discrete(self.n)

    def __call__(self, actions: np.ndarray) -> Any:
        """Actions [B] as the environment wants them."""
        return (actions + self.start).tolist()


@dataclass(frozen=True)
class Combined:
    """Several choices at once: a MultiDiscrete or a MultiBinary."""

    sizes: np.ndarray
    start: np.ndarray  # of the space's type

    @property
    def space(self) -> MultiDiscrete:
        """The library's action space."""
        return MultiDiscrete(tuple(self.sizes.reshape(-1).tolist()))

    def __call__(self, actions: np.ndarray) -> Any:
        """Actions [B, D] as the environment wants them."""
        rows = actions.reshape(-1, *self.sizes.shape).astype(self.start.dtype)
        return rows + self.start


ActionForm = Scaled | Chosen | Combined


class Bounds(TypedDict):
    """`Scaled` as JSON."""

    type: Literal[
        "float16",
        "float32",
        "float64",
        "int8",
        "int16",
        "int32",
        "int64",
        "uint8",
        "uint16",
        "uint32",
        "uint64",
    ]
    shape: list[Count]
    low: list[float]
    high: list[float]


class Choice(TypedDict):
    """`Chosen` as JSON."""

    count: Annotated[int, Within(1, LARGEST)]
    start: Whole


class Product(TypedDict):
    """`Combined` as JSON."""

    type: Literal[
        "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"
    ]
    shape: list[Count]
    sizes: list[Annotated[int, Within(1, 2**31)]]
    starts: list[Whole]


ActionDocument = Bounds | Choice | Product


def to_json(form: ActionForm) -> Any:
    """An action form as an `ActionDocument`."""
    if isinstance(form, Chosen):
        return {"count": form.n, "start": form.start}
    if isinstance(form, Scaled):
        kind, parts = form.low, {"low": form.low, "high": form.high}
    else:
        kind, parts = form.start, {"sizes": form.sizes, "starts": form.start}
    lists = {name: part.reshape(-1).tolist() for name, part in parts.items()}
    return {"type": kind.dtype.name, "shape": list(kind.shape), **lists}


def from_json(document: Any) -> ActionForm:
    """The action form of an `ActionDocument`."""
    if "count" in document:
        return Chosen(document["count"], document["start"])
    kind, shape = document["type"], document["shape"]
    names = ("low", "high") if "low" in document else ("sizes", "starts")
    first, second = (document[name] for name in names)
    try:
        if "low" in document:
            low, high = (np.array(x, kind).reshape(shape) for x in (first, second))
            return Scaled(low, high)
        sizes, starts = np.array(first, np.int64), np.array(second, kind)
        return Combined(sizes.reshape(shape), starts.reshape(shape))
    except (ValueError, OverflowError):
        raise UserError("its action does not fit its own shape and type") from None


class Forms(NamedTuple):
    """Both sides of an environment; no leaves: observations are vectors already."""

    leaves: list[Leaf] | None
    action: ActionForm


def plain(size: int, action: Action) -> Forms:
    """Of a task of the library: vectors, [-1, 1], 0 .. n - 1."""
    leaf = Leaf(path=[], shape=[size], sizes=None, start=[])
    if isinstance(action, MultiDiscrete):
        sizes = np.array(action.sizes, np.int64)
        return Forms([leaf], Combined(sizes, np.zeros_like(sizes)))
    if isinstance(action, Discrete):
        return Forms([leaf], Chosen(action.n, 0))
    one = np.ones(action.size, np.float32)
    return Forms([leaf], Scaled(-one, one))
