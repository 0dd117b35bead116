"""Tables of the exact truth as Markdown: `python -m ecop.exact.report`.

Three tables: the optima with their certificates, the best stationary policies, and
Algorithm 1's value after its last iteration. `docs/exact.md` shows their output.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

import numpy as np

from ecop.exact.cmdp import TabularCMDP
from ecop.exact.ipoce import Reading, ipoce
from ecop.exact.lp import smallest_cost, solve
from ecop.exact.problems import PROBLEMS, random_cmdp
from ecop.exact.stationary import best_stationary
from ecop.exact.values import (
    backward_induction,
    best_response,
    deterministic,
    uniform_policy,
)

READINGS: tuple[Reading, ...] = ("propagated", "previous")


def markdown(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def optima(cmdps: Iterable[TabularCMDP]) -> str:
    """Tabulate optimum, multiplier, smallest cost and duality gap."""
    header = (
        "problem", "S, A, H", "limit", "J* free (cost)", "J*", "cost",
        "multiplier", "smallest cost", "duality gap", "seconds",
    )  # fmt: skip
    rows = []
    for cmdp in cmdps:
        start = time.perf_counter()
        solution, free = solve(cmdp), backward_induction(cmdp)
        seconds = time.perf_counter() - start
        rows.append(
            (
                cmdp.name,
                f"{cmdp.states}, {cmdp.actions}, {cmdp.horizon}",
                f"{cmdp.limits[0]:g}",
                f"{free.value:.4f} ({free.costs[0]:.4f})",
                f"{solution.value:.6f}",
                f"{solution.costs[0]:.4f}",
                f"{solution.multipliers[0]:.6f}",
                f"{smallest_cost(cmdp):.4g}",
                f"{solution.gap:.0e}",
                f"{seconds:.2f}",
            )
        )
    return markdown(header, rows)


def stationary_gaps(
    cmdps: Iterable[TabularCMDP], *, restarts: int = 20, max_iterations: int = 300
) -> str:
    """Tabulate the best stationary policy found and its distance to the optimum."""
    header = ("problem", "J*", "best stationary J", "cost", "gap", "hits", "seconds")
    rows = []
    for cmdp in cmdps:
        start = time.perf_counter()
        found = best_stationary(cmdp, restarts=restarts, max_iterations=max_iterations)
        optimum = found.value + found.gap
        rows.append(
            (
                cmdp.name,
                f"{optimum:.4f}",
                f"{found.value:.4f}",
                f"{found.costs[0]:.4f}",
                f"{found.gap:.4f} ({found.gap / abs(optimum):.1%})",
                f"{found.hits} of {found.starts}",
                f"{time.perf_counter() - start:.0f}",
            )
        )
    return markdown(header, rows)


def safest_policy(cmdp: TabularCMDP) -> np.ndarray:
    """Return the policy [H, S, A] with the smallest sum of costs."""
    _, actions, _ = best_response(cmdp, -cmdp.costs.sum(axis=0))
    return deterministic(actions, cmdp.actions)


def algorithm_one(cmdps: Iterable[TabularCMDP], *, iterations: int = 30) -> str:
    """Tabulate where Algorithm 1 goes from two starts in both readings."""
    marks = (0, 1, 2, 5, iterations)
    header = (
        "problem", "start", "reading", "J*",
        *(f"J({mark})" for mark in marks), "last cost", "worst excess",
    )  # fmt: skip
    rows = []
    for cmdp in cmdps:
        optimum = solve(cmdp).value
        starts = {"uniform": uniform_policy(cmdp), "safest": safest_policy(cmdp)}
        for start, policy in starts.items():
            for reading in READINGS:
                history = ipoce(
                    cmdp, iterations=iterations, initial=policy, reading=reading
                )
                excess = history.costs[1:, 0].max() - cmdp.limits[0]
                rows.append(
                    (
                        cmdp.name,
                        start,
                        reading,
                        f"{optimum:.4f}",
                        *(f"{history.values[mark]:.4f}" for mark in marks),
                        f"{history.costs[-1, 0]:.4f}",
                        f"{max(excess, 0.0):.2g}",
                    )
                )
    return markdown(header, rows)


def shortfalls(cmdps: Sequence[TabularCMDP], *, iterations: int = 30) -> np.ndarray:
    """Return (J* - J) / |J*| [N] of Algorithm 1 from the safest policy."""
    found = []
    for cmdp in cmdps:
        optimum = solve(cmdp).value
        history = ipoce(cmdp, iterations=iterations, initial=safest_policy(cmdp))
        found.append((optimum - history.values[-1]) / abs(optimum))
    return np.array(found)


def main() -> None:
    """Print all tables."""
    named = [make() for make in PROBLEMS.values()]
    print("## Optima\n", optima(named), sep="\n", end="\n\n")
    print("## Algorithm 1\n", algorithm_one(named), sep="\n", end="\n\n")
    random = [random_cmdp(seed=seed) for seed in range(20)]
    low, middle, high = np.quantile(shortfalls(random), [0, 0.5, 1])
    print(f"20 random CMDPs: {low:.1%} .. {high:.1%}, median {middle:.1%}\n")
    small = [cmdp for cmdp in named if cmdp.states <= 20]
    large = [cmdp for cmdp in named if cmdp.states > 20]
    print("## Stationary policies\n", stationary_gaps(small), sep="\n")
    print(stationary_gaps(large, restarts=2, max_iterations=100))


if __name__ == "__main__":
    main()
