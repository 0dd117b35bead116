"""A cell: one algorithm with all its options on one task, for one seed.

It is plain JSON and says everything that decides the result, defaults included, so its
hash names the result: the same cell has the same name on every machine.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from ecop.algorithms import ALGORITHMS
from ecop.bench.suites import BATCH, Group, Suite
from ecop.config import RunConfig, from_json, to_json
from ecop.recipes import PRESETS, Kind, Preset, preset
from ecop.training import TrainConfig

Cell = dict[str, Any]


def make_cell(group: Group, suite: Suite, kind: Kind, seed: int) -> Cell:
    """The cell of a group with a seed; `kind` is the preset of its options."""
    values = preset_of(kind, group.algorithm) if group.preset else Preset({}, {})
    algorithm = ALGORITHMS[group.algorithm](**{**values.options, **group.options})
    train: dict[str, Any] = {**values.train, **group.train}
    episodes = train.get("episodes", TrainConfig.episodes)
    train.setdefault("iterations", max(1, suite.iterations * BATCH // episodes))
    config = TrainConfig(seeds=1, first_seed=seed, limits=group.limits, **train)
    return {
        "task": group.task,
        "env_options": {},
        "algorithm": {"name": group.algorithm, **to_json(algorithm)},
        "train": to_json(config),
        "evaluation_episodes": suite.evaluation_episodes,
    }


def preset_of(kind: Kind, algorithm: str) -> Preset:
    """The preset, or nothing where it has no entry (the paper's table lacks e-COP)."""
    if kind in PRESETS and algorithm not in PRESETS[kind]:
        return Preset({}, {})
    return preset(kind, algorithm)


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


def run_config(cell: Cell) -> RunConfig:
    """What training needs."""
    fields = dict(cell["algorithm"])
    kind = ALGORITHMS[fields.pop("name")]
    train = from_json(TrainConfig, cell["train"])
    return RunConfig(cell["task"], from_json(kind, fields), train, cell["env_options"])


def describe(cell: Cell) -> str:
    """A few words for people."""
    return f"{cell['task']} {cell['algorithm']['name']} seed {seed_of(cell)}"
