"""`ecop report`: what came out of the benchmark."""

from pathlib import Path
from typing import Annotated, Literal

import tyro

from ecop.cli.commands import parse


def report_command(argv: list[str]) -> int:
    """Parse the options and write the report."""
    return parse(report, "report", argv)


def report(
    results: Path,
    /,
    *,
    out: Annotated[Path | None, tyro.conf.arg(aliases=("-o",))] = None,
    format: Literal["html", "md", "latex", "png"] = "html",
) -> int:
    """Show results of the benchmark: one page, or files for a paper.

    Args:
        results: results folder of 'ecop bench run'
        out: file to write (png: folder); default: report.html, .md, .tex or figures
        format: what to write

    """
    from ecop.report.write import write

    file, notes = write(results, out, format)
    for note in notes:
        print(f"Note: {note}")
    print(file)
    return 0
