"""The figures of the report as PNG files, for papers."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from ecop.bench.suites import EVERYONE
from ecop.report.arms import Arm

POINTS = 1000  # of a curve that are drawn
# Okabe and Ito's colours; dashes and markers tell apart what colours alone do not.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#5f6b73")
DASHES = ("-", "--", ":", "-.")
MARKERS = "osv^D*P"


def draw(shown: Sequence[Arm], folder: Path) -> list[Path]:
    """Curves and reward against cost of every experiment and task that has runs."""
    blocks: dict[tuple[str, str, tuple[float, ...]], list[Arm]] = {}
    for arm in shown:
        if arm.documents:
            key = arm.section, arm.task, tuple(arm.limits)
            blocks.setdefault(key, []).append(arm)
    files = []
    for (section, task, limits), arms in blocks.items():
        words = [section, task]
        if sum(key[:2] == (section, task) for key in blocks) > 1:
            words += [f"{limit:g}" for limit in limits]
        stem = re.sub(r"[^\w.-]+", "-", "-".join(words))
        for kind, chart in (("curves", draw_curves), ("scatter", draw_scatter)):
            file = folder / f"{stem}-{kind}.png"
            chart(arms, file)
            files.append(file)
    return files


def look(arm: Arm, arms: Sequence[Arm]) -> dict[str, Any]:
    """Colour, dash and marker: by algorithm, or by place among variants."""
    names = {a.algorithm for a in arms}
    i = arms.index(arm)
    if len(names) == len(arms) and arm.algorithm in EVERYONE:
        i = EVERYONE.index(arm.algorithm)
    turn = i // len(COLOURS)
    return {
        "color": COLOURS[i % len(COLOURS)],
        "ls": DASHES[(i + turn) % len(DASHES)],
        "marker": MARKERS[(i + 2 * turn) % len(MARKERS)],
    }


def panels(count: int, width: float, height: float) -> tuple[Figure, Any]:
    """A figure of so many inches, and its axes side by side."""
    figure = Figure(figsize=(width, height))
    FigureCanvasAgg(figure)
    return figure, figure.subplots(1, count, squeeze=False)[0]


def draw_curves(arms: Sequence[Arm], file: Path) -> None:
    """Reward and costs by steps: mean over runs, shaded std, dashed limit."""
    names = arms[0].documents[0]["costs"]
    figure, axes = panels(1 + len(names), 4.6 * (1 + len(names)), 3.4)
    labels = ["episodic reward", *(f"episodic cost: {name}" for name in names)]
    for column, (axis, label) in enumerate(zip(axes, labels, strict=True)):
        for arm in arms:
            x, runs = arm.curves(POINTS)
            mean, std = runs[:, column].mean(axis=0), runs[:, column].std(axis=0)
            style = look(arm, arms)
            axis.plot(x, mean, label=arm.label, markevery=max(1, len(x) // 6), **style)
            axis.fill_between(
                x, mean - std, mean + std, color=style["color"], alpha=0.15, lw=0
            )
        if column and math.isfinite(arms[0].limits[column - 1]):
            axis.axhline(arms[0].limits[column - 1], color="black", ls="--", lw=1)
        axis.set_xlabel("environment steps")
        axis.set_ylabel(label)
        axis.grid(alpha=0.25)
    finish(figure, axes, arms, file)


def draw_scatter(arms: Sequence[Arm], file: Path) -> None:
    """Reward against each cost: a mark per run, dashed limit."""
    names = arms[0].documents[0]["costs"]
    figure, axes = panels(len(names), 4.6 * len(names) + 1, 3.6)
    for i, (axis, name) in enumerate(zip(axes, names, strict=True)):
        for arm in arms:
            style = look(arm, arms)
            style.pop("ls")
            axis.scatter(arm.costs[:, i], arm.reward, s=18, label=arm.label, **style)
        if math.isfinite(arms[0].limits[i]):
            axis.axvline(arms[0].limits[i], color="black", ls="--", lw=1)
        axis.set_xlabel(f"cost: {name}")
        axis.set_ylabel("reward")
        axis.grid(alpha=0.25)
    finish(figure, axes, arms, file)


def finish(figure: Any, axes: Any, arms: Sequence[Arm], file: Path) -> None:
    """One legend, title, file."""
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(
        handles, labels, loc="outside lower center", ncols=4, frameon=False, fontsize=8
    )
    figure.suptitle(arms[0].task)
    figure.set_layout_engine("constrained")
    figure.savefig(file, dpi=140)
