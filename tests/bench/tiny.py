"""A suite of two cells of seconds, and `ecop` with it: `python tiny.py bench run tiny`.

Both cells share one compiled program; the first checkpoint is at iteration 20.
"""

from __future__ import annotations

from pathlib import Path

from ecop.bench import results
from ecop.bench.suites import SUITES, Group, Suite

STEPS = 600 * 2 * 6  # 600 iterations of 2 episodes of 6 steps
TRAIN = {"episodes": 2, "hidden": (4,), "critic_epochs": 1, "critic_minibatches": 1}
TRAIN |= {"schedule": "constant"}  # so that a short run is the start of a long one
PARTS = ("cell", "curve", "evaluation", "exact", "limits", "env_steps")
PARTS = (*PARTS, "evaluations", "deterministic")


def tiny() -> Suite:
    """One group on a tabular task."""
    options = {"backward_steps": 2, "epochs": 1, "minibatches": 1, **TRAIN}
    group = Group("exact", "FactoredRing", "ecop", (3.0,), options=options)
    return Suite("Tiny", (group,), seeds=2, steps=STEPS, evaluation_episodes=2)


SUITES["tiny"] = tiny


def numbers(folder: Path) -> dict:
    """What must be the same wherever and however cells were run."""
    found = results.read(folder)
    assert not found.problems
    return {k: {p: d[p] for p in PARTS} for k, d in found.cells.items()}


if __name__ == "__main__":
    from ecop.cli import main

    main()
