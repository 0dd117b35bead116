"""Search the options of every algorithm on PointCircle, with one budget for all.

    python benchmarks/tune.py results/tuning.jsonl            # cell by cell, resumable
    python benchmarks/tune.py results/tuning.jsonl --table    # the best of each

The budget of an algorithm, e-COP included: a common start, 3 settings drawn at random
from its grid, and one that changes two values of the best so far, each trained with 2
seeds (1000 and 1001, used nowhere else) on 6,000 episodes, whatever their number per
iteration. The score is the reward over the last tenth of training, less 2 % for each
1 % that the mean cost is above the limit; PPO has no limit to keep.
"""

from __future__ import annotations

import math
import random
from typing import Any

import cells
from ecop.algorithms import ALGORITHMS

TASK, LIMIT = "PointCircle", 10.0
DRAWN, TRIALS = 4, 5
SEEDS, FIRST_SEED, EPISODES = 2, 1000, 6000
# Many small steps of the critics, for all: docs/outside.md says what that is worth.
CRITICS = {"critic_steps": 80, "critic_episodes": 1}

Grid = dict[str, tuple[Any, ...]]  # the first value is the start

TRAIN: Grid = {"episodes": (20, 10, 40), "gae_decay": (0.95, 0.9, 0.98)}
EPOCHS: Grid = {
    "epochs": (10, 5, 20),
    "episodes_per_step": (1, 2),
    "learning_rate": (3e-4, 1e-4, 1e-3),
}
CLIPPED: Grid = {**EPOCHS, "clip": (0.2, 0.1)}
REGION: Grid = {"target_kl": (0.01, 0.003, 0.03), "damping": (0.1, 0.01)}
ASCENT: Grid = {"multiplier_rate": (5.0, 2.0, 10.0)}

GRIDS: dict[str, Grid] = {
    "ecop": {
        "beta": (20.0, 5.0, 10.0, 40.0),
        "caution": (0.5, 0.0, 1.0),
        "backward_steps": (100, 200),
        "episodes_per_step": (1, 2, 5),
        "learning_rate": (3e-4, 1e-4, 5e-4),
        "clip": (0.2, 0.1),
    },
    "ppo": CLIPPED,
    "ppo_lag": {**CLIPPED, **ASCENT},
    "cppo_pid": {
        **CLIPPED,
        "proportional": (5.0, 1.0, 10.0),
        "integral": (5.0, 1.0, 2.0),
        "derivative": (5.0, 0.0, 1.0),
    },
    "focops": {
        **EPOCHS,
        **ASCENT,
        "temperature": (1.5, 0.5, 1.0),
        "multiplier_max": (2.0, 10.0),
        "target_kl": (0.02, 0.0),
    },
    "p3o": {**CLIPPED, "weight": (5.0, 2.0, 10.0, 20.0)},
    "ipo": {
        **CLIPPED,
        "sharpness": (200.0, 100.0, 500.0, 1000.0),
        "slope_max": (20.0, 5.0),
    },
    "appo": {**CLIPPED, **ASCENT, "penalty": (10.0, 2.0, 5.0, 20.0)},
    "pdo": {
        **ASCENT,
        "epochs": (1,),
        "episodes_per_step": (20, 10),
        "learning_rate": (5e-3, 1e-3, 2e-3),
    },
    "trpo_lag": {**REGION, **ASCENT},
    "cpo": REGION,
    "pcpo": {**REGION, "projection": ("kl", "l2")},
}


def next_trial(lines: list[dict], name: str) -> cells.Cell:
    """The start, then settings of the grid, then neighbours of the best one."""
    tried = [x["cell"] for x in lines if x["cell"]["algorithm"] == name]
    grids = {"train": TRAIN, "options": GRIDS[name]}
    places = [(part, key) for part, grid in grids.items() for key in grid]
    draw = random.Random(f"{name} {len(tried)}")
    while True:
        if not tried:
            choose = {place: grids[place[0]][place[1]][0] for place in places}
        elif len(tried) < DRAWN:
            choose = {(p, key): draw.choice(grids[p][key]) for p, key in places}
        else:
            centre = best(lines, name)["cell"]
            choose = {(p, key): centre[p][key] for p, key in places}
            for part, key in draw.sample(places, 2):
                choose[part, key] = draw.choice(grids[part][key])
        cell: cells.Cell = {"algorithm": name}
        for part, grid in grids.items():
            cell[part] = {key: choose[part, key] for key in grid}
        if cell not in tried:
            return cell


def measure(cell: cells.Cell) -> dict:
    return cells.train(
        TASK,
        ALGORITHMS[cell["algorithm"]](**cell["options"]),
        LIMIT,
        seeds=SEEDS,
        first_seed=FIRST_SEED,
        iterations=EPISODES // cell["train"]["episodes"],
        **CRITICS,
        **cell["train"],
    )


def score(line: dict) -> float:
    result = line["result"]
    if "diverged" in result:
        return -math.inf
    excess = max(0.0, result["cost"] / LIMIT - 1.0)
    if line["cell"]["algorithm"] == "ppo":
        excess = 0.0
    return result["reward"] * max(0.0, 1.0 - 2.0 * excess)


def best(lines: list[dict], name: str) -> dict:
    return max((x for x in lines if x["cell"]["algorithm"] == name), key=score)


def table(lines: list[dict]) -> str:
    rows = []
    for name in dict.fromkeys(line["cell"]["algorithm"] for line in lines):
        tried = [x for x in lines if x["cell"]["algorithm"] == name]
        first, chosen = tried[0]["result"], best(lines, name)
        setting = {**chosen["cell"]["train"], **chosen["cell"]["options"]}
        rows.append(
            [
                name,
                str(len(tried)),
                f"{first['reward']:.1f}, {first['cost']:.1f}",
                f"{chosen['result']['reward']:.1f}, {chosen['result']['cost']:.1f}",
                ", ".join(f"{k} {v}" for k, v in setting.items()),
            ]
        )
    head = ["algorithm", "trials", "start: reward, cost", "best: reward, cost"]
    return cells.markdown([*head, "best setting"], rows)


def main() -> None:
    parser = cells.parser(__doc__)
    arguments = parser.parse_args()
    if not arguments.table:
        # All first trials, then all second ones: stopped early, the budget is equal.
        for count in range(TRIALS):
            for name in GRIDS:
                lines = cells.read(arguments.file)
                if sum(x["cell"]["algorithm"] == name for x in lines) <= count:
                    cells.run(arguments.file, [next_trial(lines, name)], measure)
    print(table(cells.read(arguments.file)))


if __name__ == "__main__":
    main()
