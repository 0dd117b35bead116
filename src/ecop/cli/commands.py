"""What the command lines of `ecop`, `ecop bench` and `ecop exact` share."""

from __future__ import annotations

from collections.abc import Callable
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
    """Options of a command; tyro exits with code 2 and a hint on a bad one."""
    return tyro.cli(
        kind,
        prog=f"ecop {command}",
        args=argv,
        config=(tyro.conf.FlagCreatePairsOff,),
    )
