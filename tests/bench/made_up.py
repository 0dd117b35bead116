"""A results folder without any training: plans of real suites, made-up numbers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from ecop.bench import results
from ecop.bench.cells import identity
from ecop.bench.run import make_plan
from ecop.runs import provenance


def make_results(
    folder: Path,
    *,
    suites: tuple[str, ...] = ("table1",),
    steps: int | None = None,
) -> None:
    """Write all cells that this machine could run, as if they were finished."""
    results.prepare(folder)
    made = provenance()
    for suite in suites:
        plan = make_plan(suite, folder, seeds=3, steps=steps)
        results.write_plan(folder, plan.document)
        for job in plan.jobs:
            document = make_up(job.name, job.cell) | made
            results.write(folder, "cells", job.name, document)
            if job.clip and job.cell["task"] in ("PointCircle", "Navigation"):
                frames = [Image.new("RGB", (64, 48), c) for c in ("white", "black")]
                file = folder / "clips" / f"{job.name}.gif"
                frames[0].save(file, save_all=True, append_images=frames[1:])


def rewritten(folder: Path, change: Callable[[str], str]) -> None:
    """Change the text of all plans and cells; the names of the cells follow."""
    names = {}
    for file in (folder / "cells").glob("*.json"):
        document = json.loads(change(file.read_text()))
        del document["crc32"]
        name = identity(document["cell"])
        names[file.stem] = name
        file.unlink()
        results.write(folder, "cells", name, document | {"id": name})
    for file in (folder / "plans").glob("*.json"):
        text = change(file.read_text())
        for old, new in names.items():
            text = text.replace(old, new)
        document = json.loads(text)
        del document["crc32"]
        file.write_text(json.dumps(document))


def make_up(name: str, cell: dict[str, Any]) -> dict[str, Any]:
    """The result of a cell, with numbers drawn from its name."""
    chance = np.random.default_rng(int(name, 16))
    limits = [None if d is None else float(d) for d in cell["train"]["limits"]]
    level = np.array([25.0 if d is None else d for d in limits])
    count = 40
    rise = 1 - np.exp(-np.arange(count) / 10)
    reward = 100 * rise + chance.normal(0, 4, count)
    costs = level * (0.6 + rise[:, None] * 0.4) + chance.normal(
        0, 2, (count, len(level))
    )
    times = 40 if cell["algorithm"]["name"] == "ppo" else 1  # it sees no cost
    costs *= times
    # As if episodes ended early now and then: no two runs have the same batches.
    shares = np.cumsum(chance.integers(1, 10, count))
    steps = (shares * cell["train"]["steps"] // shares[-1]).tolist()

    def episodes(number: int) -> dict[str, Any]:
        return {
            "reward": chance.normal(100, 5, number).tolist(),
            "costs": chance.normal(
                times * level * 0.97, 1, (number, len(level))
            ).tolist(),
            "failed": 0.0,
        }

    last = {"env_steps": steps[-1], **episodes(10)}
    parts = [(0.1, 3), (0.25, 9), (0.5, 19)]
    return {
        "id": name,
        "cell": cell,
        "costs": [f"cost {i + 1}" for i in range(len(limits))],
        "limits": limits,
        "horizon": 200,
        "env_steps": steps[-1],
        "curve": {
            "iteration": list(range(1, count + 1)),
            "env_steps": steps,
            "reward": reward.tolist(),
            "costs": np.maximum(costs, 0).tolist(),
            "multipliers": (0 * costs).tolist(),
            "failed": [0.0] * count,
        },
        "evaluation": last,
        "deterministic": {"env_steps": steps[-1], **episodes(10)},
        "evaluations": [
            *({"share": x, "env_steps": steps[k], **episodes(4)} for x, k in parts),
            {"share": 1.0, **last},
        ],
        "exact": None,
        "clip": None,
        "seconds": 10.0,
        "start_up": 3.0,
    }
