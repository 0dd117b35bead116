"""From a results folder to tables: arms, their statistics, marks, layouts.

An arm is a group with its finished runs. Which entry of a table is best follows one
rule (`RULE`), the one that the paper's own Table 1 follows (tested).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from ecop.bench.cells import seed_of
from ecop.bench.results import Results
from ecop.bench.suites import EVERYONE, LIMITS, REFERENCE, TABLE1, TABLE3
from ecop.report import paper
from ecop.report import statistics as st

RULE = (
    "Marked as in the paper's Table 1: best (dark, bold) is the highest mean reward "
    "among the algorithms whose mean cost is within every limit; near best (light) is "
    "the second of them. What breaks a limit cannot win, and neither can PPO, the "
    "unconstrained reference. The paper puts the light mark only where e-COP is second."
)
QUANTILES = (0.05, 0.5, 0.95)
OUTSIDE = 1e9  # worse than any reward

SECTIONS = {
    "table1": "Table 1: reward and cost of all algorithms",
    "curves": "Fig. 2: learning curves",
    "navigation": "Fig. 3: Navigation with both constraints, C1 only, C2 only",
    "limits": "Fig. 4: two limits per task",
    "beta": "Table 2: sensitivity of e-COP to beta",
    "robustness": "Fig. 5: other limits with unchanged options",
    "exact": "Exact: tabular tasks against their optimum",
}


@dataclass
class Arm:
    """One algorithm on one task with one setting, and its finished runs.

    Attributes:
        limits: what it is judged by; inf is no limit
        planned: runs asked for
        documents: finished runs, by seed
    """

    section: str
    task: str
    algorithm: str
    variant: str
    limits: np.ndarray  # [C]
    planned: list[str]
    documents: list[dict[str, Any]] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The algorithm as the paper writes it."""
        return paper.NAMES.get(self.algorithm, self.algorithm)

    @property
    def label(self) -> str:
        """Algorithm and variant."""
        return f"{self.name}, {self.variant}" if self.variant else self.name

    @cached_property
    def reward(self) -> np.ndarray:
        """Mean reward of fresh episodes, by run [S]."""
        return np.array([np.mean(d["evaluation"]["reward"]) for d in self.documents])

    @cached_property
    def costs(self) -> np.ndarray:
        """Mean costs of fresh episodes, by run [S, C]."""
        rows = [np.mean(d["evaluation"]["costs"], axis=0) for d in self.documents]
        return np.array(rows).reshape(len(rows), len(self.limits))

    @cached_property
    def training_costs(self) -> list[np.ndarray]:
        """Costs of every iteration [K, C], by run."""
        count = len(self.limits)
        return [
            np.array(d["curve"]["costs"], float).reshape(-1, count)
            for d in self.documents
        ]

    @property
    def within(self) -> bool:
        """Whether the mean costs are within every limit."""
        return bool(st.feasible(self.costs.mean(axis=0), self.limits))

    @cached_property
    def strong(self) -> np.ndarray:
        """Strong violation by run [S, C]."""
        rows = [st.strong_violation(c, self.limits) for c in self.training_costs]
        return np.array(rows)

    @cached_property
    def above(self) -> np.ndarray:
        """Share of iterations above the limit by run [S, C]."""
        return np.array([st.share_above(c, self.limits) for c in self.training_costs])

    @cached_property
    def times(self) -> list[int | None]:
        """Episodes until the costs stay within the limits, by run."""
        found = []
        for document, costs in zip(self.documents, self.training_costs, strict=True):
            k = st.time_to_feasible(costs, self.limits)
            per = document["cell"]["train"]["episodes"]
            found.append(
                None if k is None else per * document["curve"]["iteration"][k - 1]
            )
        return found


# Arms


