"""Who looks on while training runs: shows it, logs it, stops it. Imports nothing heavy.

    ecop.train(task, watch=["progress", ecop.watching.StopOnPlateau(50)])

One file per kind. A watch is an object with the methods of `Watch`; `Quiet` has them
all and does nothing, so that one's own has to have only what it needs.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from ecop.errors import UserError

if TYPE_CHECKING:
    from ecop.watching.loggers import TensorBoard, WandB
    from ecop.watching.stopping import StopOnPlateau

__all__ = ["Quiet", "StopOnPlateau", "TensorBoard", "WandB", "Watch"]
NAMES = ("progress", "tensorboard", "wandb")
_HOMES = {"TensorBoard": "loggers", "WandB": "loggers", "StopOnPlateau": "stopping"}


class Watch(Protocol):
    """Somebody who looks on while training runs."""

    def note(self, text: str) -> None:
        """One sentence about something out of the ordinary."""
        ...

    def began(self, run: Any) -> None:
        """Training begins, or goes on from where the run is."""
        ...

    def progress(self, lines: list[dict[str, Any]], total: int) -> None:
        """The newest metrics of every seed; `total` iterations are planned."""
        ...

    def advanced(self, run: Any) -> str | None:
        """A few more iterations are done; they are not saved yet.

        A sentence ends training here: the run is saved and returned as it is.
        """
        ...

    def ended(self, run: Any) -> None:
        """Training is over, in whatever way."""
        ...


class Quiet:
    """A watch that says nothing."""

    def note(self, text: str) -> None:
        """Ignore it."""

    def began(self, run: Any) -> None:
        """Ignore it."""

    def progress(self, lines: list[dict[str, Any]], total: int) -> None:
        """Ignore it."""

    def advanced(self, run: Any) -> str | None:
        """Ignore it."""

    def ended(self, run: Any) -> None:
        """Ignore it."""


class Several:
    """Watches that look on together."""

    def __init__(self, watches: Sequence[Watch]) -> None:
        self.watches = watches

    def note(self, text: str) -> None:
        """Tell all."""
        for watch in self.watches:
            watch.note(text)

    def began(self, run: Any) -> None:
        """Tell all."""
        for watch in self.watches:
            watch.began(run)

    def progress(self, lines: list[dict[str, Any]], total: int) -> None:
        """Tell all."""
        for watch in self.watches:
            watch.progress(lines, total)

    def advanced(self, run: Any) -> str | None:
        """Tell all; the first one with a reason to stop has it."""
        reasons = [watch.advanced(run) for watch in self.watches]
        return next((reason for reason in reasons if reason), None)

    def ended(self, run: Any) -> None:
        """Tell all, even if one fails."""
        with contextlib.ExitStack() as stack:
            for watch in reversed(self.watches):
                stack.callback(watch.ended, run)


def watch_of(given: Any, title: str) -> Watch:
    """The watch that an argument stands for: None, a name, a watch, or several."""
    if given is None:
        return Quiet()
    if isinstance(given, list | tuple):
        return Several([watch_of(part, title) for part in given])
    if given == "progress":
        from ecop.watching.progress import progress

        return progress(title)
    if given in ("tensorboard", "wandb"):
        from ecop.watching import loggers

        return (loggers.TensorBoard if given == "tensorboard" else loggers.WandB)()
    missing = [name for name in vars(Quiet) if name[0] != "_"]
    missing = [name for name in missing if not callable(getattr(given, name, None))]
    if missing:
        raise UserError(
            f"{given!r:.60} is no watch: it has no {missing[0]}; known names: "
            f"{', '.join(NAMES)}; your own can begin with ecop.watching.Quiet."
        )
    return given


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'ecop.watching' has no attribute '{name}'")
    return getattr(importlib.import_module(f"ecop.watching.{_HOMES[name]}"), name)
