"""A cell: one algorithm with all its options on one task, for one seed.

It is plain JSON and says everything that decides the result, defaults included, so its
hash names the result: the same cell has the same name on every machine.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from ecop.bench.constants import constants
from ecop.bench.suites import Group, Suite
from ecop.config import RunConfig, from_document, resolve, to_json
from ecop.recipes import Preset

Cell = dict[str, Any]
# Options that came later and their defaults, left out so that cells keep their names.
ADDED = {"network": "mlp", "schedule": "constant"}


def make_cell(group: Group, suite: Suite, preset: Preset, seed: int) -> Cell:
    """The cell of a group with a seed: what a user would get, with the preset.

    The steps alone say when it ends, whatever the task's recipe has for iterations.
    The constants of the task are in it: after a change of them it is another cell.
    """
    budget = {"iterations": 0, "steps": suite.steps, **group.options}
    given = {**budget, "seeds": 1, "first_seed": seed, "limits": group.limits}
    algorithm, train, _ = resolve(
        group.task, group.algorithm, group.preset or preset, given
    )
    options = to_json(train)
    for name in [name for name, usual in ADDED.items() if options[name] == usual]:
        del options[name]
    return {
        "task": group.task,
        "env_options": group.env_options,
        "constants": constants(group.task, group.env_options, train.horizon),
        "algorithm": {"name": group.algorithm, **to_json(algorithm)},
        "train": options,
        "evaluation_episodes": suite.evaluation_episodes,
    }


def identity(cell: Cell) -> str:
    """The name of a cell: a hash of all it says."""
    text = json.dumps(cell, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def setting(cell: Cell) -> str:
    """The name of a cell whatever its seed: runs of one setting are comparable."""
    train = {k: v for k, v in cell["train"].items() if k != "first_seed"}
    return identity(cell | {"train": train})


def seed_of(cell: Cell) -> int:
    """The seed of a cell."""
    return cell["train"]["first_seed"]


def changed(cell: Cell) -> list[str]:
    """How the task's constants differ from those of a cell; none in older cells."""
    if "constants" not in cell:
        return []
    before = cell["constants"]
    options, horizon = cell["env_options"] or {}, cell["train"]["horizon"]
    now = constants(cell["task"], options, horizon)
    return [
        f"{name} was {before.get(name, 'not there')}, is {now.get(name, 'not there')}"
        for name in sorted(before | now)
        if before.get(name) != now.get(name)
    ]


def run_config(cell: Cell) -> RunConfig:
    """What training needs."""
    whole = cell | {"train": ADDED | cell["train"]}
    return from_document(whole)  # pyright: ignore[reportArgumentType]


def describe(cell: Cell) -> str:
    """A few words for people."""
    return f"{cell['task']} {cell['algorithm']['name']} seed {seed_of(cell)}"
