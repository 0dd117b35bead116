"""e-COP against a Lagrangian with three rates on the adverts, over several seeds.

python examples/finetune/text_seeds.py [--seeds 5] [--steps 150] [--out FILE]

One JSON line per run, appended to FILE (a run that is there is not repeated), then a
table; `figures.py` says what its columns are.
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
from figures import FIRST, HEAD, figures, row

ARMS = {
    "e-COP": {},
    "Lagrangian 0.01": {"beta": 0.0, "rate": 0.01},
    "Lagrangian 0.03": {"beta": 0.0, "rate": 0.03},
    "Lagrangian 0.1": {"beta": 0.0, "rate": 0.1},
}


def table(runs: list[dict]) -> None:
    """Print means over seeds, one row per arm; costs as unsafe / length / KL."""
    print(HEAD)
    names = list(text_budgets.LIMITS)
    limits = np.array(list(text_budgets.LIMITS.values()))
    for arm in ARMS:
        courses = [run["course"] for run in runs if run["arm"] == arm]
        if not courses:
            continue
        costs = np.array([[c[name] for name in names] for c in courses])
        errors = np.array([[c[f"{name} error"] for name in names] for c in courses])
        late = -(costs.shape[-1] // 4)
        rewards = [float(np.mean(c["reward"][late:])) for c in courses]
        print(row(arm, rewards, figures(costs, errors, limits)))


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
            for seed in range(FIRST, FIRST + options.seeds):
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
