"""The results folder: plain files, named by hashes, merged by copying.

    plans/SUITE-HASH.json   what was asked for: groups, their cells, missing tasks
    cells/ID.json           a finished cell: config, curve, evaluation, versions
    failed/ID.json          a failed cell: its traceback
    clips/ID.gif            an episode of a policy, where the task can be drawn
    runs/ID/                the run folder (checkpoints); only needed to go on

Two machines that ran different cells make one result: copy both folders into one. What
cannot be read is reported, never a crash.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ecop.errors import UserError
from ecop.runs import write_atomically

FORMAT = 1  # of the files; raised when an older ecop could not read a new one
CELL = ("id", "cell", "costs", "curve", "env_steps", "evaluation", "limits")
CELL = (*CELL, "seconds", "start_up")
FAILED = ("id", "cell", "error")
FIELDS = {"plans": ("suite", "groups"), "cells": CELL, "failed": FAILED}
GROUP = ("section", "task", "algorithm", "variant", "limits", "setting", "cells")
PARTS = ("plans", "cells", "failed", "clips", "runs")


@dataclass(frozen=True)
class Results:
    """What a results folder holds.

    Attributes:
        cells: finished cells by name
        plans: what was asked for
        failed: failed cells by name
        problems: one sentence for each file that could not be used
    """

    folder: Path
    cells: dict[str, dict[str, Any]]
    plans: list[dict[str, Any]]
    failed: dict[str, dict[str, Any]]
    problems: list[str]


def refuse_foreign(folder: Path) -> None:
    """Refuse a folder that holds something else."""
    if not folder.is_dir():
        raise UserError(f"'{folder}' is a file; results need a folder.")
    names = {entry.name for entry in folder.iterdir()}
    if names and not names & set(PARTS):
        raise UserError(
            f"'{folder}' holds other things and no results; choose another folder."
        )


def prepare(folder: Path) -> None:
    """Make the folder and its parts."""
    for part in PARTS:
        (folder / part).mkdir(parents=True, exist_ok=True)


def read(folder: Path) -> Results:
    """All that can be read of a results folder."""
    if not folder.is_dir():
        raise UserError(f"There is no folder '{folder}'.")
    if not any((folder / part).is_dir() for part in PARTS):
        raise UserError(
            f"'{folder}' holds no results: it has none of the folders "
            f"{', '.join(PARTS)}. Make some by 'ecop bench run SUITE --out {folder}'."
        )
    problems: list[str] = []
    plans, cells, failed = (
        [_document(file, problems) for file in sorted((folder / part).glob("*.json"))]
        for part in FIELDS
    )
    done = {cell["id"]: cell for cell in cells if cell}
    return Results(
        folder,
        done,
        [plan for plan in plans if plan],
        {f["id"]: f for f in failed if f and f["id"] not in done},
        problems,
    )


def _document(file: Path, problems: list[str]) -> dict[str, Any] | None:
    part = file.parent.name
    where = f"{part}/{file.name}"
    try:
        document = json.loads(file.read_text())
        if document["format"] > FORMAT:
            problems.append(f"{where} was written by a newer ecop and was left out.")
            return None
        missing = [name for name in FIELDS[part] if name not in document]
        if missing:
            problems.append(f"{where} lacks {', '.join(missing)} and was left out.")
            return None
        CHECKS[part](document)
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        problems.append(f"{where} is damaged or cut short and was left out.")
        return None
    return document


def check_plan(document: dict[str, Any]) -> None:
    """Raise unless every group is whole."""
    whole = all(set(GROUP) <= set(group) for group in document["groups"])
    if not (whole and isinstance(document.get("missing", {}), dict)):
        raise ValueError


def check_cell(document: dict[str, Any]) -> None:
    """Raise unless the arrays of a cell fit together."""
    cell, count = document["cell"], len(document["limits"])
    evaluation, curve = document["evaluation"], document["curve"]
    episodes, points = len(evaluation["reward"]), len(curve["iteration"])
    sound = [
        {"iterations", "episodes", "first_seed"} <= set(cell["train"]),
        "task" in cell and "name" in cell["algorithm"],
        len(document["costs"]) == count,
        np.shape(evaluation["costs"]) == (episodes, count),
        np.shape(curve["reward"]) == (points,),
        np.shape(curve["costs"]) == (points, count),
        min(episodes, points) > 0,
    ]
    if not all(sound):
        raise ValueError
    ends = steps(document)
    sound = [len(ends) == points, np.all(np.diff(ends, prepend=0) > 0)]
    for part in (*fresh(document), *filter(None, [document.get("deterministic")])):
        shape = len(part["reward"]), count
        sound.append(np.shape(part["costs"]) == shape and shape[0] > 0)
    if not all(sound):
        raise ValueError


def steps(document: dict[str, Any]) -> list[int]:
    """Environment steps at each point of a cell's curve.

    Files of before they were recorded have batches of one size.
    """
    curve = document["curve"]
    if "env_steps" in curve:
        return curve["env_steps"]
    last = max(curve["iteration"][-1], 1)
    return [document["env_steps"] * k // last for k in curve["iteration"]]


def fresh(document: dict[str, Any]) -> list[dict[str, Any]]:
    """Evaluations at shares of the steps; of old files that of the last policy."""
    last = {"share": 1.0, "env_steps": document["env_steps"], **document["evaluation"]}
    return document.get("evaluations", [last])


CHECKS = {"plans": check_plan, "cells": check_cell, "failed": lambda _: None}


def read_cell(folder: Path, name: str) -> dict[str, Any]:
    """One finished cell."""
    problems: list[str] = []
    document = _document(folder / "cells" / f"{name}.json", problems)
    if document is None:
        raise UserError(f"In '{folder}': {problems[0]}")
    return document


def finished(folder: Path, name: str) -> bool:
    """Whether a cell has a result that can be read."""
    file = folder / "cells" / f"{name}.json"
    return file.exists() and _document(file, []) is not None


def write(folder: Path, part: str, name: str, document: dict[str, Any]) -> None:
    """Write a file of the folder in one step."""
    (folder / part).mkdir(parents=True, exist_ok=True)
    text = json.dumps({"format": FORMAT, **document}, allow_nan=False)
    write_atomically(folder / part / f"{name}.json", text + "\n")


def write_plan(folder: Path, plan: dict[str, Any]) -> None:
    """Keep what was asked for; the same question is kept once."""
    text = json.dumps(plan, sort_keys=True)
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    write(folder, "plans", f"{plan['suite']}-{digest}", plan)


@contextmanager
def locked(folder: Path, name: str) -> Iterator[None]:
    """Be the only process that works on a cell; wait until no other does."""
    (folder / "runs").mkdir(parents=True, exist_ok=True)
    with (folder / "runs" / f"{name}.lock").open("w") as handle:
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                time.sleep(0.2)
        yield
