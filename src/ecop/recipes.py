"""What each task needs, the same for every algorithm, and the paper's preset; as data.

An option has the value of the last of these that names it: the algorithm's or
training's default, the task's recipe, the preset, what the user gives. `ecop show TASK
[ALGORITHM]` prints where each comes from. Defaults are the best we know.
"""

from __future__ import annotations

from typing import Any, Literal

from ecop.errors import UserError

Preset = Literal["default", "paper"]
Options = dict[str, Any]

_WALKER = {"initial_log_std": -1.0}
# A one-hot state needs no scale.
_TABLE = {"normalise_observations": False}

# Fields of TrainConfig. A task that is not here has its defaults.
TASKS: dict[str, Options] = {
    "AntCircle": {**_WALKER, "iterations": 500},
    "AntReach": {**_WALKER, "iterations": 600},
    "AntVelocity": _WALKER,  # more noise costs more than standing earns
    # A humanoid falls in most of the first episodes: it takes many for a batch.
    "Humanoid": {**_WALKER, "episodes": 60, "iterations": 600},
    # Linear policies; of Bottleneck's reward only the next seconds tell on an action.
    "Grid": {"hidden": (), "episodes": 20, "iterations": 300},
    "Bottleneck": {
        "hidden": (),
        "episodes": 20,
        "iterations": 300,
        "gae_decay": 0.8,
    },
    "FactoredRing": _TABLE,
    "MediaStreaming": _TABLE,
    "Inventory": _TABLE,
    "Box": _TABLE,
    "MarsRover": _TABLE,
    "PeakHours": _TABLE,
    "RandomTable": _TABLE,
    "Language": _TABLE,
}

# The paper's table of hyperparameters. It leaves out e-COP, PPO and PPO-Lagrangian,
# which take the values common to the others.
_NETWORK = {
    "hidden": (32, 32),
    "initial_log_std": 0.5,
    "critic_learning_rate": 1e-3,
    "schedule": "constant",
}
_STEP = {
    **_NETWORK,
    "discount": 0.99,
    "learning_rate": 3e-4,
    "kl_goal": 0.0,
    "target_kl": 0.01,
}
_CLIPPED = {**_STEP, "clip": 0.2}
_REGION = {
    **_NETWORK,
    "discount": 0.99,
    "target_kl": 0.01,
    "line_search_tries": 25,
    "line_search_decay": 0.8,
}
# The printed Algorithm 2: H backward steps, lambda in both terms, adaptive beta (its
# factor is not in the paper), no caution; the step is bounded by the clip alone.
_ALGORITHM_2 = {
    **_NETWORK,
    "beta": 5.0,
    "beta_growth": 1.05,
    "beta_max": 50.0,
    "caution": 0.0,
    "penalty": "paper",
    "clip": 0.2,
    "backward_steps": 0,
    "epochs": 1,
    "minibatches": 1,
    "learning_rate": 3e-4,
    "kl_goal": 0.0,
    "discount": 1.0,
}
PAPER: dict[str, Options] = {
    "ecop": _ALGORITHM_2,
    "ppo": _CLIPPED,
    "ppo_lag": _CLIPPED,
    "cppo_pid": {**_CLIPPED, "discount": 0.995},
    "focops": {**_STEP, "discount": 0.995},
    "p3o": _CLIPPED,
    "ipo": _CLIPPED,
    "appo": _CLIPPED,
    "pdo": {**_STEP, "discount": 0.95},
    "trpo_lag": _REGION,
    "cpo": _REGION,
    "pcpo": _REGION,
}


def preset_options(preset: str, algorithm: str) -> Options:
    """What a preset says of an algorithm; "default" says nothing."""
    if preset == "default":
        return {}
    if preset != "paper":
        raise UserError(f"There is no preset '{preset}'; choose 'default' or 'paper'.")
    return PAPER[algorithm]
