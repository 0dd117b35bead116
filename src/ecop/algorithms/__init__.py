"""The registry of algorithms; `ecop.py` is the one to read first."""

from __future__ import annotations

from typing import Any

from ecop.algorithms.ecop import ECOP

ALGORITHMS: dict[str, Any] = {
    "ecop": ECOP,
}
