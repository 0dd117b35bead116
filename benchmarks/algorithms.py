"""All algorithms on PointCircle with the same samples: the table of the comparison.

    python benchmarks/algorithms.py results/algorithms.jsonl       # cell by cell
    python benchmarks/algorithms.py results/algorithms.jsonl --table

A cell is an algorithm with a preset ("default", or "paper" with --preset paper) and is
one line of JSON; cells that are there already are not run again. Every cell has the
same budget: 5 seeds, 300 iterations of 20 whole episodes. Use `taskset` to keep the
steps per second comparable while another core is busy.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np

import ecop
from ecop.algorithms import ALGORITHMS, PAPER, PAPER_DISCOUNT, PAPER_TRAIN

TASK, LIMIT = "PointCircle", 10.0
SEEDS, ITERATIONS, EPISODES = 5, 300, 20


def cells(preset: str, seeds: int, iterations: int) -> list[dict]:
    names = [name for name in ALGORITHMS if preset == "default" or name in PAPER]
    budget = {"seeds": seeds, "iterations": iterations, "episodes": EPISODES}
    return [{"algorithm": name, "preset": preset, **budget} for name in names]


def measure(cell: dict) -> dict:
    name, paper = cell["algorithm"], cell["preset"] == "paper"
    algorithm = ALGORITHMS[name](**PAPER[name] if paper else {})
    train = {**PAPER_TRAIN, "discount": PAPER_DISCOUNT[name]} if paper else {}
    seeds, iterations = cell["seeds"], cell["iterations"]
    start = time.perf_counter()
    try:
        run = ecop.train(
            TASK,
            algorithm,
            limits=[LIMIT],
            seeds=seeds,
            iterations=iterations,
            episodes=cell["episodes"],
            **train,
        )
    except ecop.Diverged as error:
        return {"diverged": str(error), "seconds": time.perf_counter() - start}
    # The first call holds the compilation, so the pace is counted from its end.
    clock = sorted({m["seconds"] for m in run.metrics})
    counted = [m for m in run.metrics if m["seconds"] > clock[0]]
    steps = len(counted) * cell["episodes"] * run.learner.spec.horizon
    late = [m for m in run.metrics if m["iteration"] > 0.9 * iterations]
    costs = np.array([m["costs"][0] for m in run.metrics])
    late_costs = np.array([m["costs"][0] for m in late])
    rewards = [
        np.mean([m["reward"] for m in late if m["seed"] == s]) for s in range(seeds)
    ]
    return {
        "reward": float(np.mean(rewards)),
        "reward_std": float(np.std(rewards)),
        "cost": float(late_costs.mean()),
        "violating": float((late_costs > LIMIT).mean()),
        "strong": float(np.maximum(costs - LIMIT, 0).mean()),
        "kl": float(np.mean([m["kl"] for m in run.metrics])),
        "steps_per_second": steps / (clock[-1] - clock[0]),
    }


def table(lines: list[dict]) -> str:
    head = ["algorithm", "preset", "seeds x iterations", "reward", "cost / limit"]
    head += ["late iterations above", "strong violation", "mean KL", "steps/s"]
    rows = [head, ["---"] * len(head)]
    for line in lines:
        cell, result = line["cell"], line["result"]
        row = [cell["algorithm"], cell["preset"]]
        row.append(f"{cell['seeds']} x {cell['iterations']}")
        if "diverged" in result:
            row += ["diverged", "", "", "", "", ""]
        else:
            row += [
                f"{result['reward']:.1f} ± {result['reward_std']:.1f}",
                f"{result['cost']:.2f} / {LIMIT:g}",
                f"{100 * result['violating']:.0f} %",
                f"{result['strong']:.2f}",
                f"{result['kl']:.4f}",
                f"{result['steps_per_second']:,.0f}",
            ]
        rows.append(row)
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--table", action="store_true", help="print, do not run")
    parser.add_argument("--preset", choices=("default", "paper"), default="default")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--iterations", type=int, default=ITERATIONS)
    arguments = parser.parse_args()
    file = arguments.file
    lines = (
        [json.loads(x) for x in file.read_text().splitlines()] if file.exists() else []
    )
    if arguments.table:
        print(table(lines))
        return
    done = [line["cell"] for line in lines]
    wanted = cells(arguments.preset, arguments.seeds, arguments.iterations)
    todo = [cell for cell in wanted if cell not in done]
    file.parent.mkdir(parents=True, exist_ok=True)
    for i, cell in enumerate(todo):
        print(f"{i + 1}/{len(todo)} {cell}", flush=True)
        lines.append({"cell": cell, "result": measure(cell)})
        print(f"    {lines[-1]['result']}", flush=True)
        with file.open("a") as output:
            output.write(json.dumps(lines[-1]) + "\n")
    print(table(lines))


if __name__ == "__main__":
    main()
