"""Named settings of every algorithm, as alternatives to its defaults.

`paper` is the e-COP paper's table of hyperparameters, which covers the baselines; PPO
and PPO-Lagrangian are not in it and take the values common to the others. `tuned` is
the outcome of `benchmarks/tune.py`, the same search on PointCircle for everyone; only
e-COP's was then corrected by further trials (docs/algorithms/README.md).
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from ecop.errors import UserError


class Preset(NamedTuple):
    """Values that replace defaults."""

    options: dict[str, Any]  # fields of the algorithm
    train: dict[str, Any]  # fields of TrainConfig


Kind = Literal["default", "paper", "tuned"]

_STEP = {"learning_rate": 3e-4, "target_kl": 0.01}
_REGION = {"target_kl": 0.01, "line_search_tries": 25, "line_search_decay": 0.8}
_NETWORK = {
    "hidden": (32, 32),
    "initial_log_std": 0.5,
    "critic_learning_rate": 1e-3,
}


def _paper(options: dict[str, Any], discount: float = 0.99) -> Preset:
    return Preset(options, {**_NETWORK, "discount": discount})


PAPER: dict[str, Preset] = {
    "ppo": _paper({**_STEP, "clip": 0.2}),
    "ppo_lag": _paper({**_STEP, "clip": 0.2}),
    "cppo_pid": _paper({**_STEP, "clip": 0.2}, discount=0.995),
    "focops": _paper(_STEP, discount=0.995),
    "p3o": _paper({**_STEP, "clip": 0.2}),
    "ipo": _paper({**_STEP, "clip": 0.2}),
    "appo": _paper({**_STEP, "clip": 0.2}),
    "pdo": _paper(_STEP, discount=0.95),
    "trpo_lag": _paper(_REGION),
    "cpo": _paper(_REGION),
    "pcpo": _paper(_REGION),
}

_CRITICS = {"critic_steps": 80, "critic_episodes": 1}

TUNED: dict[str, Preset] = {
    "ecop": Preset(
        {
            "beta": 5.0,
            "caution": 0.5,
            "backward_steps": 1,
            "passes": 100,
            "episodes_per_step": 1,
            "learning_rate": 0.0001,
            "clip": 0.1,
        },
        {"episodes": 10, "gae_decay": 0.95, **_CRITICS},
    ),
    "ppo": Preset(
        {"epochs": 10, "episodes_per_step": 1, "learning_rate": 0.0003, "clip": 0.2},
        {"episodes": 20, "gae_decay": 0.95, **_CRITICS},
    ),
    "ppo_lag": Preset(
        {
            "epochs": 10,
            "episodes_per_step": 1,
            "learning_rate": 0.0001,
            "clip": 0.1,
            "multiplier_rate": 5.0,
        },
        {"episodes": 10, "gae_decay": 0.95, **_CRITICS},
    ),
    "cppo_pid": Preset(
        {
            "epochs": 20,
            "episodes_per_step": 2,
            "learning_rate": 0.0001,
            "clip": 0.2,
            "proportional": 5.0,
            "integral": 2.0,
            "derivative": 5.0,
        },
        {"episodes": 10, "gae_decay": 0.98, **_CRITICS},
    ),
    "focops": Preset(
        {
            "epochs": 5,
            "episodes_per_step": 2,
            "learning_rate": 0.0003,
            "multiplier_rate": 5.0,
            "temperature": 0.5,
            "multiplier_max": 10.0,
            "target_kl": 0.0,
        },
        {"episodes": 10, "gae_decay": 0.9, **_CRITICS},
    ),
    "p3o": Preset(
        {
            "epochs": 10,
            "episodes_per_step": 1,
            "learning_rate": 0.0003,
            "clip": 0.2,
            "weight": 5.0,
        },
        {"episodes": 20, "gae_decay": 0.95, **_CRITICS},
    ),
    "ipo": Preset(
        {
            "epochs": 5,
            "episodes_per_step": 1,
            "learning_rate": 0.0003,
            "clip": 0.1,
            "sharpness": 100.0,
            "slope_max": 5.0,
        },
        {"episodes": 10, "gae_decay": 0.9, **_CRITICS},
    ),
    "appo": Preset(
        {
            "epochs": 20,
            "episodes_per_step": 2,
            "learning_rate": 0.0001,
            "clip": 0.1,
            "multiplier_rate": 5.0,
            "penalty": 2.0,
        },
        {"episodes": 10, "gae_decay": 0.9, **_CRITICS},
    ),
    "pdo": Preset(
        {
            "multiplier_rate": 2.0,
            "epochs": 1,
            "episodes_per_step": 10,
            "learning_rate": 0.001,
        },
        {"episodes": 20, "gae_decay": 0.98, **_CRITICS},
    ),
    "trpo_lag": Preset(
        {"target_kl": 0.01, "damping": 0.1, "multiplier_rate": 5.0},
        {"episodes": 20, "gae_decay": 0.95, **_CRITICS},
    ),
    "cpo": Preset(
        {"target_kl": 0.003, "damping": 0.1},
        {"episodes": 10, "gae_decay": 0.9, **_CRITICS},
    ),
    "pcpo": Preset(
        {"target_kl": 0.003, "damping": 0.1, "projection": "kl"},
        {"episodes": 40, "gae_decay": 0.9, **_CRITICS},
    ),
}

PRESETS: dict[Kind, dict[str, Preset]] = {"paper": PAPER, "tuned": TUNED}


def preset(kind: Kind, algorithm: str) -> Preset:
    """The preset of an algorithm; "default" replaces nothing."""
    if kind == "default":
        return Preset({}, {})
    if kind not in PRESETS:
        raise UserError(
            f"There is no preset '{kind}'; choose 'default', 'paper' or 'tuned'."
        )
    if algorithm not in PRESETS[kind]:
        raise UserError(
            f"There is no preset '{kind}' of '{algorithm}'; "
            f"it exists for {', '.join(PRESETS[kind])}."
        )
    return PRESETS[kind][algorithm]
