"""e-COP against a Lagrangian with three rates on the adverts, over several seeds.

python examples/finetune/text_seeds.py [--seeds 5] [--steps 150] [--out FILE]

One JSON line per run, appended to FILE (a run that is there is not repeated), then a
table; `figures.py` says what its columns are.
"""

import os
import tempfile
import warnings
from pathlib import Path

import figures
import text_budgets
import tiny_text
import torch

ARMS = {
    "e-COP": {},
    "Lagrangian 0.1": {"beta": 0.0, "rate": 0.1},
    "Lagrangian 0.03": {"beta": 0.0, "rate": 0.03},
    "Lagrangian 0.01": {"beta": 0.0, "rate": 0.01},
}


def main() -> None:
    options = figures.options("text_seeds.jsonl", seeds=5)
    with tempfile.TemporaryDirectory() as folder:
        model = tiny_text.make(Path(folder) / "model")

        def run(**settings: float) -> dict:
            course, _, seconds = text_budgets.train(
                model, Path(folder), steps=options.steps, **settings
            )
            return {"seconds": seconds, "course": course}

        runs = figures.stored(options.out, ARMS, options.seeds, run)
    figures.table(runs, ARMS, text_budgets.LIMITS)


if __name__ == "__main__":
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    main()
