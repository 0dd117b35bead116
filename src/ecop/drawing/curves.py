"""Learning curves of runs, read from their metrics alone."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from ecop.errors import UserError, unknown

Axis = Literal["iterations", "episodes", "steps", "seconds"]
COLOURS = ("#0b6e99", "#b3541e", "#008a63", "#b5578f", "#b97a00", "#3a94c9", "#5f6b73")


class Series(NamedTuple):
    """A run: its name in the legend, its lines of metrics, the names of its costs."""

    label: str
    metrics: list[dict[str, Any]]
    costs: Sequence[str]


class Curves(Figure):
    """A figure that notebooks show by themselves; pyplot does not know of it."""

    def _repr_png_(self) -> bytes:
        data = io.BytesIO()
        self.savefig(data, format="png", dpi=90)
        return data.getvalue()


class Table(NamedTuple):
    """Values of S seeds at K iterations."""

    x: np.ndarray  # [K]
    reward: np.ndarray  # [S, K]
    costs: np.ndarray  # [S, K, C]
    limits: list[float | None]


def table(series: Series, x: Axis) -> Table:
    """The iterations that all seeds have; x is a mean over seeds."""
    if not series.metrics:
        raise UserError(f"{series.label} has no metrics yet.")
    if x not in get_args(Axis):
        raise UserError(unknown("axis", str(x), get_args(Axis)))
    last = series.metrics[-1]["limits"]
    lines = {
        (m["seed"], m["iteration"]): m
        for m in series.metrics
        if len(m["costs"]) == len(last)
    }
    seeds = sorted({seed for seed, _ in lines})
    every = set.intersection(*({k for s, k in lines if s == seed} for seed in seeds))
    rows = [[lines[seed, k] for k in sorted(every)] for seed in seeds]

    def values(name: str) -> np.ndarray:
        return np.array([[line[name] for line in row] for row in rows])

    costs = values("costs").reshape(len(seeds), len(every), len(last))
    if x == "episodes":
        if any("episodes" not in line for row in rows for line in row):
            raise UserError(
                f"{series.label} does not say how many episodes its iterations had; "
                "choose another axis: iterations, steps or seconds."
            )
        along = values("episodes").cumsum(axis=1)
    else:
        names = {"iterations": "iteration", "steps": "env_steps", "seconds": "seconds"}
        along = values(names[x])
    return Table(along.mean(axis=0), values("reward"), costs, last)


def draw_curves(runs: Sequence[Series], title: str, x: Axis = "iterations") -> Curves:
    """Reward and each cost: mean over seeds, shaded std, dashed limit.

    Iterations that some seed lacks are left out; costs without a name are counted.
    """
    tables = [table(series, x) for series in runs]
    names: list[str] = []
    places = []  # of the panels of each run's costs
    for series, found in zip(runs, tables, strict=True):
        count = len(found.limits)
        more = [f"{i + 1}" for i in range(len(series.costs), count)]
        own = [*series.costs, *more][:count]
        names += [name for name in own if name not in names]
        places.append([1 + names.index(name) for name in own])
    labels = ["episodic reward", *(f"episodic cost: {name}" for name in names)]
    figure = Curves(figsize=(5.2 * len(labels), 3.8))
    FigureCanvasAgg(figure)
    axes = figure.subplots(1, len(labels), squeeze=False)[0]
    for i, (series, found) in enumerate(zip(runs, tables, strict=True)):
        colour = COLOURS[i % len(COLOURS)]
        draw(axes[0], found.x, found.reward, colour, series.label)
        for c, place in enumerate(places[i]):
            draw(axes[place], found.x, found.costs[..., c], colour, series.label)
            mark_limit(
                axes[place], found.limits[c], colour if len(runs) > 1 else "black"
            )
    for axis, label in zip(axes, labels, strict=True):
        axis.set_xlabel({"steps": "environment steps"}.get(x, x))
        axis.set_ylabel(label)
        axis.grid(alpha=0.25)
        axis.legend(frameon=False)
    figure.suptitle(title)
    figure.tight_layout()
    return figure


def draw(axis: Any, x: np.ndarray, values: np.ndarray, colour: str, label: str) -> None:
    """A curve: the mean over seeds, and their standard deviation."""
    mean, std = values.mean(axis=0), values.std(axis=0)
    who = f"{len(values)} seed" + "s" * (len(values) > 1)
    name = f"{label}, {who}" if label else f"mean of {who}, ± std"
    axis.plot(x, mean, color=colour, label=name)
    axis.fill_between(x, mean - std, mean + std, color=colour, alpha=0.2, lw=0)


def mark_limit(axis: Any, limit: float | None, colour: str) -> None:
    """A dashed line, once for each limit."""
    label = None if limit is None else f"limit {limit:g}"
    if label and label not in axis.get_legend_handles_labels()[1]:
        axis.axhline(limit, color=colour, ls="--", lw=1, label=label)
