"""The report as plain text: tables of each suite in Markdown, all tables in LaTeX."""

from __future__ import annotations

import re
import shlex
import textwrap
from collections.abc import Iterable, Sequence

from ecop.bench.results import Results
from ecop.report import tables
from ecop.report.arms import SECTIONS, Arm
from ecop.report.tables import Entry, Table

WIDTH = 100  # of the lines of Markdown that are not tables
READING = (
    "Reward and costs: mean over runs with the normal 95 % interval; a run counts with "
    "the mean of fresh episodes of its last policy. In brackets: the paper's numbers. "
    "Its environments are not public, so its returns are no target; the ordering and "
    "the tracking of limits are. **Bold** is best: the highest mean reward among the "
    "algorithms whose mean cost is within every limit; *italic* is the second of them. "
    "↑: the mean cost is above the limit. PPO, the unconstrained reference, cannot win."
)
MEANING = (
    "P(run feasible): share of runs whose mean cost is within all limits, Wilson's "
    "interval. Strong violation: mean positive part of cost minus limit over all "
    "iterations of training; iterations above: the share of them above the limit; "
    "both for each cost."
)


# What Markdown or a browser would read as markup; a bracket only before what makes it a
# link, since numbers have brackets too.
MARKUP = re.compile(r"[\\`*_<>&|~]|!(?=\[)|\](?=[(\[:])|:(?=//)|(?<=www)\.|@")


def escaped(text: str) -> str:
    """Text of one line with everything escaped that Markdown would read as markup."""
    return MARKUP.sub(lambda sign: f"\\{sign[0]}", " ".join(text.split()))


def markdown(found: Results, shown: Sequence[Arm], notes: Sequence[str]) -> str:
    """The tables of every suite that has runs, each with its command, in Markdown."""
    made = (
        f"Written by `ecop report {found.folder.as_posix()} --format md` from "
        f"{len(found.cells)} finished runs; edit nothing here. A command below runs "
        "its suite anew with the present recipes; `ecop bench repeat "
        f"{found.folder.as_posix()}/cells/ID.json` runs one cell again with the "
        "options in its file."
    )
    parts = ["# Results", *map(wrapped, (made, READING, MEANING))]
    if notes:
        parts.append("## What to know first")
        parts.append("\n".join(wrapped(escaped(note), "- ") for note in notes))
    for section in dict.fromkeys(arm.section for arm in shown if arm.documents):
        if section == "curves":  # the cells are Table 1's
            continue
        parts.append(f"## {escaped(SECTIONS.get(section, section))}")
        parts.append(f"    {command(section, shown)}")
        for table in section_tables(section, shown):
            parts += [f"### {escaped(table.title)}", grid(table)]
            if table.note:
                parts.append(wrapped(table.note))
    return "\n\n".join(parts) + "\n"


def section_tables(section: str, shown: Sequence[Arm]) -> list[Table]:
    """The tables of one suite."""
    if section == "exact":
        found = [tables.exact_table(shown)]
    else:
        found = tables.task_tables(section, shown)
    if section == "table1":
        found = [*found, tables.aggregate_table(shown)]
    found = [*found, tables.shares_table(a for a in shown if a.section == section)]
    return [table for table in found if table is not None]


def command(section: str, shown: Iterable[Arm]) -> str:
    """The command that runs those tasks of a suite that have runs."""
    mine = [arm for arm in shown if arm.section == section and arm.documents]
    tasks = shlex.join(dict.fromkeys(arm.task for arm in mine))
    seeds = max(len(arm.documents) for arm in mine)
    return f"ecop bench run {shlex.quote(section)} --tasks {tasks} --seeds {seeds}"


def wrapped(text: str, bullet: str = "") -> str:
    """Text in lines of WIDTH."""
    return textwrap.fill(
        text,
        WIDTH,
        initial_indent=bullet,
        subsequent_indent=" " * len(bullet),
        break_long_words=False,
        break_on_hyphens=False,
    )


def grid(table: Table) -> str:
    """A table in Markdown; numbers are on the right."""
    rule = ["---"] * table.words + ["---:"] * (len(table.head) - table.words)
    head = [escaped(word) for word in table.head]
    lines = [head, rule, *([_md(e) for e in row] for row in table.rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _md(entry: Entry) -> str:
    text = escaped(entry.text)
    wrap = {"best": "**{}**", "near": "*{}*", "above": "{} ↑"}.get(entry.mark, "{}")
    text = wrap.format(text) if text else ""
    return f"{text} ({entry.paper})".strip() if entry.paper else text


TEX = {"&": r"\&", "%": r"\%", "_": r"\_", "#": r"\#", "$": r"\$", "±": r"$\pm$"}
TEX |= {"{": r"\{", "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
TEX |= {"\\": r"\textbackslash{}", "<": "$<$", ">": "$>$"}


def tex(text: str) -> str:
    """Text with everything escaped that TeX would read as a command."""
    return "".join(TEX.get(letter, letter) for letter in " ".join(text.split()))


def latex(tables: Sequence[Table]) -> str:
    r"""The tables in LaTeX (needs \usepackage{xcolor,colortbl,graphicx})."""
    parts = [
        "% needs \\usepackage{xcolor,colortbl,graphicx}",
        "\\providecolor{ecopbest}{HTML}{9BD8B4}\\providecolor{ecopnear}{HTML}{DDF3E4}",
    ]
    for table in tables:
        columns = "l" * table.words + "r" * (len(table.head) - table.words)
        lines = [" & ".join(tex(word) for word in table.head) + r" \\ \hline"]
        lines += [" & ".join(_tex(e) for e in row) + r" \\" for row in table.rows]
        parts += [
            "\\begin{table*}\\centering\\resizebox{\\textwidth}{!}{%",
            f"\\begin{{tabular}}{{{columns}}}\\hline",
            *lines,
            "\\hline\\end{tabular}}",
            f"\\caption{{{tex(table.title)}. {tex(table.note)}}}",
            f"\\label{{tab:ecop-{table.name}}}",
            "\\end{table*}",
            "",
        ]
    return "\n".join(parts)


def _tex(entry: Entry) -> str:
    text = tex(entry.text)
    colours = {"best": "\\cellcolor{ecopbest}", "near": "\\cellcolor{ecopnear}"}
    text = f"\\textbf{{{text}}}" if entry.mark == "best" else text
    text = f"{text}$^\\uparrow$" if entry.mark == "above" else text
    text = f"{text} ({tex(entry.paper)})".strip() if entry.paper else text
    return colours.get(entry.mark, "") + text
