"""Runs over several seeds: stored as lines of JSON, shown as a table.

Costs, overshoot, and swing with and without the noise of the measurement.
"""

import argparse
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

Course = dict[str, list[float]]

FIRST = 200  # seeds of the tables start here; trials of settings had others


def figures(
    costs: np.ndarray, errors: np.ndarray, limits: np.ndarray
) -> dict[str, np.ndarray]:
    """Means over seeds of measured costs [S, C, steps] with standard errors.

    late: costs of the last quarter [C]; worst: the same of the worst seed [C].
    overshoot: largest mean of 10 steps in a row, in % above the limit [C].
    swing: standard deviation over the steps of the last half [C].
    noise: what the swing would be if the policy stood still [C].
    policy: the rest, root of swing^2 - noise^2, the swing of the policy itself [C].
    """
    steps = costs.shape[-1]
    smooth = np.apply_along_axis(np.convolve, -1, costs, np.ones(10) / 10, "valid")
    late = costs[..., -(steps // 4) :].mean(-1)
    variance = costs[..., steps // 2 :].var(-1, ddof=1).mean(0)
    noise = (errors[..., steps // 2 :] ** 2).mean((0, 2))
    return {
        "late": late.mean(0),
        "worst": late.max(0),
        "overshoot": 100 * np.maximum(0, smooth.max(-1) / limits - 1).mean(0),
        "swing": np.sqrt(variance),
        "noise": np.sqrt(noise),
        "policy": np.sqrt(np.maximum(0, variance - noise)),
    }


def stored(
    file: Path, arms: Mapping[str, Any], seeds: int, run: Callable[..., dict]
) -> list[dict]:
    """Call run(seed=..., **settings of the arm); a run in the file is not repeated."""
    lines = file.read_text().splitlines() if file.exists() else []
    runs = [json.loads(line) for line in lines]
    done = {(run["arm"], run["seed"]) for run in runs}
    for arm, settings in arms.items():
        for seed in range(FIRST, FIRST + seeds):
            if (arm, seed) not in done:
                runs.append({"arm": arm, "seed": seed} | run(seed=seed, **settings))
                with file.open("a") as end:
                    end.write(json.dumps(runs[-1]) + "\n")
    return runs


def table(
    runs: list[dict], arms: Mapping[str, Any], limits: Mapping[str, float]
) -> None:
    """Print means over seeds, one row per arm; costs in the order of the limits."""
    print(
        "| method | reward | costs, last quarter | worst seed | overshoot, % | swing "
        "| of it noise | of the policy | seeds |\n" + "|---" * 9 + "|"
    )
    for arm in arms:
        courses: list[Course] = [run["course"] for run in runs if run["arm"] == arm]
        if not courses:
            continue
        costs = np.array([[c[name] for name in limits] for c in courses])
        errors = np.array([[c[f"{name} error"] for name in limits] for c in courses])
        found = figures(costs, errors, np.array(list(limits.values())))
        late = -(costs.shape[-1] // 4)
        rewards = [float(np.mean(c["reward"][late:])) for c in courses]
        cells = [f"{np.mean(rewards):.3g} ± {np.std(rewards):.2g}"]
        for key, column in found.items():
            form = ".0f" if key == "overshoot" else ".3g"
            cells.append(" / ".join(format(value, form) for value in column))
        print(f"| {arm} | " + " | ".join(cells) + f" | {len(courses)} |")


def options(out: str, seeds: int) -> argparse.Namespace:
    """Read --seeds, --steps and --out."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=seeds)
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--out", type=Path, default=Path(out))
    return parser.parse_args()
