"""What the attacks share: small runs and results, changed as a stranger would."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ecop import files

TINY: dict[str, Any] = {
    "episodes": 2,
    "horizon": 10,
    "hidden": (4,),
    "critic_epochs": 1,
    "critic_minibatches": 1,
}


def edited(path: Path, **changes: Any) -> Path:
    """Change entries of a run's config; its checksum fits again."""
    document = json.loads((path / "config.json").read_text()) | changes
    del document["crc32"]
    (path / "config.json").write_text(files.sealed(document, indent=2))
    return path


def result(name: str, cell: dict[str, Any]) -> dict[str, Any]:
    """A made-up result of a cell with one cost."""
    numbers = [[float(k)] for k in range(5)]
    return {
        "id": name,
        "cell": cell,
        "costs": ["stock"],
        "limits": cell["train"]["limits"],
        "env_steps": 5000,
        "curve": {
            "iteration": list(range(1, 6)),
            "reward": [0.5] * 5,
            "costs": numbers,
        },
        "evaluation": {"reward": [1.0] * 5, "costs": numbers},
        "exact": {"optimum": 2.0, "value": 1.0, "costs": [1.0]},
        "seconds": 10.0,
        "start_up": 3.0,
    }
