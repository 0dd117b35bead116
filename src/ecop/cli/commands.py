"""What the commands share: dispatch, options, and loading a run."""

from __future__ import annotations

import itertools
import re
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
    refuse_words(argv)
    return tyro.cli(
        kind,
        prog=f"ecop {command}",
        args=argv,
        config=(
            tyro.conf.FlagCreatePairsOff,
            tyro.conf.OmitArgPrefixes,
            tyro.conf.DisallowNone,
        ),
    )


def refuse_words(argv: list[str]) -> None:
    """Refuse limits that are no numbers; say what a limit is."""
    for i, option in enumerate(argv):
        name, _, first = option.partition("=")
        if name != "--limits":
            continue
        given = itertools.takewhile(lambda x: not re.match("-+[a-z]", x), argv[i + 1 :])
        for word in [first] if first else given:
            try:
                float(word)
            except ValueError:
                raise UserError(
                    f"A limit is a number, the most that a cost may be on average when "
                    f"summed over an episode, not '{word}'; one per cost, 'inf' "
                    "switches a constraint off."
                ) from None


def load(path: Path, *, trust: bool) -> Any:
    """Load a run; sentences about damaged files go to standard error."""
    from ecop import api
    from ecop.watching import Quiet

    class Stderr(Quiet):
        def note(self, text: str) -> None:
            print(f"ecop: {text}", file=sys.stderr)

    return api.load(path, trust=trust, watch=Stderr())
