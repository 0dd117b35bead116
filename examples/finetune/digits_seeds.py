"""e-COP against a Lagrangian with three rates on the digits, over several seeds.

python examples/finetune/digits_seeds.py [--seeds 3] [--steps 150] [--out FILE]

One JSON line per run, appended to FILE (a run that is there is not repeated), then a
table; `figures.py` says what its columns are. Below it the unsafe share that many fresh
images have, at every tenth step of the last half.
"""

import digits_budgets
import figures
import numpy as np
import torch
from digits_budgets import FRESH

ARMS = {
    "e-COP": {},
    "Lagrangian 0.3": {"beta": 0.0, "rate": 0.3},
    "Lagrangian 0.1": {"beta": 0.0, "rate": 0.1},
    "Lagrangian 0.03": {"beta": 0.0, "rate": 0.03},
}


def fresh_table(runs: list[dict]) -> None:
    """Print mean and swing of the unsafe share of fresh images, one line per arm."""
    for arm in ARMS:
        courses = [run["course"] for run in runs if run["arm"] == arm]
        if not courses:
            continue
        fresh = np.array([course["fresh"] for course in courses])  # [S, marks]
        noise = (fresh * (1 - fresh)).mean() / FRESH
        variance = fresh.var(-1, ddof=1).mean()
        print(
            f"{arm}: {FRESH} fresh images, unsafe share {fresh.mean():.3f}, swing "
            f"{variance**0.5:.4f}, of it noise {noise**0.5:.4f}, of the policy "
            f"{max(0.0, variance - noise) ** 0.5:.4f}"
        )


def main() -> None:
    options = figures.options("digits_seeds.jsonl", seeds=3)
    start, cost = digits_budgets.prepared()

    def run(seed: int, **settings: float) -> dict:
        course, _, seconds = digits_budgets.train(
            start, cost, steps=options.steps, seed=seed, **settings
        )
        return {"seconds": seconds, "course": course}

    runs = figures.stored(options.out, ARMS, options.seeds, run)
    figures.table(runs, ARMS, digits_budgets.LIMITS)
    fresh_table(runs)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
