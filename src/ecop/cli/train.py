"""`ecop train`: options from the task, the algorithm and the preset, then training."""

import dataclasses
import importlib
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from ecop.cli.commands import parse
from ecop.envs import ENVS, OPTIONS
from ecop.errors import UserError, unknown
from ecop.simulators.processes import interpreter
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
    from ecop.warm import shape_of

    start = early_option(argv, "--start")
    begun = {} if start is None else shape_of(start)
    usual = resolve(task, name, early_option(argv, "--preset") or "default", begun)
    env_kind, train_kind = env_options(task), type(usual.train)
    kind = type(usual.algorithm)

    def options(
        env: Annotated[env_kind, tyro.conf.arg(name="")],  # pyright: ignore
        train: Annotated[train_kind, tyro.conf.arg(name="")] = usual.train,  # pyright: ignore
        algorithm: Annotated[kind, tyro.conf.arg(name="")] = usual.algorithm,  # pyright: ignore
        where: Annotated[Where, tyro.conf.arg(name="")] = Where(),  # noqa: B008
        out: Path | None = None,
        preset: Preset = "default",
        start: Path | None = None,
        watch: tuple[Literal["tensorboard", "wandb"], ...] = (),
        patience: int = 0,
    ) -> tuple[Any, ...]:
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
            start: run folder of the same task, whose policies, critics and statistics
                of observations the new run begins with
            watch: log metrics for TensorBoard (to OUT/tensorboard) or W&B;
                'ecop watch OUT' shows a run in a browser
            patience: stop when all limits are kept and the reward has not risen for so
                many iterations; 0: never

        """
        return train, algorithm, env, where, out, watch, patience, start

    train, algorithm, env, where, out, watch, patience, start = parse(
        options, "train TASK [ALGORITHM]", argv
    )
    from ecop import api
    from ecop.cli.display import fit
    from ecop.watching import StopOnPlateau

    stopping = [StopOnPlateau(patience)] if patience else []
    seen = ["progress", *watch, *stopping]
    stem = re.sub(r"[^\w.-]+", "-", task)
    out = out or free_folder(Path("runs"), f"{stem}-{name}")
    fields = {f.name: getattr(train, f.name) for f in dataclasses.fields(train)}
    fields |= dataclasses.asdict(where)
    return fit(
        out,
        lambda: api.train(
            task,
            algorithm,
            env_options=env_fields(env),
            out=out,
            start=start,
            watch=seen,
            **fields,
        ),
    )


def early_option(argv: list[str], name: str) -> Any:
    """The value of an option that decides the defaults of the others; None without."""
    for i, word in enumerate(argv):
        if word == name:
            return argv[i + 1] if i + 1 < len(argv) else ""
        if word.startswith(f"{name}="):
            return word.removeprefix(f"{name}=")
    return None


@dataclass(frozen=True)
class GymnasiumOptions:
    """Where the costs of a Gymnasium environment are, and where it runs."""

    costs: tuple[str, ...] | None = None
    """keys of info, "tuple" (6-tuple step), NAME=-reward.1 (entry 1 of a vector reward,
    times -1), or module:function; default: found out"""
    workers: int = 0
    """processes to run the episodes in; 0: this one"""
    timeout: float = 60.0
    """seconds after which a step that has not returned counts as hung"""
    python: str | None = None
    """another Python, with the environment's packages, to run it in: a path such as
    OTHER_VENV/bin/python, or the virtual environment; default: this one"""


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
    if "costs" in given:
        given["costs"] = list(given["costs"])
    if "python" in given:
        given["python"] = interpreter(given["python"])
    return given


def free_folder(parent: Path, stem: str) -> Path:
    """The first parent/stem-N that does not exist."""
    number = 1
    while os.path.lexists(parent / f"{stem}-{number}"):
        number += 1
    return parent / f"{stem}-{number}"
