"""`ecop exact report` and `ecop exact frontier`: the command line of the truth."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from ecop.cli.commands import dispatch, parse
from ecop.errors import UserError, unknown

USAGE = """\
usage: ecop exact COMMAND ...

Tabular problems, whose optimum is known.

commands:
  report      e-COP against the exact optimum on all problems: table and figure
  frontier    optimal reward against the limit, its slope, and what e-COP reaches:
              ecop exact frontier Inventory

'ecop exact COMMAND --help' explains a command and all its options.
"""


def exact_command(argv: list[str]) -> int:
    """Run one command; return the exit code."""
    return dispatch(argv, COMMANDS, USAGE)


def report_command(argv: list[str]) -> int:
    """Print the table of e-COP against the truth; say where the files are."""

    @dataclass
    class Report:
        """Train e-COP on every tabular problem and compare it with the exact optimum.

        A report that was stopped goes on where it was when given the same folder.
        """

        out: Path = Path("exact-report")
        """folder for cells.jsonl, table.md and figure.png"""
        quick: bool = False
        """a tiny budget on a few problems, to see that everything works"""

    options = parse(Report, "exact report", argv)
    if options.out.exists() and not options.out.is_dir():
        raise UserError(f"'{options.out}' is a file; --out wants a folder.")
    from rich.console import Console
    from rich.table import Table

    from ecop.api import configure_jax
    from ecop.exact.compare import report

    configure_jax()
    header, *rows = report(
        options.out, fast=options.quick, say=lambda text: print(text, flush=True)
    )
    table = Table(title="e-COP against the exact optimum")
    for number, name in enumerate(header):
        table.add_column(
            name, justify="left" if number < 2 else "right", no_wrap=number < 2
        )
    for row in rows:
        table.add_row(*row)
    Console(width=None if sys.stdout.isatty() else 160).print(table)
    for name in ("table.md", "figure.png", "cells.jsonl"):
        print(options.out / name)
    return 0


def frontier_command(argv: list[str]) -> int:
    """Draw the frontier of a task with the points that e-COP reaches."""

    @dataclass
    class Frontier:
        """Draw the optimal reward against the limit, its slope, and e-COP's points.

        e-COP is trained at each of the limits and its last policy evaluated exactly.
        """

        task: Annotated[str, tyro.conf.Positional]
        """a tabular task, such as Inventory"""
        points: int = 5
        """limits at which e-COP is trained; 0 draws the frontier alone"""
        out: Path | None = None
        """picture to write; default: TASK-frontier.png"""
        quick: bool = False
        """train with a tiny budget, to see that everything works"""

    options = parse(Frontier, "exact frontier", argv)
    from ecop.exact.problems import PROBLEMS

    if options.task not in PROBLEMS:
        raise UserError(unknown("tabular task", options.task, PROBLEMS))
    if options.points < 0:
        raise UserError(f"--points must be 0 or more, not {options.points}.")
    from ecop.api import configure_jax
    from ecop.exact.compare import trained_frontier

    configure_jax()
    file = options.out or Path(f"{options.task}-frontier.png")
    trained_frontier(
        PROBLEMS[options.task](),
        file,
        points=options.points,
        fast=options.quick,
        say=lambda text: print(text, flush=True),
    )
    print(file)
    return 0


COMMANDS = {"report": report_command, "frontier": frontier_command}
