"""The registry of algorithms, and the hyperparameters of the paper's comparison.

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

_FIRST_ORDER = {"learning_rate": 3e-4, "target_kl": 0.01}
_SECOND_ORDER = {
    "target_kl": 0.01,
    "line_search_tries": 25,
    "line_search_decay": 0.8,
}

# What the paper's table of hyperparameters fixes for each baseline, by field; PPO and
# PPO-Lagrangian are not in it and take the common values.
PAPER: dict[str, dict[str, Any]] = {
    "ppo": {**_FIRST_ORDER, "clip": 0.2},
    "ppo_lag": {**_FIRST_ORDER, "clip": 0.2},
    "cppo_pid": {**_FIRST_ORDER, "clip": 0.2},
    "focops": _FIRST_ORDER,
    "p3o": {**_FIRST_ORDER, "clip": 0.2},
    "ipo": {**_FIRST_ORDER, "clip": 0.2},
    "appo": {**_FIRST_ORDER, "clip": 0.2},
    "pdo": _FIRST_ORDER,
    "trpo_lag": _SECOND_ORDER,
    "cpo": _SECOND_ORDER,
    "pcpo": _SECOND_ORDER,
}

# The same table's fields of TrainConfig; discounts differ by algorithm.
PAPER_TRAIN: dict[str, Any] = {
    "hidden": (32, 32),
    "initial_log_std": 0.5,
    "critic_learning_rate": 1e-3,
}
PAPER_DISCOUNT: dict[str, float] = {
    name: {"pdo": 0.95, "focops": 0.995, "cppo_pid": 0.995}.get(name, 0.99)
    for name in PAPER
}
