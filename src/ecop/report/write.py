"""`ecop report`: what a results folder holds, for a browser or for a paper."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from ecop.bench import results
from ecop.errors import UserError
from ecop.report import tables
from ecop.runs import write_atomically

Format = Literal["html", "md", "latex", "png"]
DEFAULT = {
    "html": "report.html",
    "md": "report.md",
    "latex": "report.tex",
    "png": "figures",
}


def write(folder: Path, out: Path | None, kind: Format) -> tuple[Path, list[str]]:
    """Write a report; return where it is, and what the reader should know first."""
    found = results.read(folder)
    if not found.cells:
        more = f" {' '.join(found.problems[:3])}" if found.problems else ""
        failed = f", {len(found.failed)} failed" if found.failed else ""
        raise UserError(f"'{folder}' has no finished cell{failed}.{more}")
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
    made = tables.all_tables(shown)
    if kind == "html":
        from ecop.report.page import page

        text = page(found, shown, made, notes)
    elif kind == "md":
        text = tables.markdown(made, notes)
    else:
        text = tables.latex(made)
    file.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(file, text)
    return file, notes


def collect(found: results.Results) -> tuple[list[tables.Arm], list[str]]:
    """The arms to show and all that is missing, damaged, failed or mixed."""
    shown, left_out = tables.arms(found)
    notes = tables.missing(found, shown)
    if found.failed:
        words = "; ".join(f["error"].split("\n")[0] for f in found.failed.values())
        notes.append(f"{len(found.failed)} cell(s) failed: {words}.")
    makers = tables.versions(found)
    if len(makers) > 1:
        parts = [maker.split(", ") for maker in makers]
        common = set.intersection(*map(set, parts))
        text = "; ".join(
            f"{count} cells of {', '.join(x for x in words if x not in common)}"
            for words, count in zip(parts, makers.values(), strict=True)
        )
        notes.append(f"Cells of different versions are mixed: {text}.")
    used = {d["id"] for arm in shown for d in arm.documents}
    planned = {
        name for plan in found.plans for g in plan["groups"] for name in g["cells"]
    }
    stray = len(set(found.cells) - planned)
    if stray:
        notes.append(
            f"{stray} finished cell(s) belong to no plan in this folder and are not "
            "shown; copy the plans too."
        )
    if not used:
        notes.append("No plan fits the finished cells: there is nothing to draw.")
    return shown, notes + left_out + found.problems
