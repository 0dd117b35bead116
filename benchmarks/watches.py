"""What looking on costs: steps per second of training with and without watches.

    python benchmarks/watches.py [--rounds 3] [--iterations 100]

PPO-Lagrangian on PointCircle, 2 seeds, a run folder each; rounds in which all rows take
turns, median. `page`: 'ecop watch' in a process of its own, a browser's questions every
2 s, clips as they come. Steps per second are counted from the second line of metrics
on, without the compilation. Figures of one run may be compared with each other, not
with those of another run.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import ecop
from ecop.watching import StopOnPlateau, WandB

ROWS = ("none", "progress", "plateau", "tensorboard", "wandb", "page")


def watch_of(row: str) -> Any:
    special = {"none": None, "page": None, "plateau": StopOnPlateau(10**6)}
    special["wandb"] = WandB(mode="offline") if row == "wandb" else None
    return special.get(row, row)


@contextlib.contextmanager
def page(path: Path) -> Iterator[None]:
    """The page of a run, and somebody who looks at it."""
    over = threading.Event()

    def look() -> None:
        while not (path / "config.json").exists():
            if over.wait(0.05):
                return
        command = [sys.executable, "-m", "ecop.cli", "watch", str(path), "--port", "0"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        while not over.wait(2.0):
            with urllib.request.urlopen(f"{address}data.json") as answer:
                answer.read()
        process.terminate()
        process.wait()

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def speed(row: str, iterations: int) -> float:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run"
        with page(path) if row == "page" else contextlib.nullcontext():
            run = ecop.train(
                "PointCircle",
                "ppo_lag",
                seeds=2,
                iterations=iterations,
                out=path,
                watch=watch_of(row),
            )
    times = sorted({line["seconds"]: line["env_steps"] for line in run.metrics}.items())
    (start, before), (end, after) = times[0], times[-1]
    return 2 * (after - before) / (end - start)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--iterations", type=int, default=100)
    arguments = parser.parse_args()
    os.environ["WANDB_SILENT"] = "true"
    found: dict[str, list[float]] = {row: [] for row in ROWS}
    speed("none", 10)
    for _ in range(arguments.rounds):
        for row in ROWS:
            found[row].append(speed(row, arguments.iterations))
    bare = np.median(found["none"])
    print("\n| watch | steps/s | of none |\n|---|---|---|")
    for row in ROWS:
        middle = np.median(found[row])
        print(f"| {row} | {middle:,.0f} | {100 * middle / bare:.0f} % |")


if __name__ == "__main__":
    main()
