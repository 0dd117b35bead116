"""`ecop list`: tasks and algorithms."""

import sys

from ecop.cli.commands import parse
from ecop.envs import ENVS
from ecop.errors import UserError


def list_command(argv: list[str]) -> int:
    """Parse no options, print tasks and algorithms."""
    return parse(list_tasks, "list", argv)


def list_tasks() -> int:
    """List tasks (with their costs and limits) and algorithms."""
    from ecop.algorithms import ALGORITHMS
    from ecop.envs import make

    print("tasks")
    for name in ENVS:
        try:
            spec = make(name).spec
        except UserError as missing:
            print(f"  {name:19} {missing}")
            continue
        limits = ", ".join(f"{c.name} <= {c.limit:g}" for c in spec.constraints)
        print(f"  {name:19} H = {spec.horizon}, {limits}")
    print("algorithms")
    for name, kind in ALGORITHMS.items():
        summary = (sys.modules[kind.__module__].__doc__ or "").split("\n")[0]
        print(f"  {name:19} {summary}")
    return 0
