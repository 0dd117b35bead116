"""The report as plain text: tables of each suite in Markdown, all tables in LaTeX."""

from __future__ import annotations

import re
import shlex
import textwrap
from collections.abc import Iterable, Sequence

from ecop.bench.results import Results
from ecop.bench.suites import PAPER_FORM
from ecop.report import fair, paper, tables
from ecop.report.arms import SECTIONS, Arm, versions
from ecop.report.tables import Entry, Table

WIDTH = 100  # of the lines of Markdown that are not tables
WHICH = (
    "**e-COP** is what a user gets: the defaults and the task's recipe. **e-COP "
    "(paper)** is the preset `paper`: Algorithm 2 as printed, its errata mended "
    "(`docs/ecop.md`), with the paper's hyperparameters."
)
READING = (
    "Reward and costs: mean over runs with the normal 95 % interval; a run counts with "
    "the mean of fresh episodes of its last policy. In brackets: the paper's numbers. "
    "**Bold** is best: the highest mean reward among the algorithms whose mean cost is "
    "within every limit; *italic* is the second of them. ↑: the mean cost is above the "
    "limit. PPO, the unconstrained reference, cannot win. Runs within: share of runs "
    "whose mean costs are within all limits, Wilson's interval. Excess: mean positive "
    "part of a run's cost minus the limit."
)
WHY = (
    "Why this can differ: the paper's environments are not public, so tasks with its "
    "names have rewards and layouts of their own (`docs/tasks`) and its "
    "returns are no target; the ordering and the tracking of limits are. All "
    "algorithms here share one learner, its critics and the recipe of the task "
    "(`docs/algorithms`). The paper names no rule for "
    "its marks; the one below gives all of them (tested)."
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
    own = all(plan["suite"] == "runs" for plan in found.plans)
    parts = ["# Results", *verdicts(shown)]
    parts += [] if own else [wrapped(WHICH)]
    for family in fair.FAMILIES:
        for table in (
            tables.fair_table(family, shown),
            tables.blocks_table(family, shown),
        ):
            if table is not None:
                # The rule stands once, above.
                parts += [f"## {escaped(table.title)}", grid(table)]
    parts += ["## Rule", wrapped(f"{fair.RULE} {fair.EPISODES}")]
    compared = beside_the_paper(shown)
    if compared:
        parts += ["## Beside the paper", bullets(compared), wrapped(WHY)]
    if own:
        made = f"Written by `{found.plans[0]['command']}`."
    parts += ["## How to read the tables", wrapped(READING), wrapped(made)]
    if notes:
        parts += ["## What is missing or mixed", bullets(notes)]
    for section in dict.fromkeys(arm.section for arm in shown if arm.documents):
        if section == "curves":  # the cells are Table 1's
            continue
        parts.append(f"## {escaped(SECTIONS.get(section, section))}")
        if not own:
            parts.append(f"    {command(section, shown)}")
        for table in section_tables(section, shown):
            parts += [f"### {escaped(table.title)}", grid(table)]
            if table.note:
                parts.append(wrapped(table.note))
    makers = [f"{count} runs: {maker}" for maker, count in versions(found).items()]
    parts += ["## Versions", bullets(makers)]
    return "\n\n".join(parts) + "\n"


def verdicts(shown: Sequence[Arm]) -> list[str]:
    """A sentence on each family, and one on each of its tasks and limits."""
    parts = []
    for family, (title, _) in fair.FAMILIES.items():
        blocks = fair.family_blocks(family, shown)
        if not blocks:
            continue
        ours = fair.ours_of(family, blocks)
        found = fair.standings(blocks, ours)
        words = fair.overall(title, found, len(blocks), ours)
        parts += [wrapped(f"**{escaped(words)}**")] if words else []
        if not blocks[0].case:
            parts.append(bullets(fair.verdict(block, ours) for block in blocks))
    return parts


def bullets(lines: Iterable[str]) -> str:
    """A list."""
    return "\n".join(wrapped(escaped(line), "- ") for line in lines)


def beside_the_paper(shown: Sequence[Arm]) -> list[str]:
    """By task of Table 1: whom the paper marks as best, whom we would, and the costs.

    Both by the rule of the marks: mean reward within the limits.
    """
    lines = []
    for (task, limits), block in tables.blocks("table1", shown).items():
        ours = [label for label, arm in block.items() if arm.documents]
        entries = paper.TABLE1.get(task)
        if not ours or entries is None:
            continue
        marks = tables.block_marks(block, limits)
        best = next((x for x, mark in marks.items() if mark == "best"), "nobody")
        theirs = paper.NAMES[paper.TABLE1_BEST[task]]
        same = best.removesuffix(f" ({PAPER_FORM})") == theirs
        words = f"{task}: the paper has {theirs} best, "
        words += f"here {best} is too" if same else f"here it is {best}"
        if len(ours) < 2:
            words = f"{task}: the paper has {theirs} best, here {ours[0]} ran alone"
        above = [
            label
            for label in ours
            if block[label].algorithm in entries
            if any(block[label].costs.mean(axis=0) > block[label].limits)
        ]
        printed = [
            paper.NAMES[name]
            for name, entry in entries.items()
            if any(c > d for (c, _), d in zip(entry[1:], limits, strict=True))
        ]
        words += (
            f". Above a limit: in the paper {', '.join(printed) or 'nobody'}, here "
            f"{', '.join(above) or 'nobody'}."
        )
        lines.append(words)
    return lines


def section_tables(section: str, shown: Sequence[Arm]) -> list[Table]:
    """The tables of one suite."""
    if section in (*tables.TABLES, "robust"):
        found = [tables.gaps_table(section, shown), tables.exact_table(section, shown)]
    else:
        found = tables.task_tables(section, shown)
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
        *(f"% {line}" for line in textwrap.wrap(fair.RULE, WIDTH)),
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
