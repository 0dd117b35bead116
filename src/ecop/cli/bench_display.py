"""What a suite looks like in a terminal: the plan, then progress over all cells."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.table import Table

from ecop.bench import results
from ecop.bench.cells import describe
from ecop.bench.run import Event, Plan, Tally
from ecop.watching.progress import clock


def show_plan(plan: Plan, workers: int, where: str) -> None:
    """Print what will be run, what is missing, and how long it may take."""
    table = Table(title=plan.title)
    for name in ("section", "task", "limits", "algorithms", "steps", "cells"):
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
            " ".join(dict.fromkeys(f"{group['steps']:,}" for group in groups)),
            "missing" if task in plan.missing else str(count),
        )
    Console(width=None if sys.stdout.isatty() else 120).print(table)
    for task, why in plan.missing.items():
        print(f"Missing: {task} ({why}).")
    done = plan.total - len(plan.jobs)
    again = f", {plan.failed} of them failed before" if plan.failed else ""
    print(f"{plan.total} cells, {done} finished, {len(plan.jobs)} to run{again}.")
    if plan.jobs:
        seconds, source = plan.pace.total(plan.jobs, workers)
        print(f"Estimate: {clock(seconds)} {where} (from {source}).", flush=True)


class Progress:
    """Progress over all cells: a live table in a terminal, plain lines elsewhere."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
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

    def show(self, event: Event, tally: Tally) -> None:
        """Show an event: a line about a cell that ended, and what is under way."""
        left = f"{clock(tally.left(time.monotonic() - self.start))} left"
        if event.became:
            self.running.pop(event.job.name, None)
            self.say(f"[{tally.ended}/{tally.total}] {self.end(event)}; {left}")
        else:
            self.running[event.job.name] = event
        if self.live:
            self.live.update(self.table(tally, left), refresh=True)

    def say(self, line: str) -> None:
        """Print a line, above the table if there is one."""
        if self.live:
            self.console.print(line, markup=False, highlight=False)
        else:
            print(line, flush=True)

    def end(self, event: Event) -> str:
        """What became of a cell."""
        words = "stopped and saved"
        if event.became == "done":
            words = summary(self.folder, event.job.name)
        elif event.became == "failed":
            words = f"failed, see {self.folder / 'failed' / event.job.name}.json"
        return f"{describe(event.job.cell)}: {words}"

    def table(self, tally: Tally, left: str) -> Table:
        """The cells that are under way."""
        table = Table(
            title=f"{tally.ended} of {tally.total} cells, "
            f"{tally.counts['failed']} failed  ·  {left}"
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