def arms(found: Results) -> tuple[list[Arm], list[str]]:
    """The arms of all plans, and a sentence for whatever had to be left out.

    If a group was run with several settings, the one with the most episodes is shown,
    then the one with the most runs.
    """
    groups: dict[tuple[str, ...], dict[str, list[dict[str, Any]]]] = {}
    for plan in found.plans:
        for group in plan["groups"]:
            key = tuple(group[k] for k in ("section", "task", "algorithm", "variant"))
            groups.setdefault(key, {}).setdefault(group["setting"], []).append(group)
    shown, notes = [], []
    for settings in groups.values():
        candidates = [_arm(lines, found) for lines in settings.values()]
        chosen, *others = sorted(candidates, key=_weight, reverse=True)
        shown.append(chosen)
        left = sum(len(other.documents) for other in others)
        if left:
            notes.append(
                f"{chosen.section}, {chosen.task}, {chosen.label}: {left} run(s) with "
                "other settings or fewer episodes are in the folder and not shown."
            )
    order = {name: i for i, name in enumerate(EVERYONE)}
    sections = list(SECTIONS)
    tasks = list(dict.fromkeys([*LIMITS, *(arm.task for arm in shown)]))
    shown.sort(
        key=lambda a: (
            sections.index(a.section) if a.section in sections else len(sections),
            tasks.index(a.task),
            order.get(a.algorithm, len(order)),
        )
    )
    return shown, notes


def _arm(lines: list[dict[str, Any]], found: Results) -> Arm:
    first = lines[0]
    names = list(dict.fromkeys(name for line in lines for name in line["cells"]))
    documents = [found.cells[name] for name in names if name in found.cells]
    documents.sort(key=lambda document: seed_of(document["cell"]))
    return Arm(
        first["section"],
        first["task"],
        first["algorithm"],
        first["variant"],
        np.array([math.inf if x is None else x for x in first["limits"]], float),
        names,
        documents,
    )


def _weight(arm: Arm) -> tuple[int, int]:
    if not arm.documents:
        return 0, 0
    train = arm.documents[0]["cell"]["train"]
    return train["iterations"] * train["episodes"], len(arm.documents)


def missing(found: Results, shown: Sequence[Arm]) -> list[str]:
    """Sentences about what was asked for and is not there."""
    notes = []
    absent: dict[str, str] = {}
    for plan in found.plans:
        absent |= plan.get("missing", {})
    done = {arm.task for arm in shown if arm.documents}
    for task, why in absent.items():
        if task not in done:
            notes.append(f"{task} was not run: {why}.")
    unfinished: dict[str, list[str]] = {}
    for arm in shown:
        if arm.task in absent and not arm.documents:
            continue
        left = len(arm.planned) - len(arm.documents)
        if left:
            text = f"{arm.label} ({left} of {len(arm.planned)} runs)"
            unfinished.setdefault(f"{arm.section}, {arm.task}", []).append(text)
    notes += [f"{where}: missing {', '.join(x)}." for where, x in unfinished.items()]
    table = [arm for arm in shown if arm.section == "table1" and arm.documents]
    if table:
        there = {arm.algorithm for arm in table}
        names = [paper.NAMES[a] for a in (*TABLE1, *TABLE3) if a not in there]
        if names:
            notes.append(f"Table 1 has no runs of {', '.join(names)}.")
    return notes


def versions(found: Results) -> dict[str, int]:
    """Versions that made the cells, and how many each."""
    counts: dict[str, int] = {}
    for document in found.cells.values():
        others = document.get("versions", {})
        words = [f"ecop {document.get('ecop', '?')}"]
        words += [f"{name} {number}" for name, number in others.items()]
        commit, *dirty = (document.get("commit") or "unknown").split("-")
        words.append("-".join([f"commit {commit[:12]}", *dirty]))
        text = ", ".join(words)
        counts[text] = counts.get(text, 0) + 1
    return counts


# Marks


def marks(
    entries: Mapping[str, tuple[float, Sequence[float]]], limits: Sequence[float]
) -> dict[str, str]:
    """RULE: name -> (reward, costs), without PPO, gives name -> "best" or "near"."""
    good = [
        name
        for name, (_, costs) in entries.items()
        if st.feasible(np.array(costs), np.array(limits))
    ]
    good.sort(key=lambda name: entries[name][0], reverse=True)
    return dict(zip(good, ("best", "near"), strict=False))


# Tables


class Entry(NamedTuple):
    """One entry of a table."""

    text: str
    mark: str = ""  # "best", "near", or "above" for a broken limit
    paper: str = ""  # what the paper has in this place


