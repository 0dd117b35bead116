"""e-COP's options on PointCircle: the table behind the defaults.

    python benchmarks/options.py results/options.jsonl        # resumable, cell by cell
    python benchmarks/options.py results/options.jsonl --table

Every cell is one line of JSON; cells that are there already are not run again. Use
`taskset -c 0` to keep the seconds comparable while another core is busy.
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
from pathlib import Path

import numpy as np

import ecop

SEEDS, ITERATIONS, LIMIT = 3, 300, 10.0
# Plain SGD needs a step size of its own in each unit: the largest that did not diverge
# at once in a trial of 100 iterations (in the paper's units none learned).
SGD_RATE = {"dimensionless": 0.1, "paper": 1e-7}


def cells() -> list[dict]:
    grid = itertools.product(
        ("augmented", "paper"),
        ("dimensionless", "paper"),
        (200, 20, 10),
        ("adam", "sgd"),
    )
    table = []
    for penalty, units, steps, optimiser in grid:
        cell = {
            "penalty": penalty,
            "units": units,
            "backward_steps": steps,
            "optimiser": optimiser,
            "beta": 10.0 if units == "dimensionless" else 5.0,
        }
        if optimiser == "sgd":
            cell["learning_rate"] = SGD_RATE[units]
        table.append(cell)
    for penalty, beta, growth in itertools.product(
        ("augmented", "paper"), (5.0, 10.0), (1.0, 1.02)
    ):
        table.append(
            {
                "penalty": penalty,
                "backward_steps": 50,
                "beta": beta,
                "beta_growth": growth,
            }
        )
    for penalty, beta in itertools.product(("augmented", "paper"), (5.0, 10.0)):
        table.append(
            {
                "penalty": penalty,
                "beta": beta,
                "backward_steps": 100,
                "episodes_per_step": 10,
            }
        )
    return table


def measure(cell: dict) -> dict:
    start = time.perf_counter()
    try:
        run = ecop.train(
            "PointCircle",
            ecop.ECOP(**cell),
            limits=[LIMIT],
            seeds=SEEDS,
            iterations=ITERATIONS,
        )
    except ecop.Diverged as error:
        return {"diverged": str(error), "seconds": time.perf_counter() - start}
    first = min(m["seconds"] for m in run.metrics)
    seconds = max(m["seconds"] for m in run.metrics) - first
    late = [m for m in run.metrics if m["iteration"] > 0.9 * ITERATIONS]
    costs = np.array([m["costs"][0] for m in run.metrics])
    late_costs = np.array([m["costs"][0] for m in late])
    by_seed = [
        np.mean([m["reward"] for m in late if m["seed"] == s]) for s in range(SEEDS)
    ]
    return {
        "reward": float(np.mean(by_seed)),
        "reward_std": float(np.std(by_seed)),
        "cost": float(late_costs.mean()),
        "violating": float((late_costs > LIMIT).mean()),
        "strong": float(np.maximum(costs - LIMIT, 0).mean()),
        "seconds": seconds,
    }


def table(lines: list[dict]) -> str:
    head = [
        "penalty",
        "units",
        "steps",
        "episodes",
        "optimiser",
        "beta",
        "growth",
        "reward",
        "cost",
        "violating",
        "strong",
        "seconds",
    ]
    rows = [head, ["---"] * len(head)]
    for line in lines:
        c, r = line["cell"], line["result"]
        options = ecop.ECOP(**c)
        row = [
            options.penalty,
            options.units,
            str(options.backward_steps),
            str(options.episodes_per_step or "all"),
            options.optimiser,
            f"{options.beta:g}",
            f"{options.beta_growth:g}",
        ]
        if "diverged" in r:
            row += ["diverged", "", "", "", ""]
        else:
            row += [
                f"{r['reward']:.1f} ± {r['reward_std']:.1f}",
                f"{r['cost']:.2f}",
                f"{100 * r['violating']:.0f} %",
                f"{r['strong']:.2f}",
                f"{r['seconds']:.0f}",
            ]
        rows.append(row)
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--table", action="store_true", help="print, do not run")
    arguments = parser.parse_args()
    file = arguments.file
    lines = (
        [json.loads(x) for x in file.read_text().splitlines()] if file.exists() else []
    )
    if arguments.table:
        print(table(lines))
        return
    done = [line["cell"] for line in lines]
    todo = [cell for cell in cells() if cell not in done]
    file.parent.mkdir(parents=True, exist_ok=True)
    for i, cell in enumerate(todo):
        print(f"{i + 1}/{len(todo)} {cell}", flush=True)
        result = measure(cell)
        print(f"    {result}", flush=True)
        with file.open("a") as output:
            output.write(json.dumps({"cell": cell, "result": result}) + "\n")


if __name__ == "__main__":
    main()
