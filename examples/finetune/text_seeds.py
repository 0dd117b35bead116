"""e-COP against a Lagrangian with three rates on the adverts, over several seeds.

python examples/finetune/text_seeds.py [--seeds 5] [--steps 150] [--out FILE]

One JSON line per run, appended to FILE (a run that is there is not repeated), then a
table: reward and costs of the last quarter, overshoot (the largest mean of 10 steps in
a row, in % above the limit) and swing (standard deviation over the last half).
"""

import argparse
import json
import os
import tempfile
import warnings
from pathlib import Path

import numpy as np
import text_budgets
import tiny_text
import torch

ARMS = {
    "e-COP": {"beta": 3.0, "rate": 0.1},
    "Lagrangian 0.01": {"beta": 0.0, "rate": 0.01},
    "Lagrangian 0.03": {"beta": 0.0, "rate": 0.03},
    "Lagrangian 0.1": {"beta": 0.0, "rate": 0.1},
}
NAMES = list(text_budgets.LIMITS)


def figures(course: dict[str, list[float]]) -> dict[str, np.ndarray]:
    """Reward and costs, overshoot in % and swing of one run."""
    steps = len(course["reward"])
    limits = np.array(list(text_budgets.LIMITS.values()))
    costs = np.array([course[name] for name in NAMES]).T  # [steps, C]
    smooth = np.stack([np.convolve(c, np.ones(10) / 10, "valid") for c in costs.T], 1)
    return {
        "reward": np.mean(course["reward"][-steps // 4 :]),
        "costs": costs[-steps // 4 :].mean(0),
        "overshoot": 100 * np.maximum(0, smooth.max(0) / limits - 1),
        "swing": costs[steps // 2 :].std(0),
    }


def table(runs: list[dict]) -> None:
    """Print means over seeds, one row per arm; costs as unsafe / length / KL."""
    print("| method | reward | costs, last quarter | overshoot, % | swing | seeds |")
    print("|---|---|---|---|---|---|")

    def three(values: np.ndarray, form: str) -> str:
        return " / ".join(format(value, form) for value in values)

    for arm in ARMS:
        found = [figures(run["course"]) for run in runs if run["arm"] == arm]
        if not found:
            continue
        mean = {key: np.mean([f[key] for f in found], axis=0) for key in found[0]}
        spread = np.std([f["reward"] for f in found])
        print(
            f"| {arm} | {mean['reward']:.2f} ± {spread:.2f} | "
            f"{three(mean['costs'], '.2f')} | {three(mean['overshoot'], '.0f')} | "
            f"{three(mean['swing'], '.2f')} | {len(found)} |"
        )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--out", type=Path, default=Path("text_seeds.jsonl"))
    options = parser.parse_args()
    lines = options.out.read_text().splitlines() if options.out.exists() else []
    runs = [json.loads(line) for line in lines]
    done = {(run["arm"], run["seed"]) for run in runs}
    with tempfile.TemporaryDirectory() as folder:
        model = tiny_text.make(Path(folder) / "model")
        for arm, settings in ARMS.items():
            for seed in range(options.seeds):
                if (arm, seed) in done:
                    continue
                course, _, seconds = text_budgets.train(
                    model, Path(folder), steps=options.steps, seed=seed, **settings
                )
                run = {"arm": arm, "seed": seed, "seconds": seconds, "course": course}
                runs.append(run)
                with options.out.open("a") as file:
                    file.write(json.dumps(run) + "\n")
    table(runs)


if __name__ == "__main__":
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    main()
