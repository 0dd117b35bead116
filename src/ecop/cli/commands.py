"""What the commands share: dispatch, options, and loading a run."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tyro

from ecop.errors import UserError, unknown

Commands = dict[str, Callable[[list[str]], int]]


def dispatch(argv: list[str], commands: Commands, usage: str) -> int:
    """Run the command that argv begins with; return the exit code."""
    if not argv or argv[0] in ("-h", "--help"):
        print(usage, end="")
        return 0
    if argv[0] not in commands:
        raise UserError(unknown("command", argv[0], commands))
    return commands[argv[0]](argv[1:])


def parse(kind: Any, command: str, argv: list[str]) -> Any:
    """Call `kind` with the options; tyro exits with code 2 and a hint on a bad one."""
    return tyro.cli(
        kind,
        prog=f"ecop {command}",
        args=argv,
        config=(tyro.conf.FlagCreatePairsOff, tyro.conf.OmitArgPrefixes),
    )


def load(path: Path, *, trust: bool) -> Any:
    """Load a run; sentences about damaged files go to standard error."""
    from ecop import api
    from ecop.watching import Quiet

    class Stderr(Quiet):
        def note(self, text: str) -> None:
            print(f"ecop: {text}", file=sys.stderr)

    return api.load(path, trust=trust, watch=Stderr())
