"""What a policy's vectors stand for: an environment's observations and actions.

As data, so that a policy can leave the machine it was trained on. No JAX, no Gymnasium.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, NamedTuple, TypedDict

import numpy as np

from ecop.errors import UserError
from ecop.files import LARGEST, Count, Name, Within
from ecop.simulators.spaces import ActionForm, Chosen, Combined, Scaled
from ecop.types import Action, Discrete, MultiDiscrete

Whole = Annotated[int, Within(-LARGEST, LARGEST)]


class Leaf(TypedDict):
    """An array of numbers inside an observation; one-hot if it has `sizes`."""

    path: list[Name | Count]  # keys that lead to it; none if it is the observation
    shape: list[Count]
    sizes: list[Count] | None  # values that each entry can have
    start: list[Whole]  # the smallest of each


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
