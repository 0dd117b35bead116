"""`ecop plot`: learning curves of runs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from ecop.cli.commands import parse
from ecop.errors import UserError
from ecop.files import replacing

if TYPE_CHECKING:
    from ecop.drawing.curves import Series


def plot_command(argv: list[str]) -> int:
    """Parse the options and draw the curves of runs."""
    return parse(plot, "plot", argv)


def plot(
    runs: Annotated[tuple[Path, ...], tyro.conf.Positional],
    labels: tuple[str, ...] = (),
    x: Literal["iterations", "episodes", "steps", "seconds"] = "iterations",
    out: Path | None = None,
) -> int:
    """Draw reward and cost curves of one or several runs.

    Args:
        runs: run folders
        labels: their names in the legend; default: the names of the folders
        x: what the curves are drawn over
        out: .png, .svg or .pdf to write; default: curves.png in the first folder

    """
    from ecop.drawing.curves import draw_curves

    if not runs:
        raise UserError("Which runs? ecop plot RUN ...")
    if labels and len(labels) != len(runs):
        raise UserError(f"{len(runs)} run(s) but {len(labels)} label(s) were given.")
    file = out or runs[0] / "curves.png"
    if file.suffix.lower() not in (".png", ".svg", ".pdf"):
        raise UserError(f"--out must end in .png, .svg or .pdf, not '{file.name}'.")
    alone = len(runs) == 1 and not labels
    names = labels or tuple("" if alone else run.name or str(run) for run in runs)
    read = [series(run, name) for run, name in zip(runs, names, strict=True)]
    titles = dict.fromkeys(title for title, _ in read)
    figure = draw_curves([found for _, found in read], ", ".join(titles), x)
    with replacing(file) as fresh:
        figure.savefig(fresh, dpi=130)
    print(file)
    return 0


def series(run: Path, label: str) -> tuple[str, Series]:
    """What a run is, and its metrics."""
    from ecop import runs
    from ecop.config import algorithm_name
    from ecop.drawing.curves import Series

    config = runs.read_config(run)
    metrics = runs.read_metrics(run)
    if not metrics:
        raise UserError(f"'{run}' has no metrics yet.")
    done = max(line["iteration"] for line in metrics)
    lost = runs.lost_metrics(config, metrics, done)
    if lost:
        print(f"ecop: {lost}", file=sys.stderr)
    title = f"{algorithm_name(config.algorithm)} on {config.task}"
    names = runs.read_document(run).get("costs", [])
    return title, Series(label, metrics, names)
