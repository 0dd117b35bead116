"""`ecop train`: options from the task, the algorithm and the preset, then training."""

import dataclasses
import importlib
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from ecop.cli.commands import parse
from ecop.envs import ENVS, OPTIONS
from ecop.errors import UserError, unknown
from ecop.simulators.where import Where


def train_command(argv: list[str]) -> int:
    """Parse `TASK [ALGORITHM] options`, train, say where the results are."""
    if not argv or argv[0].startswith("-"):
        if "-h" in argv or "--help" in argv:
            argv = [next(iter(ENVS)), *argv]
        else:
            raise UserError(f"Which task? ecop train TASK; known: {', '.join(ENVS)}.")
    task, argv = argv[0], argv[1:]
    if task not in ENVS and ":" not in task:
        raise UserError(unknown("task", task, ENVS))
    name = "ecop"
    if argv and not argv[0].startswith("-"):
        name, argv = argv[0], argv[1:]

    from ecop.config import resolve
    from ecop.recipes import Preset

    usual = resolve(task, name, preset_option(argv))
    env_kind, train_kind = env_options(task), type(usual.train)
    kind = type(usual.algorithm)

    def options(
        env: Annotated[env_kind, tyro.conf.arg(name="")],  # pyright: ignore
        train: Annotated[train_kind, tyro.conf.arg(name="")] = usual.train,  # pyright: ignore
        algorithm: Annotated[kind, tyro.conf.arg(name="")] = usual.algorithm,  # pyright: ignore
        where: Annotated[Where, tyro.conf.arg(name="")] = Where(),  # noqa: B008
        out: Path | None = None,
        preset: Preset = "default",
    ) -> tuple[Any, Any, Any, Any, Path | None]:
        """Train an algorithm (default: ecop) on a task; see 'ecop list' for both.

        Args:
            train: how to train
            algorithm: options of the algorithm
            env: options of the task
            where: where simulators play; no result depends on it
            out: folder for config, metrics and checkpoints;
                default: runs/TASK-ALGORITHM-N
            preset: "paper" has the values of the e-COP paper in place of the defaults
                and of the task's recipe; other options still override them

        """
        return train, algorithm, env, where, out

    train, algorithm, env, where, out = parse(options, "train TASK [ALGORITHM]", argv)
    from ecop import api
    from ecop.cli.display import fit

    stem = re.sub(r"[^\w.-]+", "-", task)
    out = out or free_folder(Path("runs"), f"{stem}-{name}")
    fields = {f.name: getattr(train, f.name) for f in dataclasses.fields(train)}
    fields |= dataclasses.asdict(where)
    return fit(
        f"{task} {name}",
        out,
        lambda w: api.train(
            task, algorithm, env_options=env_fields(env), out=out, watch=w, **fields
        ),
    )


def preset_option(argv: list[str]) -> Any:
    """The value of --preset, which decides the defaults of the other options."""
    for i, word in enumerate(argv):
        if word == "--preset":
            return argv[i + 1] if i + 1 < len(argv) else ""
        if word.startswith("--preset="):
            return word.removeprefix("--preset=")
    return "default"


@dataclass(frozen=True)
class GymnasiumOptions:
    """Where the costs of a Gymnasium environment are, and where it runs."""

    costs: tuple[str, ...] | None = None
    """keys of info, "tuple" (6-tuple step), or module:function; default: found out"""
    workers: int = 0
    """processes to run the episodes in; 0: this one"""
    timeout: float = 60.0
    """seconds after which a step that has not returned counts as hung"""


@dataclass(frozen=True)
class NoOptions:
    """Most tasks of the library have none."""


def env_options(task: str) -> type:
    """The class of a task's own options."""
    if ":" in task:
        return GymnasiumOptions
    if task not in OPTIONS:
        return NoOptions
    module, _, name = OPTIONS[task].partition(":")
    return getattr(importlib.import_module(module), name)


def env_fields(options: Any) -> dict[str, Any]:
    """The options that are not the defaults, for `ecop.envs.make`, as JSON has them."""
    given = {
        f.name: getattr(options, f.name)
        for f in dataclasses.fields(options)
        if getattr(options, f.name) != f.default
    }
    return given | ({"costs": list(given["costs"])} if "costs" in given else {})


def free_folder(parent: Path, stem: str) -> Path:
    """The first parent/stem-N that does not exist."""
    number = 1
    while os.path.lexists(parent / f"{stem}-{number}"):
        number += 1
    return parent / f"{stem}-{number}"
