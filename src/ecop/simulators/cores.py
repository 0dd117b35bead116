"""How many cores may be used."""

from __future__ import annotations

import os

from ecop.errors import UserError


def cores() -> int:
    """Cores that may be used: NPROC, which XLA obeys too, or those of this process.

    `taskset` and containers may leave it fewer than there are.
    """
    asked = os.environ.get("NPROC", "")
    if asked and not (asked.isdecimal() and int(asked) > 0):
        raise UserError(f"NPROC must be a number of cores, not '{asked}'.")
    if asked or not hasattr(os, "sched_getaffinity"):
        return int(asked or os.cpu_count() or 1)
    return len(os.sched_getaffinity(0))
