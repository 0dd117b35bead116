"""Run a suite: the plan with an estimate first, then cell by cell, resumable.

A cell that has a result is skipped; one that was stopped goes on at its checkpoint; one
that failed is recorded with its traceback and tried again the next time.
"""

from __future__ import annotations

import dataclasses
import math
import queue
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from ecop.algorithms import ALGORITHMS
from ecop.api import stop_requests
from ecop.bench import results
from ecop.bench.cells import (
    Cell,
    changed,
    describe,
    identity,
    make_cell,
    run_config,
    setting,
)
from ecop.bench.suites import SUITES, Group, Suite
from ecop.bench.work import FAILED, STOPPED, Child, Outcome
from ecop.config import refuse_code
from ecop.envs import ENVS, make
from ecop.errors import UserError, unknown
from ecop.recipes import Preset
from ecop.runs import provenance
from ecop.simulators.cores import cores
from ecop.types import HostTask, Spec

# Where nothing is measured yet: environment steps per second of one cell on one core,
# the seconds to import JAX, and those until the first iterations are compiled and done.
STEPS_PER_SECOND = {
    "PointCircle": 70_000,
    "PointReach": 50_000,
    "Navigation": 35_000,
    "AntCircle": 7_000,
    "AntReach": 7_000,
    "Humanoid": 10_000,
    "Grid": 1_100,
    "Bottleneck": 650,
}
UNKNOWN_TASK = 5_000
IMPORT = 4.0
START_UP = 6.0


class Job(NamedTuple):
    """A cell to run."""

    name: str
    cell: Cell
    clip: bool  # whether to film an episode


@dataclass(frozen=True)
class Plan:
    """What is asked for, what is there, what is left."""

    suite: str
    title: str
    jobs: list[Job]  # without a result so far
    total: int
    missing: dict[str, str]  # tasks that cannot be run, and why
    document: dict[str, Any]  # for the results folder
    failed: int  # cells among the jobs that failed before
    pace: Pace  # of the cells that are finished in the folder


class Event(NamedTuple):
    """Something that happened to a job."""

    kind: str  # "start", "progress", "end"
    job: Job
    share: float = 0.0  # of its steps
    outcome: Outcome | None = None
    became: str = ""  # at its end: "done", "failed" or "stopped"


# The plan


def make_plan(
    name: str,
    folder: Path,
    *,
    tasks: Sequence[str] | None = None,
    algorithms: Sequence[str] | None = None,
    seeds: int | None = None,
    first_seed: int = 0,
    steps: int | None = None,
    preset: Preset = "default",
) -> Plan:
    """The cells of a suite, narrowed and shortened as asked."""
    if name not in SUITES:
        raise UserError(unknown("suite", name, SUITES))
    suite = SUITES[name]()
    if steps is not None:
        suite = shortened(suite, steps)
    count = suite.seeds if seeds is None else seeds
    if min(count, suite.steps) < 1:
        raise UserError("--seeds and --steps must be at least 1.")
    groups = chosen(suite.groups, tasks, algorithms)
    missing = unavailable({group.task for group in groups})
    jobs: dict[str, Job] = {}
    lines = []
    for group in groups:
        cells = [make_cell(group, suite, preset, first_seed + i) for i in range(count)]
        lines.append(group_line(group, cells))
        if group.task not in missing:
            for i, cell in enumerate(cells):
                key = identity(cell)
                jobs.setdefault(key, Job(key, cell, suite.clips and i == 0))
    left = [job for job in jobs.values() if not results.finished(folder, job.name)]
    failed = [j for j in left if (folder / "failed" / f"{j.name}.json").exists()]
    options = {"tasks": tasks, "algorithms": algorithms, "steps": steps}
    document = {
        "suite": name,
        "title": suite.title,
        "preset": preset,
        "seeds": count,
        "command": command(name, count, first_seed, preset, options),
        "groups": lines,
        "missing": missing,
    }
    done = results.read(folder).cells if (folder / "cells").is_dir() else {}
    pace = Pace(done.values())
    title, total = suite.title, len(jobs)
    return Plan(name, title, left, total, missing, document, len(failed), pace)


def shortened(suite: Suite, steps: int) -> Suite:
    """The suite with another number of steps for all its groups."""
    groups = [
        dataclasses.replace(group, options=group.options | {"steps": steps})
        for group in suite.groups
    ]
    return dataclasses.replace(suite, groups=tuple(groups), steps=steps)


