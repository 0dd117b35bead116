"""e-COP against the truth: cells of (problem, policy class, seed), table and figure.

    cells.jsonl   one line per cell; a report that was stopped goes on with the rest
    table.md      medians over seeds
    figure.png    gap and violation of every seed

A cell is one training run, its last policy evaluated exactly. One setting per policy
class for all problems (`PRESETS`).
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from ecop.algorithms.ecop import ECOP
from ecop.exact.cmdp import TabularCMDP
from ecop.exact.learned import Trainer
from ecop.exact.lp import frontier, smallest_cost, solve
from ecop.exact.problems import PROBLEMS, random_cmdp
from ecop.exact.report import markdown
from ecop.exact.stationary import best_stationary
from ecop.exact.values import backward_induction
from ecop.training import TrainConfig

LATE = 0.2  # share of the training whose policies are averaged for "late"
Say = Callable[[str], None]

# gae_decay 1: with exact sums to the horizon the critic is a baseline only, so its
# error makes no bias. One-hot observations need no normalisation.
SAMPLING = TrainConfig(episodes=100, gae_decay=1.0, normalise_observations=False)
# All episodes in every step and no caution: the comparison is with the exact optimum.
BASE = ECOP(beta=10.0, caution=0.0, episodes_per_step=0, max_kl=1e9)
NETWORK = Trainer(
    replace(BASE, backward_steps=10, learning_rate=0.0005),
    replace(SAMPLING, iterations=1000, policy="time", critic_learning_rate=0.003),
)
PRESETS = {
    "table": Trainer(
        replace(BASE, backward_steps=0, learning_rate=0.03),
        replace(
            SAMPLING,
            iterations=2000,
            policy="per_step",
            hidden=(),
            critic_learning_rate=0.02,
        ),
    ),
    "network": NETWORK,
    "stationary": replace(NETWORK, config=replace(NETWORK.config, policy="stationary")),
}


def quick(trainer: Trainer) -> Trainer:
    """Return the trainer with a budget of seconds, to see that everything works."""
    return replace(
        trainer, config=replace(trainer.config, iterations=40, episodes=20), marks=4
    )


def train_cell(cmdp: TabularCMDP, kind: str, trainer: Trainer, seed: int) -> dict:
    """Train one seed; return what the table needs as plain numbers."""
    start = time.perf_counter()
    optimum = solve(cmdp)
    course = trainer.run(cmdp, seed)
    late = slice(-max(1, round(LATE * trainer.marks)), None)
    size = abs(optimum.value)
    excess = course.costs - np.asarray(cmdp.limits)
    return {
        "problem": cmdp.name,
        "limits": list(cmdp.limits),
        "kind": kind,
        "seed": seed,
        "setting": setting(trainer),
        "optimum": optimum.value,
        "optimal_multipliers": optimum.multipliers.tolist(),
        "value": float(course.values[-1]),
        "costs": course.costs[-1].tolist(),
        "gap": float(optimum.value - course.values[-1]) / size,
        "violation": float((excess[-1] / cmdp.limits).max()),
        "late_gap": float(optimum.value - course.values[late].mean()) / size,
        "late_violation": float((excess[late].mean(axis=0) / cmdp.limits).max()),
        "multipliers": course.prices[late].mean(axis=0).tolist(),
        "entropy": float(course.entropies[-1]),
        "seconds": round(time.perf_counter() - start, 1),
    }


def truth_cell(cmdp: TabularCMDP, restarts: int, max_iterations: int) -> dict:
    """Search the best stationary policy: the gap that no training can close."""
    start = time.perf_counter()
    found = best_stationary(cmdp, restarts=restarts, max_iterations=max_iterations)
    return {
        "problem": cmdp.name,
        "limits": list(cmdp.limits),
        "kind": "best stationary",
        "seed": 0,
        "setting": f"restarts={restarts} max_iterations={max_iterations}",
        "value": found.value,
        "gap": found.gap / abs(found.value + found.gap),
        "seconds": round(time.perf_counter() - start, 1),
    }


def setting(trainer: Trainer) -> str:
    """All options of a trainer in one line: a cell of other options is another cell."""
    fields = asdict(trainer.algorithm) | asdict(trainer.config)
    words = (f"{name}={value}" for name, value in fields.items() if name != "seeds")
    return " ".join(words)


def read_cells(file: Path) -> list[dict]:
    """Return the cells of a file; a last line cut by a kill does not count."""
    cells = []
    for line in file.read_text().splitlines() if file.exists() else ():
        try:
            cells.append(json.loads(line))
        except ValueError:
            continue
    return cells


Job = tuple[tuple, Callable[[], dict]]


def run_jobs(file: Path, groups: Iterable[list[Job]], say: Say) -> list[dict]:
    """Do the jobs that `file` has no cell of; return the cells of all jobs.

    A group shares a compiled program, so it runs in order; groups run side by side.
    """
    done = {identity(cell): cell for cell in read_cells(file)}
    groups = list(groups)
    total = sum(map(len, groups))
    # A cut last line must not swallow the next one.
    if file.exists() and not file.read_text().endswith("\n"):
        file.write_text(file.read_text() + "\n")

    def work(group: list[Job]) -> None:
        for key, job in group:
            if key in done:
                continue
            cell = job()
            with file.open("a") as out:
                out.write(json.dumps(cell) + "\n")
            done[key] = cell
            say(f"[{len(done)}/{total}] {describe(cell)}")

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for future in [pool.submit(work, group) for group in groups]:
            future.result()
    return [done[key] for group in groups for key, _ in group]


def identity(cell: dict) -> tuple:
    """What makes two cells the same."""
    limits = tuple(cell["limits"])
    return cell["problem"], limits, cell["kind"], cell["seed"], cell["setting"]


def describe(cell: dict) -> str:
    """One line of progress."""
    violation = f", violation {cell['violation']:+.2%}" if "violation" in cell else ""
    return (
        f"{cell['problem']} {cell['kind']} seed {cell['seed']}: gap {cell['gap']:.2%}"
        f"{violation}, {cell['seconds']:.0f} s"
    )


def training_job(cmdp: TabularCMDP, kind: str, trainer: Trainer, seed: int) -> Job:
    """Return the job of one training cell."""
    key = (cmdp.name, cmdp.limits, kind, seed, setting(trainer))
    return key, lambda: train_cell(cmdp, kind, trainer, seed)


def truth_job(cmdp: TabularCMDP, *, quick: bool) -> Job:
    """Return the job of one search for the best stationary policy."""
    large = cmdp.states > 20
    restarts, steps = (0, 20) if quick else (2, 100) if large else (20, 300)
    note = f"restarts={restarts} max_iterations={steps}"
    key = (cmdp.name, cmdp.limits, "best stationary", 0, note)
    return key, lambda: truth_cell(cmdp, restarts, steps)


def report(folder: Path, *, fast: bool = False, say: Say = print) -> list[list[str]]:
    """Train all cells, write table and figure; return the rows of the table."""
    folder.mkdir(parents=True, exist_ok=True)
    names = ["FactoredRing", "PeakHours"] if fast else list(PROBLEMS)
    named = [PROBLEMS[name]() for name in names]
    random = [random_cmdp(seed=seed) for seed in range(2 if fast else 20)]
    presets = {k: quick(t) if fast else t for k, t in PRESETS.items()}
    seeds = range(1 if fast else 3)
    named.sort(key=lambda cmdp: cmdp.states)  # the first results soon
    groups = [
        [training_job(cmdp, kind, presets[kind], 0) for cmdp in random]
        for kind in ("table", "network")
    ]
    groups += [
        [training_job(cmdp, kind, trainer, seed) for seed in seeds]
        for cmdp in named
        for kind, trainer in presets.items()
    ]
    groups += [[truth_job(cmdp, quick=fast)] for cmdp in named]
    cells = run_jobs(folder / "cells.jsonl", groups, say)
    rows = summarise(cells)
    (folder / "table.md").write_text(markdown(rows[0], rows[1:]) + "\n")
    from ecop.exact.plots import draw_report

    draw_report(cells, folder / "figure.png")
    return rows


HEADER = [
    "problem", "policy", "runs", "J*", "median J", "gap", "violation",
    "worst violation", "late gap", "late violation", "price", "LP's", "goal",
]  # fmt: skip


def summarise(cells: list[dict]) -> list[list[str]]:
    """Rows of the table, the header first: medians over the seeds of each group.

    "late" is the mean over the policies of the last 20 % of the training.
    """
    groups: dict[tuple[str, str], list[dict]] = {}
    for cell in cells:
        name = "random" if cell["problem"].startswith("Random") else cell["problem"]
        groups.setdefault((name, cell["kind"]), []).append(cell)
    order = [*PROBLEMS, "random"]
    rows = sorted(groups.items(), key=lambda item: order.index(item[0][0]))
    return [HEADER, *(_row(name, kind, group) for (name, kind), group in rows)]


def _row(name: str, kind: str, cells: list[dict]) -> list[str]:
    def middle(field: str) -> float:
        return median(cell[field] for cell in cells)

    if kind == "best stationary":
        (cell,) = cells
        blank = [""] * 7
        return [
            name,
            kind,
            "",
            "",
            f"{cell['value']:.4f}",
            f"{cell['gap']:.2%}",
            *blank,
        ]
    many = len({cell["problem"] for cell in cells}) > 1
    apart = [abs(_price(c) - _optimal(c)) / max(_optimal(c), 1e-9) for c in cells]
    prices = [_price(cell) for cell in cells]
    violation = middle("violation")
    return [
        f"{len(cells)} random" if many else name,
        kind,
        str(len(cells)),
        "" if many else f"{cells[0]['optimum']:.4f}",
        "" if many else f"{middle('value'):.4f}",
        f"{middle('gap'):.2%}",
        f"{violation:+.2%}",
        f"{max(cell['violation'] for cell in cells):+.2%}",
        f"{middle('late_gap'):.2%}",
        f"{middle('late_violation'):+.2%}",
        f"off by {median(apart):.0%}" if many else f"{median(prices):.3f}",
        "" if many else f"{_optimal(cells[0]):.3f}",
        "yes" if middle("gap") <= 0.01 and violation <= 0.01 else "no",
    ]


def _price(cell: dict[str, Any]) -> float:
    return float(cell["multipliers"][0])


def _optimal(cell: dict[str, Any]) -> float:
    return float(cell["optimal_multipliers"][0])


def trained_frontier(
    cmdp: TabularCMDP,
    file: Path,
    *,
    points: int = 5,
    fast: bool = False,
    say: Say = print,
) -> list[dict]:
    """Draw J* against the limit with e-COP's points; return their cells.

    The cells are kept beside the picture, so a second call trains nothing anew. The
    limits lie evenly between the smallest feasible cost and the unconstrained one.
    """
    from ecop.exact.plots import draw_frontier

    least, most = smallest_cost(cmdp), float(backward_induction(cmdp).costs[0])
    line = frontier(cmdp, np.linspace(least, 1.1 * most - 0.1 * least, 45))
    trainer = quick(PRESETS["table"]) if fast else PRESETS["table"]
    limits = np.linspace(least, most, points + 2)[1:-1]
    group = [
        training_job(cmdp.with_limits(limit), "table", trainer, 0) for limit in limits
    ]
    file.parent.mkdir(parents=True, exist_ok=True)
    cells = run_jobs(file.with_suffix(".jsonl"), [group], say) if group else []
    reached = np.array([[cell["costs"][0], cell["value"]] for cell in cells])
    marks = [(*reached.T, "e-COP, last policy")] if cells else []
    draw_frontier(
        line, file, title=cmdp.name, cost_name=cmdp.cost_names[0], points=marks
    )
    return cells
