"""Constrained reinforcement learning with a finite horizon.

    import ecop
    run = ecop.train("PointCircle", ecop.ECOP(beta=5.0), limits=[10.0], seeds=5)
    run.evaluate().summary()

Names are loaded on first use, so that importing the package is quick.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ecop.algorithms.ecop import ECOP
    from ecop.api import Diverged, Faulted, Run, Stopped, load, resume, train
    from ecop.envs import make
    from ecop.errors import UserError
    from ecop.interop import (
        from_gymnasium,
        make_gymnasium,
        make_gymnasium_vec,
        to_safety_gymnasium,
    )
    from ecop.interop.check import check_cmdp
    from ecop.training import TrainConfig
    from ecop.types import Spec

__version__ = "0.1.0"
__all__ = [
    "ECOP",
    "Diverged",
    "Faulted",
    "Run",
    "Spec",
    "Stopped",
    "TrainConfig",
    "UserError",
    "check_cmdp",
    "from_gymnasium",
    "load",
    "make",
    "make_gymnasium",
    "make_gymnasium_vec",
    "resume",
    "to_safety_gymnasium",
    "train",
]

_HOMES = {
    "ECOP": "ecop.algorithms.ecop",
    "Diverged": "ecop.api",
    "Faulted": "ecop.api",
    "Run": "ecop.api",
    "Spec": "ecop.types",
    "Stopped": "ecop.api",
    "TrainConfig": "ecop.training",
    "UserError": "ecop.types",
    "check_cmdp": "ecop.interop.check",
    "from_gymnasium": "ecop.interop",
    "load": "ecop.api",
    "make": "ecop.envs",
    "make_gymnasium": "ecop.interop",
    "make_gymnasium_vec": "ecop.interop",
    "resume": "ecop.api",
    "to_safety_gymnasium": "ecop.interop",
    "train": "ecop.api",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'ecop' has no attribute '{name}'")
    return getattr(importlib.import_module(_HOMES[name]), name)
