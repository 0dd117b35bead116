"""Reward and shadow price against the limit of a cost, as they were reached."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure


def draw_budgets(
    points: list[dict[str, Any]], cost_name: str, title: str, file: Path
) -> None:
    """Write a picture of points as `frontier.json` has them."""
    figure = Figure(figsize=(6.4, 5.6), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=[2, 1])
    limits = [point["limit"] for point in points]
    for axis, name, colour in ((above, "reward", "C0"), (below, "price", "C3")):
        means = [point[name] for point in points]
        halves = [point[f"{name}_interval"] or 0.0 for point in points]
        axis.errorbar(limits, means, halves, marker="o", capsize=3, color=colour)
        axis.grid(alpha=0.3)
    above.set_ylabel("reward, 95 % interval")
    above.set_title(title)
    below.set_ylabel("shadow price")
    below.axhline(0.0, color="black", lw=0.8)
    below.set_xlabel(f"limit of '{cost_name}'")
    figure.savefig(file, format="png")
