"""From arms to tables for any format: statistics, marks, layouts.

Which entry of a table is best follows one rule (`RULE`), the one that the paper's own
Table 1 follows (tested).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from ecop.bench.suites import REFERENCE
from ecop.bench.work import SHARE_EPISODES, SHARES
from ecop.report import paper
from ecop.report import statistics as st
from ecop.report.arms import SECTIONS, Arm
from ecop.report.published import PUBLISHED, Figure, figures, sources

Block = tuple[str, tuple[float, ...]]  # a task and its limits
RULE = (
    "Marked as in the paper's Table 1: best (dark, bold) is the highest mean reward "
    "among the algorithms whose mean cost is within every limit; near best (light) is "
    "the second of them. What breaks a limit cannot win, and neither can PPO, the "
    "unconstrained reference. The paper puts the light mark only where e-COP is second."
)
QUANTILES = (0.05, 0.5, 0.95)
OUTSIDE = 1e9  # worse than any reward

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

    @property
    def marked(self) -> bool:
        """Whether an entry has a mark or stands beside the paper's."""
        return any(entry.mark or entry.paper for row in self.rows for entry in row)


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
    if not math.isfinite(x.low):
        return number(x.value)
    places = digits(x.value)
    return f"{x.value:.{places}f} [{x.low:.{places}f}, {x.high:.{places}f}]"


def percent(x: st.Estimate) -> str:
    """A share with the ends of its interval."""
    if not math.isfinite(x.low):
        return f"{100 * x.value:.0f} %"
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


def blocks(section: str, shown: Iterable[Arm]) -> dict[Block, dict[str, Arm]]:
    """The arms to compare with each other, by task and limits, then by column.

    An arm without runs is there if the paper has numbers for it.
    """
    found: dict[Block, dict[str, Arm]] = {}
    for arm in shown:
        if arm.section == section and (arm.documents or published(arm)):
            block = found.setdefault((arm.task, tuple(arm.limits)), {})
            block[column(arm)] = arm
    return found


def paper_layout(section: str, shown: Iterable[Arm]) -> Table | None:
    """A section as Table 1 is laid out: rows R and C of each task, a column each."""
    found = blocks(section, shown)
    if not any(arm.documents for block in found.values() for arm in block.values()):
        return None
    head = list(dict.fromkeys(label for block in found.values() for label in block))
    rows = []
    for (task, limits), block in found.items():
        mark = block_marks(block, limits)
        for i, name in enumerate(["R", *cost_names(limits)]):
            cells = [
                entry(block[label], i, mark.get(label, ""))
                if label in block
                else Entry("")
                for label in head
            ]
            rows.append([Entry("" if i else task), Entry(name), *cells])
    note = RULE if section == "table1" else "Marked by the rule of Table 1."
    return Table(section, SECTIONS[section], ["task", "", *head], rows, note)


def task_tables(section: str, shown: Iterable[Arm]) -> list[Table]:
    """A table for each task and limits of a section, with a row for each arm."""
    tables = []
    for (task, limits), block in blocks(section, shown).items():
        done = [arm for arm in block.values() if arm.documents]
        if not done:
            continue
        names = [
            f"{name} ({limit_words(limit)})"
            for name, limit in zip(done[0].documents[0]["costs"], limits, strict=True)
        ]
        head = ["algorithm", "runs", "steps", "reward", *names]
        head += ["P(run feasible) [95 %]", "strong violation", "iterations above"]
        mark = block_marks(block, limits)
        rows = []
        for label, arm in block.items():
            sign = mark.get(label, "")
            values = [entry(arm, i, sign) for i in range(1 + len(limits))]
            words, rest = ["", ""], ["", "", ""]
            if arm.documents:
                words = [str(len(arm.documents)), f"{arm.steps:,}"]
                rest = [
                    percent(st.proportion(arm.feasible, len(arm.documents))),
                    ", ".join(number(x) for x in arm.strong.mean(axis=0)),
                    ", ".join(f"{100 * x:.0f} %" for x in arm.above.mean(axis=0)),
                ]
            rows.append([Entry(label), *map(Entry, words), *values, *map(Entry, rest)])
        title = f"{task}, {' and '.join(map(limit_words, limits))}"
        others = figures(section, task)
        rows += [_theirs(figure, len(head)) for figure in others]
        if section in PUBLISHED:
            head += ["failed", "reward, most likely actions", "its cost"]
            for row, arm in zip_longest(rows, block.values()):
                row += map(Entry, [_failed(arm), *_likely(arm)] if arm else [""] * 3)
        tables.append(Table(section, title, head, rows, sources(others), words=1))
    return tables


