"""Grids of options, and the settings that the suite `tuning` draws from them."""

from __future__ import annotations

import random
from typing import Any

TRIALS = 5  # of every algorithm: the first values of its grid, then random ones

Grid = dict[str, tuple[Any, ...]]  # the first value is the start

_EPOCHS: Grid = {
    "epochs": (10, 5, 20),
    "episodes_per_step": (1, 2),
    "learning_rate": (3e-4, 1e-4, 1e-3),
}
_CLIPPED: Grid = {**_EPOCHS, "clip": (0.2, 0.1)}
_REGION: Grid = {"target_kl": (0.01, 0.003, 0.03), "damping": (0.1, 0.01)}
_ASCENT: Grid = {"multiplier_rate": (5.0, 2.0, 10.0)}

GRIDS: dict[str, Grid] = {
    "ecop": {
        "beta": (5.0, 10.0, 20.0),
        "caution": (0.5, 0.0, 1.0),
        "passes": (100, 50, 200),
        "episodes_per_step": (1, 2),
        "learning_rate": (1e-4, 3e-4),
        "clip": (0.1, 0.2),
    },
    "ppo": _CLIPPED,
    "ppo_lag": {**_CLIPPED, **_ASCENT},
    "cppo_pid": {
        **_CLIPPED,
        "proportional": (5.0, 1.0, 10.0),
        "integral": (5.0, 1.0, 2.0),
        "derivative": (5.0, 0.0, 1.0),
    },
    "focops": {
        **_EPOCHS,
        **_ASCENT,
        "temperature": (1.5, 0.5, 1.0),
        "multiplier_max": (2.0, 10.0),
        "target_kl": (0.02, 0.0),
    },
    "p3o": {**_CLIPPED, "weight": (5.0, 2.0, 10.0, 20.0)},
    "ipo": {
        **_CLIPPED,
        "sharpness": (200.0, 100.0, 500.0, 1000.0),
        "slope_max": (20.0, 5.0),
    },
    "appo": {**_CLIPPED, **_ASCENT, "penalty": (10.0, 2.0, 5.0, 20.0)},
    "pdo": {
        **_ASCENT,
        "episodes_per_step": (20, 10),
        "learning_rate": (5e-3, 1e-3, 2e-3),
    },
    "trpo_lag": {**_REGION, **_ASCENT},
    "cpo": _REGION,
    "pcpo": {**_REGION, "projection": ("kl", "l2")},
}


def tuning_settings(algorithm: str) -> list[dict[str, Any]]:
    """The start of the grid, then settings drawn from it; the same every time."""
    grid = GRIDS[algorithm]
    settings = [{name: values[0] for name, values in grid.items()}]
    draw = random.Random(algorithm)
    while len(settings) < TRIALS:
        setting = {name: draw.choice(values) for name, values in grid.items()}
        if setting not in settings:
            settings.append(setting)
    return settings
