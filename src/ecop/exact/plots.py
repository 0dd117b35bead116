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
