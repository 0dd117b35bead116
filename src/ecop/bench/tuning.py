"""Grids of options, and the settings that the suite `tuning` draws from them.

Every algorithm has as many options with as many values to choose from, the first of
which is what a user gets, and as many settings: nobody is tuned more than another.
"""

from __future__ import annotations

import random
from typing import Any

TRIALS = 5  # of every algorithm: what a user gets, then random ones

Grid = dict[str, tuple[Any, Any, Any]]  # the first value is the default

_ADVANTAGES: Grid = {"gae_decay": (0.95, 0.9, 0.98), "critic_epochs": (10, 5, 20)}
_DESCENT: Grid = {"kl_goal": (0.003, 0.001, 0.01), "epochs": (10, 5, 20)}
_PARTS: Grid = {"minibatches": (8, 4, 16)}
_WIDE: Grid = {"clip": (0.2, 0.1, 0.3)}
_NARROW: Grid = {"clip": (0.1, 0.05, 0.2)}
_ASCENT: Grid = {"multiplier_rate": (5.0, 2.0, 10.0)}
_GROWTH: Grid = {"growth": (1.0, 1.02, 1.05)}
_REGION: Grid = {"damping": (0.1, 0.01, 0.3), "line_search_decay": (0.8, 0.5, 0.9)}
_CAUTIOUS: Grid = {
    **_REGION,
    "target_kl": (0.003, 0.001, 0.01),
    "cg_steps": (10, 5, 20),
    **_ADVANTAGES,
}

GRIDS: dict[str, Grid] = {
    "ecop": {
        **_DESCENT,
        **_WIDE,
        **_ASCENT,
        "beta": (5.0, 10.0, 20.0),
        "caution": (0.5, 0.0, 1.0),
    },
    "ppo": {**_DESCENT, **_WIDE, **_PARTS, **_ADVANTAGES},
    "ppo_lag": {
        **_DESCENT,
        **_NARROW,
        **_PARTS,
        **_ASCENT,
        "gae_decay": _ADVANTAGES["gae_decay"],
    },
    "cppo_pid": {
        **_DESCENT,
        **_WIDE,
        "proportional": (5.0, 1.0, 10.0),
        "integral": (2.0, 1.0, 5.0),
        "derivative": (5.0, 0.0, 1.0),
    },
    "focops": {
        **_DESCENT,
        "kl_goal": (0.0, 0.001, 0.003),
        **_ASCENT,
        "temperature": (0.5, 1.0, 1.5),
        "multiplier_max": (10.0, 2.0, 50.0),
        "gate": (0.02, 0.01, 0.05),
    },
    "p3o": {
        **_DESCENT,
        **_WIDE,
        **_PARTS,
        **_GROWTH,
        "weight": (5.0, 2.0, 20.0),
    },
    "ipo": {
        **_DESCENT,
        **_NARROW,
        **_PARTS,
        "sharpness": (100.0, 200.0, 500.0),
        "slope_max": (5.0, 2.0, 20.0),
    },
    "appo": {
        **_DESCENT,
        **_NARROW,
        **_ASCENT,
        **_GROWTH,
        "penalty": (2.0, 5.0, 10.0),
    },
    "pdo": {
        "kl_goal": _DESCENT["kl_goal"],
        "epochs": (1, 2, 4),
        "minibatches": (1, 2, 4),
        "multiplier_rate": (2.0, 1.0, 5.0),
        **_ADVANTAGES,
    },
    "trpo_lag": {
        **_REGION,
        "target_kl": (0.01, 0.003, 0.03),
        **_ASCENT,
        **_ADVANTAGES,
    },
    "cpo": _CAUTIOUS,
    "pcpo": _CAUTIOUS,
}


def tuning_settings(algorithm: str) -> list[dict[str, Any]]:
    """What a user gets, then settings drawn from the grid; the same every time."""
    grid = GRIDS[algorithm]
    settings = [{name: values[0] for name, values in grid.items()}]
    draw = random.Random(algorithm)
    while len(settings) < TRIALS:
        setting = {name: draw.choice(values) for name, values in grid.items()}
        if setting not in settings:
            settings.append(setting)
    return settings