def _theirs(figure: Figure, width: int) -> list[Entry]:
    """A published figure as a row."""
    label = f"{figure.source.name}: {figure.algorithm}, {figure.steps / 1e6:g}M steps"
    spread = "" if figure.spread is None else f" ± {figure.spread:g}"
    cost = "" if figure.cost is None else f"{figure.cost:g}"
    words = [label, "", "", f"{figure.reward:g}{spread}", cost]
    return [Entry(word) for word in (*words, *[""] * (width - len(words)))]


def _failed(arm: Arm) -> str:
    """The share of fresh episodes that ended early, which caps their cost."""
    parts = [d["evaluation"] for d in arm.documents]
    shares = [part["failed"] for part in parts if "failed" in part]
    return f"{100 * np.mean(shares):.0f} %" if shares else ""


def _likely(arm: Arm) -> list[str]:
    """Reward and costs of deterministic policies, which some of the others report."""
    if not arm.deterministic:
        return ["", ""]
    reward, costs = means(arm.deterministic)
    words = [plus_minus(st.mean_normal(cost)) for cost in costs.T]
    return [plus_minus(st.mean_normal(reward)), ", ".join(words)]


def means(parts: list[dict[str, Any]]) -> tuple[np.ndarray, np.ndarray]:
    """Mean reward [S] and costs [S, C] of the episodes of each run."""
    rewards = [np.mean(part["reward"]) for part in parts]
    return np.array(rewards), np.array([np.mean(p["costs"], axis=0) for p in parts])


def shares_table(shown: Iterable[Arm]) -> Table | None:
    """Fresh episodes of the policies after shares of the steps."""
    rows = []
    for arm in shown:
        if arm.section == "curves" or not arm.at(SHARES[0]):
            continue
        row = [Entry(arm.section), Entry(arm.task), Entry(arm.label)]
        for share in (*SHARES, 1.0):
            parts = arm.at(share)
            if not parts:
                row.append(Entry(""))
                continue
            reward, costs = (x.mean(axis=0) for x in means(parts))
            words = " / ".join(number(float(x)) for x in (reward, *costs))
            row.append(Entry(words, "above" if np.any(costs > arm.limits) else ""))
        rows.append(row)
    head = ["section", "task", "algorithm"]
    head += [f"{100 * share:.0f} % of the steps" for share in (*SHARES, 1.0)]
    note = (
        "Mean reward / costs of fresh episodes, over runs, of the policies after a "
        f"share of the steps; {SHARE_EPISODES} episodes of each run before the last."
    )
    title = "Fresh episodes on the way"
    return Table("shares", title, head, rows, note, 3) if rows else None


def block_marks(block: dict[str, Arm], limits: Sequence[float]) -> dict[str, str]:
    """Who of a block is best and near best; PPO cannot be."""
    entries = {
        label: (float(arm.reward.mean()), arm.costs.mean(axis=0).tolist())
        for label, arm in block.items()
        if arm.documents and arm.algorithm != REFERENCE
    }
    return marks(entries, limits)


def entry(arm: Arm, i: int, mark: str) -> Entry:
    """The reward (0) or a cost (1, ...) of an arm beside the paper's."""
    theirs = published(arm)
    text = "{:.1f} ± {:.1f}".format(*theirs[i]) if theirs else ""
    if not arm.documents:
        return Entry("", paper=text)
    values = arm.costs[:, i - 1] if i else arm.reward
    above = i and values.mean() > arm.limits[i - 1]
    return Entry(plus_minus(st.mean_normal(values)), "above" if above else mark, text)


def cost_names(limits: Sequence[float]) -> list[str]:
    """The costs' rows in the paper's layout."""
    words = [limit_words(limit).removeprefix("limit ") for limit in limits]
    if len(words) == 1:
        return [f"C ({words[0]})"]
    return [f"C{i} ({word})" for i, word in enumerate(words, start=1)]


def limit_words(limit: float) -> str:
    """A limit in words."""
    return f"limit {limit:g}" if math.isfinite(limit) else "no limit"


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
    head += ["strong violation", "iterations above", "steps until feasible"]
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
    reached = [t for t in arm.times if t is not None]
    when = f"{median(reached):,.0f}" if reached else "never"
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
        " / ".join(number(q) for q in np.quantile(costs[:, i], QUANTILES)),
        percent(st.proportion(arm.feasible, len(arm.documents))),
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
        good = sum(arm.feasible for arm in own)
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
    # Too many arms for columns, or figures of others beside them.
    lists = ("options", "tuning", "yardstick", "velocity")
    layouts = [s for s in SECTIONS if s not in ("curves", "exact", *lists)]
    found = [paper_layout(layouts[0], shown), aggregate_table(shown)]
    found += [paper_layout(section, shown) for section in layouts[1:]]
    found += [exact_table(shown)]
    found += [table for section in lists for table in task_tables(section, shown)]
    found += [shares_table(shown), statistics_table(shown)]
    return [table for table in found if table is not None]
