"""Mistakes in the input: one sentence each, which says what to do."""

from __future__ import annotations

import difflib
from typing import Any


class UserError(ValueError):
    """A mistake in the input; its message is one sentence that says what to do."""


def require(options: Any, positive: str = "", not_negative: str = "") -> None:
    """Refuse options whose named fields (separated by blanks) are out of range."""
    for name in positive.split():
        if not getattr(options, name) > 0:
            raise UserError(f"{name} must be positive, not {getattr(options, name)}.")
    for name in not_negative.split():
        if not getattr(options, name) >= 0:
            raise UserError(
                f"{name} must be zero or more, not {getattr(options, name)}."
            )


def unknown(kind: str, name: str, known: Any) -> str:
    """Say that `name` is not known, with the nearest name that is."""
    lower = {entry.lower(): entry for entry in known}
    near = difflib.get_close_matches(name.lower(), lower, n=1, cutoff=0.4)
    hint = f" Did you mean '{lower[near[0]]}'?" if near else ""
    more = "; gym:ID, module:function" if kind == "task" else ""
    return f"There is no {kind} '{name}'.{hint} Known: {', '.join(known)}{more}."
