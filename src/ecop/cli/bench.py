"""`ecop bench`: the command line of the benchmark."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from ecop.bench.suites import SUITES
from ecop.cli.commands import dispatch, parse
from ecop.errors import UserError
from ecop.recipes import Preset

USAGE = """\
usage: ecop bench COMMAND ...

Every table and figure of the paper.

commands:
  list      the suites
  run       run a suite, or go on with it: ecop bench run smoke
  repeat    run one finished cell again and compare: ecop bench repeat CELL.json

'ecop bench COMMAND --help' explains a command and all its options; 'ecop report'
shows the results.
"""


def bench_command(argv: list[str]) -> int:
    """Run one command; return the exit code."""
    return dispatch(argv, COMMANDS, USAGE)


def list_command(argv: list[str]) -> int:
    """Print the suites."""

    def options() -> None:
        """List the suites."""

    parse(options, "bench list", argv)
    for name, build in SUITES.items():
        suite = build()
        tasks = dict.fromkeys(group.task for group in suite.groups)
        cells = len(suite.groups) * suite.seeds
        print(f"{name:12} {suite.title} ({cells} cells)\n{'':12} {', '.join(tasks)}")
    return 0


def run_command(argv: list[str]) -> int:
    """Show the plan of a suite and run it."""

    @dataclass
    class Run:
        """Run a suite of the benchmark; stopped or killed, it goes on where it was."""

        suite: Annotated[str, tyro.conf.Positional]
        """which suite; 'ecop bench list' explains them"""
        out: Path = Path("bench")
        """results folder; finished cells in it are not run again"""
        tasks: tuple[str, ...] | None = None
        """only these tasks of the suite"""
        algorithms: tuple[str, ...] | None = None
        """only these algorithms of the suite"""
        seeds: int | None = None
        """runs of every group; default: the suite's"""
        first_seed: int = 0
        """seeds are first_seed, first_seed + 1, ..."""
        steps: int | None = None
        """environment steps of every run; default: the suite's"""
        preset: Preset = "default"
        """options of the algorithms: what a user gets, or the paper's"""
        workers: int | None = None
        """cells at a time, one core each; default: NPROC, or the cores of ours"""
        on: Literal["local", "ray"] = "local"
        """where the cells run"""
        address: str | None = None
        """of a Ray cluster; default: one is started on this machine"""
        dry_run: bool = False
        """show the plan and stop"""

    options = parse(Run, "bench run", argv)
    if options.address is not None and options.on != "ray":
        raise UserError("--address needs --on ray.")
    if options.workers is not None and options.workers < 1:
        raise UserError(f"--workers must be at least 1, not {options.workers}.")
    from ecop.bench import results, run
    from ecop.cli import bench_display as display

    if options.out.exists():
        results.refuse_foreign(options.out)
    plan = run.make_plan(
        options.suite,
        options.out,
        tasks=options.tasks,
        algorithms=options.algorithms,
        seeds=options.seeds,
        first_seed=options.first_seed,
        steps=options.steps,
        preset=options.preset,
    )
    workers = options.workers or run.default_workers()
    ways = {"local": f"with {workers} worker(s)", "ray": "on Ray"}
    display.show_plan(plan, workers, ways[options.on])
    if options.dry_run:
        return 0
    runner = run.run_local
    if options.on == "ray":
        from ecop.bench.on_ray import runner as ray_runner

        runner = ray_runner(options.address)
    with display.Progress(options.out) as progress:
        tally = run.run_plan(
            plan, options.out, workers, runner=runner, watch=progress.show
        )
    if tally.unfinished:
        print(f"Stopped; go on with:\n  {plan.document['command']} --out {options.out}")
        return 130
    failed = tally.counts["failed"]
    more = f", {failed} failed" if failed else ""
    print(f"Done: {plan.total - failed} of {plan.total} cells{more}.")
    print(f"  ecop report {options.out}")
    return 1 if failed else 0


def repeat_command(argv: list[str]) -> int:
    """Run a finished cell again and say whether the numbers are the same."""

    @dataclass
    class Repeat:
        """Run the cell of a result file again, with all its options, and compare."""

        cell: Annotated[Path, tyro.conf.Positional]
        """a file cells/ID.json of a results folder"""
        trust: bool = False
        """run the code that the file names, if its task is none of the library's"""

    options = parse(Repeat, "bench repeat", argv)
    from ecop.bench import results, run

    before = results.read_cell(options.cell.parent.parent, options.cell.stem)
    same, after = run.repeat(before["cell"], before, trust=options.trust)
    evaluation = json.dumps(after["evaluation"])[:200]
    print(f"{options.cell.stem}: {evaluation} ...")
    if same:
        print("Identical: curve and evaluation are the same numbers.")
        return 0
    jax = before.get("versions", {}).get("jax")
    print(
        f"Different: the file was made by ecop {before.get('ecop')} "
        f"({before.get('commit')}, jax {jax})."
    )
    return 1


COMMANDS = {"list": list_command, "run": run_command, "repeat": repeat_command}
