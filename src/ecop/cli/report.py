"""`ecop report`: what came out of the benchmark, or of training runs."""

from pathlib import Path
from typing import Annotated, Literal

import tyro

from ecop.cli.commands import load, parse
from ecop.errors import UserError


def report_command(argv: list[str]) -> int:
    """Parse the options and write the report."""
    return parse(report, "report", argv)


def report(
    folders: tuple[Path, ...],
    /,
    *,
    out: Annotated[Path | None, tyro.conf.arg(aliases=("-o",))] = None,
    format: Literal["html", "md", "latex", "png"] = "html",
    episodes: int = 100,
    trust: bool = False,
) -> int:
    """Show results of the benchmark, or training runs: one page, or files for a paper.

    Args:
        folders: results folder of 'ecop bench run', or run folders of 'ecop train'
        out: file to write (png: folder); default: report.html, .md, .tex or figures
        format: what to write
        episodes: fresh episodes of each policy of a run; a results folder has its own
        trust: run the code that a run folder names, if its task is not the library's

    """
    from ecop.report import own
    from ecop.report.write import write, write_found

    if not folders:
        raise UserError("Give a results folder, or one run folder or several.")
    strange = [path for path in folders if not own.is_run(path)]
    if not strange:
        found = own.read(folders, episodes, lambda path: load(path, trust=trust))
        file, notes = write_found(found, out, format)
    elif len(folders) > 1:
        raise UserError(
            f"'{strange[0]}' is no run folder; give one results folder, or run folders "
            "alone."
        )
    else:
        file, notes = write(strange[0], out, format)
    for note in notes:
        print(f"Note: {note}")
    print(file)
    return 0