class Table(NamedTuple):
    """A table for any format."""

    name: str
    title: str
    head: list[str]
    rows: list[list[Entry]]
    note: str = ""
    words: int = 2  # columns of text before those of numbers


def plus_minus(x: st.Estimate) -> str:
    """Mean with half of its interval."""
    half = x.high - x.value
    if not math.isfinite(half):
        return number(x.value)
    return f"{number(x.value)} ± {half:.{digits(x.value)}f}"


def number(x: float) -> str:
    """Enough digits to read."""
    return f"{x:.{digits(x)}f}"


def digits(x: float) -> int:
    """Digits after the point."""
    return 1 if abs(x) >= 10 else 2


def between(x: st.Estimate) -> str:
    """Value with the ends of its interval."""
    places = digits(x.value)
    return f"{x.value:.{places}f} [{x.low:.{places}f}, {x.high:.{places}f}]"


def percent(x: st.Estimate) -> str:
    """A share with the ends of its interval."""
    return f"{100 * x.value:.0f} % [{100 * x.low:.0f}, {100 * x.high:.0f}]"


def column(arm: Arm) -> str:
    """The column that an arm has in the paper's layout."""
    if arm.section in ("navigation", "beta") and arm.variant:
        return arm.variant
    return arm.name


def published(arm: Arm) -> paper.Entry | None:
    """The paper's numbers for an arm."""
    if arm.section in ("table1", "curves"):
        return paper.TABLE1.get(arm.task, {}).get(arm.algorithm)
    if arm.section == "beta":
        return paper.TABLE2.get(arm.task, {}).get(arm.variant or arm.algorithm)
    if arm.section == "navigation" and arm.variant == "both constraints":
        return paper.TABLE1["Navigation"]["ecop"]
    return None


def paper_layout(section: str, shown: Iterable[Arm]) -> Table | None:
    """A section as Table 1 is laid out: rows R and C of each task, a column each."""
    mine = [arm for arm in shown if arm.section == section]
    if not any(arm.documents for arm in mine):
        return None
    wide = [arm for arm in mine if arm.documents or published(arm)]
    head = list(dict.fromkeys(column(arm) for arm in wide))
    blocks: dict[Any, list[Arm]] = {}
    for arm in wide:
        blocks.setdefault((arm.task, tuple(arm.limits)), []).append(arm)
    rows = []
    for (task, limits), block in blocks.items():
        rows += _block(task, limits, {column(arm): arm for arm in block}, head)
    note = RULE if section == "table1" else "Marked by the rule of Table 1."
    return Table(section, SECTIONS[section], ["task", "", *head], rows, note)


def _block(
    task: str, limits: tuple[float, ...], block: dict[str, Arm], head: list[str]
) -> list[list[Entry]]:
    """The rows R and C of one task."""
    done = {name: arm for name, arm in block.items() if arm.documents}
    entries = {
        name: (float(arm.reward.mean()), arm.costs.mean(axis=0).tolist())
        for name, arm in done.items()
        if arm.algorithm != REFERENCE
    }
    mark = marks(entries, limits)
    rows = []
    for i in range(1 + len(limits)):
        name = _row_name(i, limits)
        row = [Entry(task if i == 0 else ""), Entry(name)]
        for label in head:
            arm = block.get(label)
            theirs = published(arm) if arm else None
            text = "{:.1f} ± {:.1f}".format(*theirs[i]) if theirs else ""
            if label not in done:
                row.append(Entry("", paper=text))
                continue
            values = done[label].costs[:, i - 1] if i else done[label].reward
            sign = mark.get(label, "")
            if i and values.mean() > limits[i - 1]:
                sign = "above"
            row.append(Entry(plus_minus(st.mean_normal(values)), sign, text))
        rows.append(row)
    return rows


def _row_name(i: int, limits: tuple[float, ...]) -> str:
    if i == 0:
        return "R"
    limit = f"{limits[i - 1]:g}" if math.isfinite(limits[i - 1]) else "no limit"
    return f"C{i if len(limits) > 1 else ''} ({limit})"


