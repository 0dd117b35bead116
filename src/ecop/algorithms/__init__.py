"""The registry of algorithms.

`ecop.py` is the one to read first.
"""

from __future__ import annotations

from typing import Any

from ecop.algorithms.appo import APPO
from ecop.algorithms.cpo import CPO
from ecop.algorithms.cppo_pid import CPPOPID
from ecop.algorithms.ecop import ECOP
from ecop.algorithms.focops import FOCOPS
from ecop.algorithms.ipo import IPO
from ecop.algorithms.p3o import P3O
from ecop.algorithms.pcpo import PCPO
from ecop.algorithms.pdo import PDO
from ecop.algorithms.ppo import PPO
from ecop.algorithms.ppo_lag import PPOLagrangian
from ecop.algorithms.trpo_lag import TRPOLagrangian

ALGORITHMS: dict[str, Any] = {
    "ecop": ECOP,
    "ppo": PPO,
    "ppo_lag": PPOLagrangian,
    "cppo_pid": CPPOPID,
    "focops": FOCOPS,
    "p3o": P3O,
    "ipo": IPO,
    "appo": APPO,
    "pdo": PDO,
    "trpo_lag": TRPOLagrangian,
    "cpo": CPO,
    "pcpo": PCPO,
}
