"""`ecop show`: the options that apply, and where each comes from."""

from __future__ import annotations

from typing import Annotated

import tyro

from ecop.cli.commands import parse
from ecop.envs import ENVS
from ecop.errors import UserError, unknown
from ecop.recipes import Preset

HIDDEN = ("limits", "horizon")  # None stands for the task's own, shown above


def show_command(argv: list[str]) -> int:
    """Print every option of a task and an algorithm."""

    def options(
        task: Annotated[str, tyro.conf.Positional],
        algorithm: Annotated[str, tyro.conf.Positional] = "ecop",
        preset: Preset = "default",
    ) -> tuple[str, str, Preset]:
        """Show what 'ecop train TASK ALGORITHM' would do, and why.

        Args:
            task: a task of 'ecop list'; others have the defaults
            algorithm: an algorithm of 'ecop list'
            preset: "paper" for the values of the e-COP paper

        """
        return task, algorithm, preset

    task, algorithm, preset = parse(options, "show", argv)
    if task not in ENVS and ":" not in task:
        raise UserError(unknown("task", task, ENVS))
    from ecop.config import resolve
    from ecop.envs import make
    from ecop.learning.options import values

    found = resolve(task, algorithm, preset)
    extra = "" if preset == "default" else f" --preset {preset}"
    print(f"ecop train {task} {algorithm}{extra}")
    if task in ENVS:
        spec = make(task).spec
        limits = ", ".join(f"{c.name} <= {c.limit:g}" for c in spec.constraints)
        print(f"  H = {spec.horizon}, {limits}")
    for title, part in (("training", found.train), (algorithm, found.algorithm)):
        print(f"{title}")
        for name, value in values(part).items():
            if name in HIDDEN:
                continue
            shown = " ".join(map(str, value)) if isinstance(value, tuple) else value
            option = f"--{name.replace('_', '-')}"
            print(f"  {option:26} {shown!s:14} {found.origin[name]}")
    return 0
