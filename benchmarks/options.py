"""e-COP's options on PointCircle: the table behind the defaults.

    python benchmarks/options.py results/options.jsonl        # resumable, cell by cell
    python benchmarks/options.py results/options.jsonl --table

Every cell is one line of JSON; cells that are there already are not run again. Use
`taskset -c 0` to keep the seconds comparable while another core is busy.
"""

from __future__ import annotations

import itertools

import cells
import ecop

SEEDS, ITERATIONS, LIMIT = 3, 300, 10.0
# Plain SGD needs a step size of its own in each unit: the largest that did not diverge
# at once in a trial of 100 iterations (in the paper's units none learned).
SGD_RATE = {"dimensionless": 0.1, "paper": 1e-7}


def grid() -> list[dict]:
    product = itertools.product(
        ("augmented", "paper"),
        ("dimensionless", "paper"),
        (200, 20, 10),
        ("adam", "sgd"),
    )
    table = []
    for penalty, units, steps, optimiser in product:
        cell = {
            "penalty": penalty,
            "units": units,
            "backward_steps": steps,
            "optimiser": optimiser,
            "beta": 10.0 if units == "dimensionless" else 5.0,
        }
        if optimiser == "sgd":
            cell["learning_rate"] = SGD_RATE[units]
        table.append(cell)
    for penalty, beta, growth in itertools.product(
        ("augmented", "paper"), (5.0, 10.0), (1.0, 1.02)
    ):
        table.append(
            {
                "penalty": penalty,
                "backward_steps": 50,
                "beta": beta,
                "beta_growth": growth,
            }
        )
    for penalty, beta in itertools.product(("augmented", "paper"), (5.0, 10.0)):
        table.append(
            {
                "penalty": penalty,
                "beta": beta,
                "backward_steps": 100,
                "episodes_per_step": 10,
            }
        )
    return table


def measure(cell: dict) -> dict:
    return cells.train(
        "PointCircle", ecop.ECOP(**cell), LIMIT, seeds=SEEDS, iterations=ITERATIONS
    )


def table(lines: list[dict]) -> str:
    head = [
        "penalty",
        "units",
        "steps",
        "episodes",
        "optimiser",
        "beta",
        "growth",
        "reward",
        "cost",
        "violating",
        "strong",
        "seconds",
    ]
    rows = []
    for line in lines:
        c, r = line["cell"], line["result"]
        options = ecop.ECOP(**c)
        row = [
            options.penalty,
            options.units,
            str(options.backward_steps),
            str(options.episodes_per_step or "all"),
            options.optimiser,
            f"{options.beta:g}",
            f"{options.beta_growth:g}",
        ]
        if "diverged" in r:
            row += ["diverged", "", "", "", ""]
        else:
            row += [
                f"{r['reward']:.1f} ± {r['reward_std']:.1f}",
                f"{r['cost']:.2f}",
                f"{100 * r['violating']:.0f} %",
                f"{r['strong']:.2f}",
                f"{r['seconds']:.0f}",
            ]
        rows.append(row)
    return cells.markdown(head, rows)


def main() -> None:
    parser = cells.parser(__doc__)
    arguments = parser.parse_args()
    if not arguments.table:
        cells.run(arguments.file, grid(), measure)
    print(table(cells.read(arguments.file)))


if __name__ == "__main__":
    main()
