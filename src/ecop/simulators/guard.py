"""What an environment may not do: checked where its numbers come in. No JAX here.

Shapes are compared, never broadcast; numbers must be what float32 can hold; flags must
be flags; `sys.exit` is an error like any other.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ecop.errors import UserError

MARK = "ECOP_WORKER"  # in the surroundings of a worker and of all that it starts
MOST = float(np.finfo(np.float32).max)


class Misbehaved(UserError):
    """An environment broke the contract; the message says how."""


@contextlib.contextmanager
def staying(what: str) -> Iterator[None]:
    """Turn an attempt of foreign code to end the process into an error."""
    try:
        yield
    except SystemExit as error:
        raise Misbehaved(
            f"{what} called sys.exit({error.code!r}), which would have ended training; "
            "raise an exception instead."
        ) from error


def observation(x: Any, size: int, name: str) -> np.ndarray:
    """An observation as float32 [O]; refuse another shape and what float32 lacks."""
    array = np.asarray(x)
    if array.shape != (size,):
        raise Misbehaved(
            f"{name} gave an observation of shape {array.shape}, not ({size},)."
        )
    if array.dtype.kind not in "fiub":
        raise Misbehaved(f"{name} gave an observation of type {array.dtype}.")
    return numbers(array, f"observation of {name}").astype(np.float32)


def numbers(array: np.ndarray, name: str) -> np.ndarray:
    """Numbers [K] as they are; refuse the first that is no number of float32."""
    good = np.abs(array) <= MOST  # false for NaN too
    if not good.all():
        entry = int(np.argmin(good))
        raise Misbehaved(
            f"Entry {entry} of the {name} is {array[entry]:g}, which is not finite in "
            "float32; clip or scale it where it is computed."
        )
    return array


def number(x: Any, name: str) -> float:
    """One finite number."""
    array = np.asarray(x)
    if array.size != 1 or array.dtype.kind not in "fiub":
        raise Misbehaved(f"The {name} must be one number, not {x!r:.60}.")
    return float(numbers(array.reshape(1).astype(np.float64), name)[0])


def flag(x: Any, name: str) -> bool:
    """True or False, and nothing that is only like it."""
    if not isinstance(x, (bool, np.bool_)):
        raise Misbehaved(f"{name} must be True or False, not {x!r:.60}.")
    return bool(x)


def marked(mark: str) -> list[int]:
    """Processes that carry a mark, whatever session or parent they have (Linux)."""
    word, found = f"{MARK}={mark}".encode(), []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # gone, or somebody else's
            if word in (entry / "environ").read_bytes().split(b"\0"):
                found.append(int(entry.name))
    return found


def end_marked(mark: str) -> list[int]:
    """Kill what a worker started, in sessions of its own too; return who is left."""
    found, empty = [], 0
    for _ in range(10):
        found = [pid for pid in marked(mark) if pid != os.getpid()]
        for pid in found:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        empty = 0 if found else empty + 1
        if empty == 2:  # one may have started another while we looked
            return []
        time.sleep(0.01)
    return [pid for pid in found if running(pid)]


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """Leave no process behind that a worker started, however its work ends."""
    try:
        yield
    finally:
        end_marked(os.environ.get(MARK, ""))


def running(pid: int) -> bool:
    """Whether a process is more than a zombie."""
    with contextlib.suppress(OSError):
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        return state != "Z"
    return False
