"""What crosses between processes: JSON and raw arrays, never pickles.

A function or class goes as "module:attribute" and is imported at the other end, so
nothing that was not written in a module can travel. Imports no JAX, and runs on the
Python of any worker.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import json
import math
import os
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ecop.errors import UserError


def pack(head: dict[str, Any], arrays: Sequence[np.ndarray]) -> bytes:
    """One message: a line of JSON, then the arrays' bytes."""
    forms = [(array.dtype.str, array.shape) for array in arrays]
    line = json.dumps({**head, "arrays": forms}).encode() + b"\n"
    return line + b"".join(array.tobytes() for array in arrays)


def unpack(message: bytes) -> tuple[dict[str, Any], list[np.ndarray]]:
    """Undo `pack`."""
    line, _, data = message.partition(b"\n")
    head, arrays, start = json.loads(line), [], 0
    for form, shape in head.pop("arrays"):
        count = math.prod(shape)
        flat = np.frombuffer(data, form, count, start) if count else np.empty(0, form)
        arrays.append(flat.reshape(shape).copy())
        start += flat.nbytes
    return head, arrays


def imported(name: str) -> Any:
    """What "module:attribute" names; the current folder is searched too."""
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    module, _, path = name.partition(":")
    try:
        found: Any = importlib.import_module(module)
        for part in path.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError, ValueError) as error:
        raise UserError(
            f"'{name}' cannot be imported ({error}); write gym:ID for a Gymnasium id, "
            "or module:function."
        ) from None
    return found


def reference(function: Any) -> str | None:
    """The "module:attribute" of a function that another process can import."""
    module = getattr(function, "__module__", None)
    path = getattr(function, "__qualname__", "")
    if module in (None, "__main__"):
        return None
    found: Any = sys.modules.get(module)
    for part in path.split("."):
        found = getattr(found, part, None)
    return f"{module}:{path}" if found == function else None


class Encoded(NamedTuple):
    """What `encode` gave already, in another process, or {"name": ...} by hand.

    This process need not be able to import it.
    """

    value: Any


def encode(x: Any) -> Any:
    """Plain values, named functions, records of them and partial calls, as JSON."""
    if x is None or isinstance(x, (bool, int, float, str)):
        return x
    if isinstance(x, Encoded):
        return x.value
    if isinstance(x, list):
        return [encode(value) for value in x]
    if isinstance(x, dict) and all(isinstance(key, str) for key in x):
        return {"dict": {key: encode(value) for key, value in x.items()}}
    if type(x) is tuple:
        return {"tuple": [encode(value) for value in x]}
    if isinstance(x, functools.partial):
        return {**_call(x.func, list(x.args), x.keywords), "partial": True}
    if isinstance(x, tuple):  # with named fields
        return _call(type(x), [], x._asdict())  # pyright: ignore
    if isinstance(x, np.ndarray):
        return _call(np.array, [x.tolist()], {"dtype": x.dtype.str})
    if dataclasses.is_dataclass(x) and not isinstance(x, type):
        fields = {f.name: getattr(x, f.name) for f in dataclasses.fields(x)}
        return _call(type(x), [], fields)
    name = reference(x)
    if name is None:
        raise UserError(
            f"{x!r} cannot be sent to worker processes, which import by name; define "
            "it in a module of its own (not in the script that is run, and not as a "
            "lambda), or use workers=0."
        )
    return {"name": name}


def _call(function: Any, args: list[Any], keywords: dict[str, Any]) -> dict[str, Any]:
    return {
        "call": encode(function),
        "args": encode(args),
        "keywords": {key: encode(value) for key, value in keywords.items()},
    }


def decode(x: Any) -> Any:
    """Undo `encode`."""
    if isinstance(x, list):
        return [decode(value) for value in x]
    if not isinstance(x, dict):
        return x
    if "dict" in x:
        return {key: decode(value) for key, value in x["dict"].items()}
    if "tuple" in x:
        return tuple(decode(x["tuple"]))
    if "name" in x:
        return imported(x["name"])
    function, args = decode(x["call"]), decode(x["args"])
    keywords = {key: decode(value) for key, value in x["keywords"].items()}
    if x.get("partial"):
        return functools.partial(function, *args, **keywords)
    return function(*args, **keywords)
