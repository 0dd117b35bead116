"""All algorithms on PointCircle with the same samples: the table of the comparison.

    python benchmarks/algorithms.py results/algorithms.jsonl       # cell by cell
    python benchmarks/algorithms.py results/algorithms.jsonl --table

A cell is an algorithm with a preset ("tuned" unless --preset says otherwise); cells
that are there already are not run again. Every cell has the same budget: 5 seeds, which
no search has used, and 6,000 whole episodes per seed.
"""

from __future__ import annotations

import cells
from ecop.algorithms import ALGORITHMS
from ecop.recipes import PRESETS, preset

TASK, LIMIT = "PointCircle", 10.0
SEEDS, FIRST_SEED, EPISODES = 5, 200, 6000


def measure(cell: cells.Cell) -> dict:
    name = cell["algorithm"]
    values = preset(cell["preset"], name)
    return cells.train(
        TASK,
        ALGORITHMS[name](**values.options),
        LIMIT,
        seeds=cell["seeds"],
        first_seed=FIRST_SEED,
        iterations=EPISODES // values.train.get("episodes", 20),
        **values.train,
    )


def table(lines: list[dict]) -> str:
    rows = []
    for line in lines:
        cell, result = line["cell"], line["result"]
        row = [cell["algorithm"], cell["preset"]]
        if "diverged" in result:
            row += ["diverged", "", "", "", "", ""]
        else:
            row += [
                f"{result['reward']:.1f} ± {result['reward_std']:.1f}",
                f"{result['cost']:.2f}",
                f"{100 * result['violating']:.0f} %",
                f"{result['strong']:.2f}",
                f"{result['kl']:.4f}",
                f"{result['steps_per_second']:,.0f}",
            ]
        rows.append(row)
    head = ["algorithm", "preset", "reward", f"cost (limit {LIMIT:g})"]
    head += ["late iterations above", "strong violation", "mean KL", "steps/s"]
    return cells.markdown(head, rows)


def main() -> None:
    parser = cells.parser(__doc__)
    parser.add_argument("--preset", choices=("default", *PRESETS), default="tuned")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    arguments = parser.parse_args()
    if not arguments.table:
        names = PRESETS.get(arguments.preset, ALGORITHMS)
        budget = {"preset": arguments.preset, "seeds": arguments.seeds}
        wanted = [{"algorithm": name, **budget} for name in names]
        cells.run(arguments.file, wanted, measure)
    print(table(cells.read(arguments.file)))


if __name__ == "__main__":
    main()
