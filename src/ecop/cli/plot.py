"""`ecop plot`: learning curves of a run."""

import sys
from pathlib import Path

from ecop.cli.commands import parse
from ecop.errors import UserError
from ecop.files import replacing


def plot_command(argv: list[str]) -> int:
    """Parse the options and draw the curves of a run."""
    return parse(plot, "plot", argv)


def plot(run: Path, /, *, out: Path | None = None) -> int:
    """Draw reward and cost curves of a run.

    Args:
        run: run folder
        out: picture to write; default: RUN/curves.png

    """
    from ecop import runs
    from ecop.config import algorithm_name
    from ecop.drawing.curves import plot_metrics

    config = runs.read_config(run)
    metrics = runs.read_metrics(run)
    if not metrics:
        raise UserError(f"'{run}' has no metrics yet.")
    done = max(line["iteration"] for line in metrics)
    lost = runs.lost_metrics(config, metrics, done)
    if lost:
        print(f"ecop: {lost}", file=sys.stderr)
    file = out or run / "curves.png"
    title = f"{algorithm_name(config.algorithm)} on {config.task}"
    names = runs.read_document(run).get("costs", [])
    with replacing(file) as fresh:
        plot_metrics(metrics, tuple(names), title, fresh)
    print(file)
    return 0
