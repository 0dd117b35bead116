"""`ecop report`: what a results folder holds, for a browser or for a paper."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from ecop import files
from ecop.bench import results
from ecop.errors import UserError
from ecop.report import tables, text
from ecop.report.arms import collect

Format = Literal["html", "md", "latex", "png"]
DEFAULT = {
    "html": "report.html",
    "md": "report.md",
    "latex": "report.tex",
    "png": "figures",
}


def write(folder: Path, out: Path | None, kind: Format) -> tuple[Path, list[str]]:
    """Write a report on a results folder; return where it is, and what to know."""
    found = results.read(folder)
    if not found.cells:
        more = f" {' '.join(found.problems[:3])}" if found.problems else ""
        failed = f", {len(found.failed)} failed" if found.failed else ""
        raise UserError(f"'{folder}' has no finished cell{failed}.{more}")
    return write_found(found, out, kind)


def write_found(
    found: results.Results, out: Path | None, kind: Format
) -> tuple[Path, list[str]]:
    """Write a report on what was read."""
    shown, notes = collect(found)
    file = Path(DEFAULT[kind]) if out is None else out
    if kind == "png":
        from ecop.report.figures import draw

        if file.exists() and not file.is_dir():
            raise UserError(f"'{file}' is a file; pictures need a folder.")
        file.mkdir(parents=True, exist_ok=True)
        draw(shown, file)
        return file, notes
    if file.is_dir():
        raise UserError(f"'{file}' is a folder; --out wants a file.")
    if kind == "md":
        written = text.markdown(found, shown, notes)
    elif kind == "latex":
        written = text.latex(tables.all_tables(shown))
    else:
        from ecop.report.page import page

        written = page(found, shown, tables.all_tables(shown), notes)
    file.parent.mkdir(parents=True, exist_ok=True)
    files.write(file, written)
    return file, notes
