"""Cells of a table: each measured once, one line of JSON each, resumable."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import ecop

Cell = dict[str, Any]


def parser(doc: str) -> argparse.ArgumentParser:
    """The command line of a script that measures cells into a file."""
    made = argparse.ArgumentParser(description=doc.split("\n")[0])
    made.add_argument("file", type=Path)
    made.add_argument("--table", action="store_true", help="print, do not run")
    return made


def read(file: Path) -> list[dict]:
    """Lines {"cell": ..., "result": ...} measured so far."""
    return (
        [json.loads(x) for x in file.read_text().splitlines()] if file.exists() else []
    )


def run(file: Path, wanted: list[Cell], measure: Callable[[Cell], dict]) -> list[dict]:
    """Measure the cells that `file` does not hold yet; return all its lines."""
    lines = read(file)
    done = [line["cell"] for line in lines]
    todo = [cell for cell in wanted if cell not in done]
    file.parent.mkdir(parents=True, exist_ok=True)
    for i, cell in enumerate(todo):
        print(f"{i + 1}/{len(todo)} {cell}", flush=True)
        line = {"cell": cell, "result": measure(cell)}
        print(f"    {line['result']}", flush=True)
        with file.open("a") as output:
            output.write(json.dumps(line) + "\n")
        lines.append(line)
    return lines


def train(task: str, algorithm: Any, limit: float, **options: Any) -> dict:
    """Train and summarise: means over the last tenth of the iterations of all seeds.

    `strong` is the mean of max(0, cost - limit) over all iterations. The first call
    holds the compilation, so steps per second are counted from its end.
    """
    try:
        done = ecop.train(task, algorithm, limits=[limit], **options)
    except ecop.Diverged as error:
        return {"diverged": str(error)}
    config, metrics = done.config.train, done.metrics
    clock = sorted({m["seconds"] for m in metrics})
    counted = [m for m in metrics if m["seconds"] > clock[0]]
    steps = len(counted) * config.episodes * done.learner.spec.horizon
    late = [m for m in metrics if m["iteration"] > 0.9 * config.iterations]
    costs = np.array([m["costs"][0] for m in metrics])
    late_costs = np.array([m["costs"][0] for m in late])
    seeds = sorted({m["seed"] for m in metrics})
    rewards = [np.mean([m["reward"] for m in late if m["seed"] == s]) for s in seeds]
    return {
        "reward": float(np.mean(rewards)),
        "reward_std": float(np.std(rewards)),
        "cost": float(late_costs.mean()),
        "violating": float((late_costs > limit).mean()),
        "strong": float(np.maximum(costs - limit, 0).mean()),
        "kl": float(np.mean([m["kl"] for m in metrics])),
        "steps_per_second": steps / (clock[-1] - clock[0]),
        "seconds": clock[-1] - clock[0],
    }


def markdown(head: list[str], rows: list[list[str]]) -> str:
    """A table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