def chosen(
    groups: Iterable[Group],
    tasks: Sequence[str] | None,
    algorithms: Sequence[str] | None,
) -> list[Group]:
    """The groups of the tasks and algorithms asked for."""
    groups = list(groups)
    known = list(dict.fromkeys(group.task for group in groups))
    for task in tasks or ():
        if task not in known:
            raise UserError(unknown("task of this suite", task, known))
    for algorithm in algorithms or ():
        if algorithm not in ALGORITHMS:
            raise UserError(unknown("algorithm", algorithm, ALGORITHMS))
    left = [
        group
        for group in groups
        if (tasks is None or group.task in tasks)
        and (algorithms is None or group.algorithm in algorithms)
    ]
    if not left:
        raise UserError("This suite has no cell of those tasks and algorithms.")
    return left


def unavailable(tasks: Iterable[str]) -> dict[str, str]:
    """Tasks that cannot be made here, and why."""
    reasons = {}
    for task in sorted(tasks):
        if task not in ENVS:
            reasons[task] = "not a task of this version"
            continue
        try:
            spec_of(task)
        except (ImportError, OSError, UserError) as error:
            reasons[task] = str(error).split("\n")[0]
    return reasons


def group_line(group: Group, cells: list[Cell]) -> dict[str, Any]:
    """A group as the plan's file has it; an infinite limit is null."""
    judged = group.limits if group.judged is None else group.judged
    return {
        "section": group.section,
        "task": group.task,
        "algorithm": group.algorithm,
        "variant": group.variant,
        "limits": [None if math.isinf(limit) else limit for limit in judged],
        "setting": setting(cells[0]),
        "steps": cells[0]["train"]["steps"],
        "cells": [identity(cell) for cell in cells],
    }


def command(
    suite: str, seeds: int, first_seed: int, preset: Preset, options: dict[str, Any]
) -> str:
    """The command that asks for the same cells."""
    words = [f"ecop bench run {suite} --seeds {seeds}"]
    if preset != "default":
        words.append(f"--preset {preset}")
    if first_seed:
        words.append(f"--first-seed {first_seed}")
    for name, value in options.items():
        if value is not None:
            many = value if isinstance(value, list | tuple) else [value]
            words.append(f"--{name} {' '.join(map(str, many))}")
    return " ".join(words)


# The estimate


class Pace:
    """Seconds that cells take: measured where some are finished, else a rough table."""

    def __init__(self, finished: Iterable[dict[str, Any]]) -> None:
        self.rates: dict[Any, list[float]] = {}
        self.start_up: list[float] = []
        for document in finished:
            cell, start = document["cell"], document["start_up"]
            rate = (document["seconds"] - start) / max(document["env_steps"], 1)
            self.start_up.append(IMPORT + start)
            for key in ((cell["task"], cell["algorithm"]["name"]), cell["task"]):
                self.rates.setdefault(key, []).append(rate)

    def seconds(self, cell: Cell) -> tuple[float, bool]:
        """Seconds of a cell, and whether they were measured on its task."""
        steps = cell["train"]["steps"]
        start = fmean(self.start_up) if self.start_up else START_UP
        for key in ((cell["task"], cell["algorithm"]["name"]), cell["task"]):
            if key in self.rates:
                return start + steps * fmean(self.rates[key]), True
        return start + steps / STEPS_PER_SECOND.get(cell["task"], UNKNOWN_TASK), False

    def total(self, jobs: Sequence[Job], workers: int) -> tuple[float, str]:
        """Seconds for all jobs, and where the figure comes from."""
        known = [self.seconds(job.cell) for job in jobs]
        measured = sum(found for _, found in known)
        source = "a rough table in the code; it may be off by a factor of 3"
        if known and measured == len(known):
            source = f"{len(self.start_up)} finished cells in this folder"
        elif measured:
            source = (
                f"finished cells in this folder for {measured} of {len(known)} cells, "
                "a rough table for the rest"
            )
        return sum(seconds for seconds, _ in known) / max(1, workers), source


@lru_cache
def spec_of(task: str) -> Spec:
    """What a task is; an error if it cannot be made here."""
    env = make(task)
    if isinstance(env, HostTask):
        env.close()
    return env.spec


# Running


def run_local(jobs: Sequence[Job], folder: Path, workers: int) -> Iterator[Event]:
    """Run the jobs in processes of their own, `workers` at a time.

    Ctrl-C and SIGTERM let every cell save and end, a second one ends them at once; if
    this process is killed its cells end too.
    """
    todo = deque(jobs)
    events: queue.Queue[Event | None] = queue.Queue()
    running: dict[str, Child] = {}
    guard = threading.Lock()
    stopped = threading.Event()

    def work() -> None:
        while True:
            with guard:
                if not todo or stopped.is_set():
                    break
                job = todo.popleft()
                child = running[job.name] = Child(job.cell, folder, clip=job.clip)
            events.put(Event("start", job))
            outcome = child.wait(
                lambda k, total, job=job: events.put(Event("progress", job, k / total))
            )
            with guard:
                del running[job.name]
            events.put(Event("end", job, 1.0, outcome))
        events.put(None)

    threads = [threading.Thread(target=work, daemon=True) for _ in range(workers)]
    with stop_requests() as stopping:
        for thread in threads:
            thread.start()
        alive = len(threads)
        try:
            while alive:
                if stopping.is_set():
                    with guard:
                        for child in running.values():
                            if stopped.is_set():
                                child.kill()
                            else:
                                child.stop()
                    stopped.set()
                    stopping.clear()
                try:
                    event = events.get(timeout=0.2)
                except queue.Empty:
                    continue
                if event is None:
                    alive -= 1
                else:
                    yield event
        finally:
            stopped.set()
            with guard:
                for child in running.values():
                    child.kill()


