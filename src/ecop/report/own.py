"""A user's own training runs, as if they were cells of a suite: `ecop report RUN...`.

Fresh episodes of every seed's policy are played for it; nothing is written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ecop import runs
from ecop.api import Run
from ecop.bench.results import Results
from ecop.bench.work import curve, exact, rounded
from ecop.config import algorithm_name, to_json
from ecop.errors import UserError

SECTION = "runs"
ORIGIN = ("ecop", "commit", "versions")


def is_run(path: Path) -> bool:
    """Whether a folder is one of a training run."""
    return (path / "config.json").is_file()


def read(paths: Sequence[Path], episodes: int, load: Callable[[Path], Run]) -> Results:
    """The runs as results, with as many fresh episodes of each policy.

    load: how a run is loaded, and whether code that it names is trusted
    """
    if len({path.resolve() for path in paths}) < len(paths):
        raise UserError("A run folder is given twice.")
    loaded = {path: load(path) for path in paths}
    names = [(run.config.task, type(run.config.algorithm)) for run in loaded.values()]
    cells: dict[str, dict[str, Any]] = {}
    groups, notes = [], []
    for path, run in loaded.items():
        if not run.metrics:
            raise UserError(f"'{path}' has no metrics yet; train it for a while first.")
        found = documents(path, run, episodes)
        cells |= {document["id"]: document for document in found}
        alone = names.count((run.config.task, type(run.config.algorithm))) == 1
        groups.append(
            {
                "section": SECTION,
                "task": run.config.task,
                "algorithm": algorithm_name(run.config.algorithm),
                "variant": "" if alone else path.as_posix(),
                "limits": found[0]["limits"],
                "setting": path.as_posix(),
                "cells": [document["id"] for document in found],
            }
        )
        if not run.finished:
            total = run.learner.iterations
            notes.append(f"{path} is at iteration {run.iteration} of {total}.")
    words = " ".join(path.as_posix() for path in paths)
    plan = {"suite": SECTION, "groups": groups, "command": f"ecop report {words}"}
    return Results(paths[0].parent, cells, [plan], {}, notes)


def documents(path: Path, run: Run, episodes: int) -> list[dict[str, Any]]:
    """A document for each seed, as the file of a cell has it."""
    found = run.evaluate(episodes)
    config, spec = run.config, run.learner.spec
    algorithm = {"name": algorithm_name(config.algorithm), **to_json(config.algorithm)}
    train = to_json(config.train)
    record: dict[str, Any] = {**runs.read_document(path)}
    origin = {name: record[name] for name in ORIGIN if name in record}
    made = []
    for i, state in enumerate(run.states):
        seed = config.train.first_seed + i
        lines = [line for line in run.metrics if line["seed"] == seed]
        made.append(
            {
                "id": f"{path.as_posix()}, seed {seed}",
                "cell": {
                    "task": config.task,
                    "env_options": config.env_options,
                    "algorithm": algorithm,
                    "train": train | {"seeds": 1, "first_seed": seed},
                    "evaluation_episodes": episodes,
                },
                "costs": list(spec.cost_names),
                "limits": lines[-1]["limits"],
                "horizon": spec.horizon,
                "env_steps": lines[-1]["env_steps"],
                "curve": curve(lines),
                "evaluation": {
                    "reward": rounded(found.reward[i]),
                    "costs": rounded(found.costs[i]),
                    "failed": float(found.failed[i].mean()),
                },
                "exact": exact(run.learner, state),
                "seconds": lines[-1]["seconds"],
                "start_up": lines[0]["seconds"],
                **origin,
            }
        )
    return made
