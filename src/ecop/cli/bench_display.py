"""What a suite looks like in a terminal: the plan, then progress over all cells."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.table import Table

from ecop.bench import results
from ecop.bench.cells import describe
from ecop.bench.run import Event, Job, Pace, Plan, Tally, settle
from ecop.cli.display import clock


def show_plan(plan: Plan, pace: Pace, workers: int, where: str) -> None:
    """Print what will be run, what is missing, and how long it may take."""
    table = Table(title=plan.title)
    for name in ("section", "task", "limits", "algorithms", "episodes", "cells"):
        table.add_column(name, justify="right" if name == "cells" else "left")
    rows: dict[Any, list[dict[str, Any]]] = {}
    for group in plan.document["groups"]:
        key = group["section"], group["task"], tuple(group["limits"])
        rows.setdefault(key, []).append(group)
    for (section, task, limits), groups in rows.items():
        names = dict.fromkeys(group["algorithm"] for group in groups)
        count = sum(len(group["cells"]) for group in groups)
        table.add_row(
            section,
            task,
            " ".join("off" if limit is None else f"{limit:g}" for limit in limits),
            " ".join(names),
            " ".join(dict.fromkeys(str(group["episodes"]) for group in groups)),
            "missing" if task in plan.missing else str(count),
        )
    Console(width=None if sys.stdout.isatty() else 120).print(table)
    for task, why in plan.missing.items():
        print(f"Missing: {task} ({why}).")
    done = plan.total - len(plan.jobs)
    again = f", {plan.failed} of them failed before" if plan.failed else ""
    print(f"{plan.total} cells, {done} finished, {len(plan.jobs)} to run{again}.")
    if plan.jobs:
        seconds, source = pace.total(plan.jobs, workers)
        print(f"Estimate: {clock(seconds)} {where} (from {source}).", flush=True)


class Progress:
    """Progress over all cells: a live table in a terminal, plain lines elsewhere."""

    def __init__(self, jobs: Sequence[Job], folder: Path, tally: Tally) -> None:
        self.folder = folder
        self.tally = tally
        self.total = len(jobs)
        self.start = time.monotonic()
        self.running: dict[str, Event] = {}
        self.console = Console()
        live = sys.stdout.isatty()
        self.live = Live(console=self.console, auto_refresh=False) if live else None

    def __enter__(self) -> Progress:
        if self.live:
            self.live.start()
        return self

    def __exit__(self, *_: Any) -> None:
        if self.live:
            self.live.stop()

    def take(self, event: Event) -> None:
        """Take an event in and show it."""
        name = event.job.name
        if event.kind == "end":
            self.running.pop(name, None)
            word = settle(event, self.folder)
            self.tally.counts[word] += 1
            self.tally.share[name] = 1.0
            self.say(event.job, word)
        else:
            self.running[name] = event
            self.tally.share[name] = event.share
        if self.live:
            self.live.update(self.table(), refresh=True)

    def left(self) -> str:
        """The time left."""
        return f"{clock(self.tally.left(time.monotonic() - self.start))} left"

    def say(self, job: Job, word: str) -> None:
        """One line about a cell that ended."""
        text = f"[{self.tally.ended}/{self.total}] {describe(job.cell)}: "
        if word == "done":
            text += summary(self.folder, job.name)
        elif word == "failed":
            text += f"failed, see {self.folder / 'failed' / job.name}.json"
        else:
            text += "stopped and saved"
        line = f"{text}; {self.left()}"
        if self.live:
            self.console.print(line, markup=False, highlight=False)
        else:
            print(line, flush=True)

    def table(self) -> Table:
        """The cells that are under way."""
        counts = self.tally.counts
        table = Table(
            title=f"{self.tally.ended} of {self.total} cells, "
            f"{counts['failed']} failed  ·  {self.left()}"
        )
        table.add_column("cell")
        table.add_column("done", justify="right")
        for event in self.running.values():
            table.add_row(describe(event.job.cell), f"{100 * event.share:.0f} %")
        return table


def summary(folder: Path, name: str) -> str:
    """Reward and costs of a finished cell."""
    document = results.read_cell(folder, name)
    evaluation = document["evaluation"]
    costs = [sum(c) / len(c) for c in zip(*evaluation["costs"], strict=True)]
    pairs = zip(costs, document["limits"], strict=True)
    words = [f"{c:.2f}/{'off' if d is None else f'{d:g}'}" for c, d in pairs]
    reward = sum(evaluation["reward"]) / len(evaluation["reward"])
    seconds = document["seconds"]
    return f"reward {reward:.2f}, cost {' '.join(words)}, {seconds:.0f} s"