def statistics_table(shown: Iterable[Arm]) -> Table | None:
    """Every statistic of every arm."""
    rows = []
    for arm in shown:
        if not arm.documents or arm.section == "curves":
            continue
        for i, limit in enumerate(arm.limits):
            rows.append(_statistics(arm, i, limit))
    head = ["section", "task", "algorithm", "runs", "reward: mean ± 95 %"]
    head += ["reward: IQM [95 %]", "cost", "limit", "cost: mean ± 95 %"]
    head += ["cost: 5 / 50 / 95 % of episodes", "P(run feasible) [95 %]"]
    head += ["strong violation", "iterations above", "episodes until feasible"]
    note = (
        "Intervals are over runs. IQM: mean of the middle half of the runs, bootstrap. "
        "P(run feasible): share of runs whose mean cost is within all limits, Wilson's "
        "interval. Strong violation: mean positive part of cost minus limit over all "
        f"iterations. Until feasible: the first of {st.WINDOW} iterations in a row "
        "within all limits, median over the runs that get there."
    )
    title = "Statistics on reward and constraints"
    return Table("statistics", title, head, rows, note, 3) if rows else None


def _statistics(arm: Arm, i: int, limit: float) -> list[Entry]:
    document = arm.documents[0]
    costs = np.concatenate([d["evaluation"]["costs"] for d in arm.documents])
    good = int(np.sum(st.feasible(arm.costs, arm.limits)))
    reached = [t for t in arm.times if t is not None]
    when = f"{median(reached):.0f}" if reached else "never"
    mean = st.mean_normal(arm.costs[:, i])
    words = [
        arm.section,
        arm.task,
        arm.label,
        str(len(arm.documents)),
        plus_minus(st.mean_normal(arm.reward)),
        between(st.iqm_bootstrap([arm.reward])),
        document["costs"][i],
        f"{limit:g}" if math.isfinite(limit) else "off",
    ]
    rest = [
        " / ".join(number(q) for q in st.quantiles(costs[:, i], QUANTILES)),
        percent(st.proportion(good, len(arm.documents))),
        number(float(arm.strong[:, i].mean())),
        f"{100 * float(arm.above[:, i].mean()):.0f} %",
        f"{when} ({len(reached)} of {len(arm.documents)})",
    ]
    above = Entry(plus_minus(mean), "above" if mean.value > limit else "")
    return [*map(Entry, words), above, *map(Entry, rest)]


def ranking(arm: Arm) -> np.ndarray:
    """Runs by constraints first: [S] values to compare within one task.

    A run within the limits beats one that is not; two within compare by reward, two
    outside by their worst violation relative to the limit.
    """
    relative = st.violation(arm.costs, arm.limits) / np.maximum(arm.limits, 1e-9)
    worst = np.max(relative, axis=1)
    return np.where(worst <= 0.0, arm.reward, -OUTSIDE * (1.0 + worst))


def aggregate_table(shown: Iterable[Arm]) -> Table | None:
    """Over all tasks of Table 1: normalised IQM, feasibility, improvement by e-COP."""
    mine = [arm for arm in shown if arm.section == "table1" and arm.documents]
    by = {(arm.task, arm.algorithm): arm for arm in mine}
    tasks = list(dict.fromkeys(arm.task for arm in mine))
    unit = {task: _unit(task, by) for task in tasks}
    rows = []
    for algorithm in dict.fromkeys(arm.algorithm for arm in mine):
        there = [task for task in tasks if (task, algorithm) in by]
        own = [by[task, algorithm] for task in there]
        rewards = [arm.reward / unit[arm.task] for arm in own]
        good = sum(int(st.feasible(arm.costs, arm.limits).sum()) for arm in own)
        runs = sum(len(arm.documents) for arm in own)
        row = [own[0].name, str(len(there)), between(st.iqm_bootstrap(rewards))]
        row.append(percent(st.proportion(good, runs)))
        pairs = [(by[t, "ecop"], by[t, algorithm]) for t in there if (t, "ecop") in by]
        if algorithm == "ecop" or not pairs:
            row += ["", ""]
        else:
            for value in (lambda arm: arm.reward, ranking):
                ours = [value(ecop) for ecop, _ in pairs]
                theirs = [value(other) for _, other in pairs]
                row.append(percent(st.probability_of_improvement(ours, theirs)))
        rows.append([Entry(text) for text in row])
    head = ["algorithm", "tasks", "reward, IQM [95 %]", "P(run feasible) [95 %]"]
    head += ["P(e-COP better), reward", "P(e-COP better), constraints first"]
    note = (
        "Rewards are divided by that of PPO, the unconstrained reference, on the same "
        "task (by the highest one where PPO was not run); stratified bootstrap over "
        "tasks. Constraints first: a run within the limits beats one that is not."
    )
    title = "All tasks of Table 1 together"
    return Table("aggregate", title, head, rows, note, 1) if rows else None


