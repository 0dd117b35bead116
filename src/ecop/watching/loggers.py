"""Metrics for TensorBoard and Weights & Biases, every iteration of every seed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from statistics import fmean
from typing import Any

from ecop.errors import UserError
from ecop.watching import Quiet

APART = ("seed", "iteration", "costs", "limits", "multipliers")


def scalars(
    line: dict[str, Any], costs: tuple[str, ...]
) -> Iterator[tuple[str, float]]:
    """The numbers of a line of metrics by name; costs, limits, prices by cost."""
    for name, value in line.items():
        if name not in APART and isinstance(value, int | float):
            yield name, value
    for name, kind in (("cost", "costs"), ("limit", "limits")):
        for cost, value in zip(costs, line[kind], strict=True):
            if value is not None:
                yield f"{name}/{cost}", value
    for cost, value in zip(costs, line["multipliers"], strict=True):
        yield f"multiplier/{cost}", value


class Logger(Quiet):
    """Hands on the lines of metrics that are new."""

    seen = 0  # lines of metrics; those of a run that goes on are not repeated

    def began(self, run: Any) -> None:
        """Open what is written to."""
        self.seen = len(run.metrics)

    def advanced(self, run: Any) -> str | None:
        """Log the new iterations."""
        seeds = len(run.states)
        for start in range(self.seen, len(run.metrics), seeds):
            self.log(run.metrics[start : start + seeds], run.learner.spec.cost_names)
        self.seen = len(run.metrics)

    def log(self, lines: list[dict[str, Any]], costs: tuple[str, ...]) -> None:
        """Write an iteration: a line per seed."""
        raise NotImplementedError


class TensorBoard(Logger):
    """Event files, one folder per seed; `tensorboard --logdir FOLDER` shows them.

    folder: default: RUN/tensorboard
    """

    def __init__(self, folder: str | Path | None = None) -> None:
        self.folder = None if folder is None else Path(folder)
        self.writers: dict[int, Any] = {}
        try:
            from tensorboardX import SummaryWriter
        except ImportError:
            raise UserError(
                "The watch needs tensorboardX: pip install 'ecop[tensorboard]'"
            ) from None
        self.make = SummaryWriter

    def began(self, run: Any) -> None:
        """Open a file per seed."""
        super().began(run)
        if self.folder is None and run.path is None:
            raise UserError(
                "Where should TensorBoard's files go? Give the run a folder (out=...), "
                "or the watch: ecop.watching.TensorBoard(folder)."
            )
        folder = self.folder or run.path / "tensorboard"
        first = run.config.train.first_seed
        for seed in range(first, first + len(run.states)):
            self.writers[seed] = self.make(str(folder / f"seed{seed}"))

    def log(self, lines: list[dict[str, Any]], costs: tuple[str, ...]) -> None:
        """Write an iteration."""
        for line in lines:
            writer = self.writers[line["seed"]]
            for name, value in scalars(line, costs):
                writer.add_scalar(name, value, line["iteration"])

    def ended(self, run: Any) -> None:
        """Flush and close the files."""
        while self.writers:
            self.writers.popitem()[1].close()


class WandB(Logger):
    """A run of Weights & Biases: means over seeds, and each seed under its name.

    options: arguments of `wandb.init`, such as mode="offline"; project is "ecop" and
        dir RUN unless they are given
    """

    def __init__(self, **options: Any) -> None:
        self.options = options
        self.run: Any = None
        try:
            import wandb
        except ImportError:
            raise UserError(
                "The watch needs wandb: pip install 'ecop[wandb]'"
            ) from None
        self.wandb = wandb

    def began(self, run: Any) -> None:
        """Start the run."""
        super().began(run)
        from ecop.config import algorithm_name, to_json

        config = run.config
        usual = {
            "project": "ecop",
            "name": run.path.name if run.path else None,
            "dir": None if run.path is None else str(run.path),
            "config": {
                "task": config.task,
                "algorithm": algorithm_name(config.algorithm),
                **to_json(config.algorithm),
                **to_json(config.train),
            },
        }
        self.run = self.wandb.init(**usual | self.options)

    def log(self, lines: list[dict[str, Any]], costs: tuple[str, ...]) -> None:
        """Write an iteration."""
        each = {line["seed"]: dict(scalars(line, costs)) for line in lines}
        entry = {
            name: fmean(found[name] for found in each.values())
            for name in next(iter(each.values()))
        }
        for seed, found in each.items():
            entry |= {f"seed{seed}/{name}": value for name, value in found.items()}
        self.run.log(entry, step=lines[0]["iteration"])

    def ended(self, run: Any) -> None:
        """Finish the run."""
        if self.run is not None:
            self.run.finish()
            self.run = None
