"""Runs and evaluations in words and in HTML, for terminals and notebooks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

LEFT, RIGHT = "text-align:left", "text-align:right"


def table_text(title: str, rows: Iterable[Sequence[str]]) -> str:
    """A title and lines of two columns, the second as it is."""
    rows = list(rows)
    width = max((len(name) for name, _ in rows), default=0)
    return "\n".join([title, *(f"  {name:{width}}  {value}" for name, value in rows)])


def table_html(
    title: str, header: Sequence[str], rows: Iterable[Sequence[str]], below: str = ""
) -> str:
    """A table; cells are HTML already, all else is text."""
    cells = [
        "".join(
            f'<td style="{RIGHT if i else LEFT}">{cell}</td>'
            for i, cell in enumerate(row)
        )
        for row in rows
    ]
    heads = "".join(
        f'<th style="{RIGHT if i else LEFT}">{escape(name)}</th>'
        for i, name in enumerate(header)
    )
    return (
        f'<table><caption style="{LEFT}">{escape(title)}</caption>'
        f"<thead><tr>{heads}</tr></thead><tbody>"
        + "".join(f"<tr>{line}</tr>" for line in cells)
        + f"</tbody></table>{escape(below)}"
    )