def _unit(task: str, by: dict[tuple[str, str], Arm]) -> float:
    if (task, REFERENCE) in by:
        return abs(float(by[task, REFERENCE].reward.mean())) or 1.0
    means = [abs(float(arm.reward.mean())) for (t, _), arm in by.items() if t == task]
    return max(means) or 1.0


def exact_table(shown: Iterable[Arm]) -> Table | None:
    """Tabular tasks: the optimum, and what the last policies reach, not sampled."""
    rows = []
    for arm in shown:
        found = [d["exact"] for d in arm.documents if d.get("exact")]
        if not found:
            continue
        optimum = found[0]["optimum"]
        gaps = [(e["optimum"] - e["value"]) / max(abs(optimum), 1e-9) for e in found]
        excess = [
            np.max((np.array(e["costs"]) - arm.limits) / np.maximum(arm.limits, 1e-9))
            for e in found
        ]
        words = [
            arm.task,
            arm.label,
            str(len(found)),
            f"{optimum:.4f}",
            f"{median(e['value'] for e in found):.4f}",
            f"{100 * median(gaps):.2f} %",
            f"{100 * median(excess):+.2f} %",
            f"{100 * max(excess):+.2f} %",
        ]
        rows.append([Entry(word) for word in words])
    head = ["task", "policy", "runs", "optimum J*", "median J", "median gap"]
    head += ["median violation", "worst violation"]
    note = (
        "J* is the linear program's optimum; J and costs of the last policy are exact. "
        "A violation is relative to the limit; a negative gap goes with a violation."
    )
    return Table("exact", SECTIONS["exact"], head, rows, note) if rows else None


def all_tables(shown: list[Arm]) -> list[Table]:
    """All tables that have something in them, in the order of the report."""
    layouts = [s for s in SECTIONS if s not in ("curves", "exact")]
    found = [paper_layout(layouts[0], shown), aggregate_table(shown)]
    found += [paper_layout(section, shown) for section in layouts[1:]]
    found += [exact_table(shown), statistics_table(shown)]
    return [table for table in found if table is not None]


# Plain formats


def markdown(tables: Sequence[Table], notes: Sequence[str]) -> str:
    """The tables in Markdown: best bold, near best italic, broken limits marked *."""
    parts = ["# Benchmark results"]
    if notes:
        parts += ["## What to know first", "\n".join(f"- {note}" for note in notes)]
    for table in tables:
        lines = [table.head, ["---"] * len(table.head)]
        lines += [[_md(entry) for entry in row] for row in table.rows]
        parts.append(f"## {table.title}")
        parts.append("\n".join(f"| {' | '.join(line)} |" for line in lines))
        if table.note:
            parts.append(table.note)
    parts.append("**bold**: best, *italic*: near best, ↑: above the limit; in brackets")
    parts[-1] += " the paper's number."
    return "\n\n".join(parts) + "\n"


def _md(entry: Entry) -> str:
    text = entry.text.replace("|", "\\|")
    wrap = {"best": "**{}**", "near": "*{}*", "above": "{} ↑"}.get(entry.mark, "{}")
    text = wrap.format(text) if text else ""
    return f"{text} ({entry.paper})".strip() if entry.paper else text


TEX = {"&": r"\&", "%": r"\%", "_": r"\_", "#": r"\#", "$": r"\$", "±": r"$\pm$"}
TEX |= {"{": r"\{", "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
TEX |= {"\\": r"\textbackslash{}", "<": "$<$", ">": "$>$"}


def tex(text: str) -> str:
    """Text with everything escaped that TeX would read as a command."""
    return "".join(TEX.get(letter, letter) for letter in text)


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
