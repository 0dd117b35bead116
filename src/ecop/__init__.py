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
    from ecop.algorithms import (
        APPO,
        CPO,
        CPPOPID,
        ECOP,
        FOCOPS,
        IPO,
        P3O,
        PCPO,
        PDO,
        PPO,
        PPOLagrangian,
        TRPOLagrangian,
    )
    from ecop.api import Diverged, Faulted, Run, Stopped, load, resume, train
    from ecop.budgets import frontier
    from ecop.envs import make
    from ecop.errors import UserError
    from ecop.interop import make_gymnasium, make_gymnasium_vec, to_safety_gymnasium
    from ecop.interop.check import check_cmdp
    from ecop.interop.tasks import from_gymnasium
    from ecop.training import TrainConfig
    from ecop.types import Spec

__version__ = "0.1.0"
__all__ = [
    "APPO",
    "CPO",
    "CPPOPID",
    "ECOP",
    "FOCOPS",
    "IPO",
    "P3O",
    "PCPO",
    "PDO",
    "PPO",
    "Diverged",
    "Faulted",
    "PPOLagrangian",
    "Run",
    "Spec",
    "Stopped",
    "TRPOLagrangian",
    "TrainConfig",
    "UserError",
    "check_cmdp",
    "from_gymnasium",
    "frontier",
    "load",
    "make",
    "make_gymnasium",
    "make_gymnasium_vec",
    "resume",
    "to_safety_gymnasium",
    "train",
]

_HOMES = {
    "ecop.api": "Diverged Faulted Run Stopped load resume train",
    "ecop.budgets": "frontier",
    "ecop.envs": "make",
    "ecop.errors": "UserError",
    "ecop.interop": "make_gymnasium make_gymnasium_vec to_safety_gymnasium",
    "ecop.interop.check": "check_cmdp",
    "ecop.interop.tasks": "from_gymnasium",
    "ecop.training": "TrainConfig",
    "ecop.types": "Spec",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'ecop' has no attribute '{name}'")
    homes = (home for home, names in _HOMES.items() if name in names.split())
    return getattr(importlib.import_module(next(homes, "ecop.algorithms")), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