def settle(event: Event, folder: Path) -> str:
    """After the end of a job: "done", "failed" or "stopped"; record a sudden death."""
    assert event.outcome is not None
    job = event.job
    record = folder / "failed" / f"{job.name}.json"
    if event.outcome.code != FAILED and results.finished(folder, job.name):
        record.unlink(missing_ok=True)
        return "done"
    if event.outcome.code == STOPPED:
        return "stopped"
    if event.outcome.code != FAILED or not record.exists():
        document = {
            "id": job.name,
            "cell": job.cell,
            "error": f"{describe(job.cell)}: its process ended suddenly",
            "traceback": event.outcome.error,
            **provenance(),
        }
        results.write(folder, "failed", job.name, document)
    return "failed"


class Tally:
    """What became of the jobs so far, and the time left."""

    def __init__(self, jobs: Sequence[Job], pace: Pace) -> None:
        self.cost = {job.name: pace.seconds(job.cell)[0] for job in jobs}
        self.share = dict.fromkeys(self.cost, 0.0)
        self.counts = {"done": 0, "failed": 0, "stopped": 0}

    def count(self, event: Event) -> None:
        """Take an event in."""
        self.share[event.job.name] = 1.0 if event.became else event.share
        if event.became:
            self.counts[event.became] += 1

    @property
    def total(self) -> int:
        """All jobs."""
        return len(self.cost)

    @property
    def ended(self) -> int:
        """Jobs that ended in any way."""
        return sum(self.counts.values())

    @property
    def unfinished(self) -> int:
        """Jobs that were stopped or not started."""
        return self.total - self.counts["done"] - self.counts["failed"]

    def left(self, elapsed: float) -> float | None:
        """Seconds left, from what the work so far took; None before there is any."""
        done = sum(self.cost[name] * share for name, share in self.share.items())
        rest = sum(self.cost.values()) - done
        return elapsed * rest / done if done > 0 else None


Runner = Callable[[Sequence[Job], Path, int], Iterator[Event]]
Watch = Callable[[Event, Tally], None]


def run_plan(
    plan: Plan,
    folder: Path,
    workers: int,
    *,
    runner: Runner = run_local,
    watch: Watch = lambda event, tally: None,
) -> Tally:
    """Run what is left of a plan; return what became of it.

    runner: where the jobs run
    watch: is told of every event and what is counted so far
    """
    results.prepare(folder)
    results.write_plan(folder, plan.document)
    tally = Tally(plan.jobs, plan.pace)
    for event in runner(plan.jobs, folder, workers):
        if event.kind == "end":
            event = event._replace(became=settle(event, folder))
        tally.count(event)
        watch(event, tally)
    return tally


def repeat(
    cell: Cell, before: dict[str, Any], *, trust: bool = False
) -> tuple[bool, dict[str, Any]]:
    """Run a cell again elsewhere; whether its numbers are the same, and its result.

    trust: run the code that the cell names, if its task is none of the library's
    """
    config = run_config(cell)
    if config.train.seeds != 1:
        raise UserError(f"A cell has one seed, not {config.train.seeds}.")
    if not trust:
        refuse_code(config, f"cell {identity(cell)}", "--trust")
    differ = changed(cell)
    if differ:
        raise UserError(
            f"{cell['task']} is another task now than in this cell: {differ[0]}"
            + f", and {len(differ) - 1} more." * (len(differ) > 1)
            + "." * (len(differ) == 1)
        )
    with tempfile.TemporaryDirectory(prefix="ecop-repeat-") as scratch:
        folder = Path(scratch)
        job = Job(identity(cell), cell, clip=False)
        for event in run_local([job], folder, 1):
            if event.kind == "end" and settle(event, folder) != "done":
                failed = results.read(folder).failed.get(job.name, {})
                raise UserError(failed.get("error", "The cell was stopped."))
        after = results.read_cell(folder, job.name)
    parts = ("curve", "evaluations", "deterministic", "exact")
    return all(before.get(part) == after[part] for part in parts), after


def default_workers() -> int:
    """One per core."""
    return cores()
