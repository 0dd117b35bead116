"""The results folder: plain files, named by hashes, merged by copying.

    plans/SUITE-HASH.json   what was asked for: groups, their cells, missing tasks
    cells/ID.json           a finished cell: config, curve, evaluation, versions
    failed/ID.json          a failed cell: its traceback
    clips/ID.gif            an episode of a policy, where the task can be drawn
    runs/ID/                the run folder (checkpoints); only needed to go on

Two machines that ran different cells make one result: copy both folders into one. What
cannot be read, or is not what its name says, is reported and left out.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, TypedDict

from ecop import files
from ecop.bench.cells import identity
from ecop.config import Document
from ecop.errors import UserError
from ecop.files import Count, Name, Within

FORMAT = 1  # of the files; raised when an older ecop could not read a new one
PARTS = ("plans", "cells", "failed", "clips", "runs")

Seconds = Annotated[float, Within(0, 1e12)]


class NewerConfig(Document, total=False):
    """What newer cells have too."""

    constants: dict[str, Name]


class CellConfig(NewerConfig):
    """The config of a cell."""

    evaluation_episodes: Annotated[int, Within(1, 10**6)]


class CurveFields(TypedDict):
    """Metrics by iteration [K]."""

    iteration: list[Count]
    reward: list[float]
    costs: list[list[float]]


class Curve(CurveFields, total=False):
    """What newer curves have too."""

    env_steps: list[Count]


class EvaluatedFields(TypedDict):
    """Fresh episodes [E]."""

    reward: list[float]
    costs: list[list[float]]


class Evaluated(EvaluatedFields, total=False):
    """What newer evaluations have too."""

    env_steps: Count
    failed: Annotated[float, Within(0, 1)]


class Mark(Evaluated):
    """An evaluation at a share of the steps."""

    share: Annotated[float, Within(0, 1)]


class NewerTruth(TypedDict, total=False):
    """What newer cells have too."""

    worst: float


class Truth(NewerTruth):
    """A tabular task: its optimum, and what the policy reaches."""

    optimum: float
    value: float
    costs: list[float]


class Origin(TypedDict, total=False):
    """What made a file."""

    ecop: Name
    commit: Name | None
    versions: dict[str, Name]


class More(Origin, total=False):
    """What newer cells have too."""

    horizon: Count
    deterministic: Evaluated | None
    evaluations: list[Mark]


class CellFile(More):
    """cells/ID.json."""

    id: Name
    cell: CellConfig
    costs: list[Name]
    curve: Curve
    env_steps: Count
    evaluation: Evaluated
    limits: list[float | None]
    seconds: Seconds
    start_up: Seconds
    exact: Truth | None


class FailedFile(Origin):
    """failed/ID.json."""

    id: Name
    cell: CellConfig
    error: str


class Group(TypedDict):
    """A group of a plan."""

    section: Name
    task: Name
    algorithm: Name
    variant: Name
    limits: list[float | None]
    setting: Name
    cells: list[Name]


class PlanFile(TypedDict):
    """plans/SUITE-HASH.json."""

    suite: Name
    groups: list[Group]


class Plan(PlanFile, total=False):
    """What newer plans have too."""

    command: Name
    missing: dict[str, Name]


KINDS = {"plans": Plan, "cells": CellFile, "failed": FailedFile}


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
        for part in KINDS
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
        document, intact = files.read(file, dict[str, Any])
        found = document.get("format")
        if isinstance(found, int) and found > FORMAT:
            problems.append(f"{where} was written by a newer ecop and was left out.")
            return None
        if intact is False:
            raise UserError("its checksum does not match")
        files.conform(document, KINDS[part])
        CHECKS[part](document)
        if part != "plans":
            check_name(document, file.stem)
    except UserError as error:
        why = str(error).removeprefix(f"'{file}' is damaged: ").rstrip(".")
        problems.append(f"{where} is damaged and was left out: {why}.")
        return None
    return document


def check_name(document: dict[str, Any], name: str) -> None:
    """Refuse a cell under another name than the hash of its config."""
    if document["id"] != name:
        raise UserError(f"it is a copy of {document['id']}, or was renamed")
    if identity(document["cell"]) != name:
        raise UserError("its config is not the one that its name stands for")


def check_cell(document: dict[str, Any]) -> None:
    """Refuse arrays that do not fit together."""
    train, count = document["cell"]["train"], len(document["limits"])
    evaluations = [document["evaluation"], *fresh(document)]
    evaluations += filter(None, [document.get("deterministic")])
    curve = document["curve"]
    points = len(curve["iteration"])
    sound = [
        len(document["costs"]) == count,
        {len(costs) for costs in curve["costs"]} == {count},
        len(curve["reward"]) == len(curve["costs"]) == points,
        document.get("exact") is None or len(document["exact"]["costs"]) == count,
        points > 0,
    ]
    if not all(sound):
        raise UserError("its arrays do not fit together")
    for part in evaluations:
        check_evaluated(part, count)
    ends = steps(document)
    if len(ends) != points or ends[0] < 1 or any(a >= b for a, b in pairwise(ends)):
        raise UserError("the steps of its curve do not grow from point to point")
    for name in ("iterations", "steps", "episodes", "first_seed"):
        if name != "steps" or name in train:  # files of before have no such option
            size = Annotated[int, Within(0, 2**32)]
            files.conform(train.get(name), size, f"train.{name}")
    files.conform(document["cell"]["algorithm"].get("name"), Name, "algorithm.name")


def check_evaluated(part: dict[str, Any], count: int) -> None:
    """Refuse an evaluation without episodes, or with other costs than `count`."""
    rewards, costs = part["reward"], part["costs"]
    if not rewards or len(costs) != len(rewards) or {len(x) for x in costs} != {count}:
        raise UserError("the arrays of an evaluation do not fit together")


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


def check_failed(document: dict[str, Any]) -> None:
    """Refuse a traceback that is no text."""
    files.conform(document.get("traceback", ""), str, "traceback")


CHECKS = {"plans": lambda _: None, "cells": check_cell, "failed": check_failed}


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
    text = files.sealed({"format": FORMAT, **document})
    files.write(folder / part / f"{name}.json", text)


def write_plan(folder: Path, plan: dict[str, Any]) -> None:
    """Keep what was asked for; the same question is kept once."""
    text = json.dumps(plan, sort_keys=True)
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    write(folder, "plans", f"{plan['suite']}-{digest}", plan)
