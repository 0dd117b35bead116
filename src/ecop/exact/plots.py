"""The price of a limit as a picture: optimal reward and its slope against the limit."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from ecop.exact.lp import Frontier

Points = tuple[np.ndarray, np.ndarray, str]
MARKERS = "osD^vP"


def draw_frontier(
    frontier: Frontier,
    path: Path | str,
    *,
    title: str = "",
    cost_name: str = "cost",
    points: Sequence[Points] = (),
) -> None:
    """Write a PNG: above the optimal reward, below its slope, against the limit.

    points: further results to show above, each as (costs [P], rewards [P], label).
    """
    figure = Figure(figsize=(6.4, 5.6), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=[2, 1])
    above.plot(frontier.limits, frontier.values, color="black", label="optimum (LP)")
    for number, (costs, rewards, label) in enumerate(points):
        marker = MARKERS[number % len(MARKERS)]
        above.plot(costs, rewards, marker, color=f"C{number}", alpha=0.8, label=label)
    above.set_ylabel("reward")
    above.set_title(title)
    above.legend(loc="lower right")
    # The slope is constant between the kinks of J*, so steps show it best.
    below.step(frontier.limits, frontier.slopes, where="mid", color="C3")
    below.set_ylabel("shadow price")
    below.set_xlabel(f"limit of '{cost_name}'")
    infeasible = frontier.limits[np.isnan(frontier.values)]
    for axes in (above, below):
        axes.grid(alpha=0.3)
        if infeasible.size:
            axes.axvspan(
                infeasible.min(), infeasible.max(), color="grey", alpha=0.2, lw=0
            )
    if infeasible.size:
        below.annotate(
            "infeasible",
            (infeasible.mean(), 0.5),
            xycoords=("data", "axes fraction"),
            ha="center",
            va="center",
            rotation=90,
            fontsize="small",
        )
    figure.savefig(path)


KINDS = {"table": "C0", "network": "C1", "stationary": "C2"}


def draw_report(cells: Sequence[dict], path: Path | str) -> None:
    """Write a PNG: gap and violation of every trained cell, one row per problem."""
    trained = [cell for cell in cells if cell["kind"] in KINDS]
    bounds = {c["problem"]: c["gap"] for c in cells if c["kind"] == "best stationary"}

    def name_of(cell: dict) -> str:
        return "random" if cell["problem"].startswith("Random") else cell["problem"]

    names = sorted(set(map(name_of, trained)), reverse=True)
    figure = Figure(figsize=(9.0, 1.2 + 0.55 * len(names)), dpi=130)
    figure.set_layout_engine("constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2, sharey=True)
    for number, (kind, colour) in enumerate(KINDS.items()):
        own = [cell for cell in trained if cell["kind"] == kind]
        shift = 0.22 * (1 - number)
        rows = [names.index(name_of(cell)) + shift for cell in own]
        for axes, field in ((left, "gap"), (right, "violation")):
            values = [100 * cell[field] for cell in own]
            axes.plot(values, rows, "o", ms=4, color=colour, alpha=0.6, label=kind)
    left.plot(
        [100 * gap for gap in bounds.values()],
        [names.index(name) - 0.22 for name in bounds],
        "k|",
        ms=12,
        label="best stationary policy",
    )
    for axes, text in ((left, "gap (J* - J)/|J*|, %"), (right, "(J_C - d)/d, %")):
        axes.axvspan(-1, 1, color="grey", alpha=0.2, lw=0)
        axes.axvline(0, color="grey", lw=0.8)
        axes.set_xscale("symlog", linthresh=2)
        axes.set_xlim(-100, 100)
        axes.set_xticks([-50, -10, -2, -1, 0, 1, 2, 10, 50])
        axes.set_xticklabels(["-50", "-10", "-2", "-1", "0", "1", "2", "10", "50"])
        axes.set_xlabel(text)
        axes.grid(alpha=0.25)
    left.set_yticks(range(len(names)), names)
    handles, labels = left.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=4)
    figure.savefig(path)
