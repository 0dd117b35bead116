"""Mistakes in the input: one sentence each, which says what to do."""

from __future__ import annotations

import difflib
import numbers
import types
import typing
from typing import Any


class UserError(ValueError):
    """A mistake in the input; its message is one sentence that says what to do."""


class DiskError(RuntimeError):
    """A disk did not take what was written; what was there before is whole."""


class Diverged(RuntimeError):
    """A quantity became NaN or infinite; nothing was done with it."""


def require(options: Any, positive: str = "", not_negative: str = "") -> None:
    """Refuse options that are not of their declared types, or out of range.

    positive, not_negative: names of fields, separated by blanks
    """
    for name, hint in typing.get_type_hints(type(options)).items():
        value = getattr(options, name)
        if not fits(value, hint):
            raise UserError(f"{name} must be {described(hint)}, not {value!r}.")
    for name in positive.split():
        if not getattr(options, name) > 0:
            raise UserError(f"{name} must be positive, not {getattr(options, name)}.")
    for name in not_negative.split():
        if not getattr(options, name) >= 0:
            raise UserError(
                f"{name} must be zero or more, not {getattr(options, name)}."
            )


def fits(value: Any, hint: Any) -> bool:
    """Whether a value is of a type; a whole number is a number, a bool is neither."""
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Literal:
        return value in parts
    if origin in (typing.Union, types.UnionType):
        return any(fits(value, part) for part in parts)
    if origin is tuple:
        return isinstance(value, tuple) and all(fits(v, parts[0]) for v in value)
    if hint in (int, float):
        kind = numbers.Integral if hint is int else numbers.Real
        return isinstance(value, kind) and not isinstance(value, bool)
    return isinstance(value, hint)


def described(hint: Any) -> str:
    """A type in words."""
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Literal:
        return " or ".join(repr(part) for part in parts)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(described(part) for part in parts)
    if origin is tuple:
        return f"a tuple, each entry {described(parts[0])}"
    words = {int: "a whole number", float: "a number", bool: "True or False"}
    return words.get(hint, "None" if hint is types.NoneType else hint.__name__)


def unknown(kind: str, name: str, known: Any) -> str:
    """Say that `name` is not known, with the nearest name that is."""
    lower = {entry.lower(): entry for entry in known}
    near = difflib.get_close_matches(name.lower(), lower, n=1, cutoff=0.4)
    hint = f" Did you mean '{lower[near[0]]}'?" if near else ""
    more = "; gym:ID, module:function" if kind == "task" else ""
    return f"There is no {kind} '{name}'.{hint} Known: {', '.join(known)}{more}."
