"""What looking on costs: steps per second of training with and without watches.

    python benchmarks/watches.py [--rounds 3] [--iterations 100]

PPO-Lagrangian on PointCircle, 2 seeds, a run folder each; rounds in which all rows take
turns, median. `page`: 'ecop watch' in a process of its own, a browser's questions every
2 s, clips as they come. `time in the watch` is that of its calls, from beginning to
end, which training waits for; on a busy machine it says more than the speed. Steps per
second are counted without the compilation. Figures of one run may be compared with
each other, not with those of another run.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import ecop
from ecop.watching import StopOnPlateau, WandB, watch_of


class Timed:
    """A watch, and the seconds that its calls took."""

    def __init__(self, watch: Any) -> None:
        self.watch = watch
        self.seconds = 0.0

    def __getattr__(self, name: str) -> Any:
        def call(*args: Any) -> Any:
            start = time.perf_counter()
            try:
                return getattr(self.watch, name)(*args)
            finally:
                self.seconds += time.perf_counter() - start

        return call


ROWS = ("none", "progress", "plateau", "tensorboard", "wandb", "page")


def timed(row: str) -> Timed:
    special: dict[str, Any] = {"none": None, "page": None}
    special["plateau"] = StopOnPlateau(10**6)
    special["wandb"] = WandB(mode="offline") if row == "wandb" else None
    return Timed(watch_of(special.get(row, row), row))


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


def speed(row: str, iterations: int) -> tuple[float, float]:
    """Steps per second, and the share of the time that was spent in the watch."""
    watch = timed(row)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run"
        with page(path) if row == "page" else contextlib.nullcontext():
            run = ecop.train(
                "PointCircle",
                "ppo_lag",
                seeds=2,
                iterations=iterations,
                out=path,
                watch=watch,
            )
    times = sorted({line["seconds"]: line["env_steps"] for line in run.metrics}.items())
    (start, before), (end, after) = times[0], times[-1]
    return 2 * (after - before) / (end - start), watch.seconds / end


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--iterations", type=int, default=100)
    arguments = parser.parse_args()
    os.environ["WANDB_SILENT"] = "true"
    found: dict[str, list[tuple[float, float]]] = {row: [] for row in ROWS}
    speed("none", 10)
    for _ in range(arguments.rounds):
        for row in ROWS:
            found[row].append(speed(row, arguments.iterations))
    print("\n| watch | steps/s | time in the watch |\n|---|---|---|")
    for row in ROWS:
        steps, share = np.median(found[row], axis=0)
        print(f"| {row} | {steps:,.0f} | {100 * share:.2f} % |")


if __name__ == "__main__":
    main()
