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
from ecop.report import fair, paper
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
    def marks(self) -> set[str]:
        """The marks of its entries; "paper" if one stands beside the paper's."""
        entries = [entry for row in self.rows for entry in row]
        found = {entry.mark for entry in entries if entry.mark}
        return found | {"paper" for entry in entries if entry.paper}


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
    return arm.label if arm.section == "runs" else fair.competitor(arm)


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
        head += ["runs within [95 %]", "excess"]
        mark = block_marks(block, limits)
        rows = []
        for label, arm in block.items():
            sign = mark.get(label, "")
            values = [entry(arm, i, sign) for i in range(1 + len(limits))]
            words, rest = ["", ""], ["", ""]
            if arm.documents:
                words = [str(len(arm.documents)), f"{arm.steps:,}"]
                rest = [
                    percent(st.proportion(arm.feasible, len(arm.documents))),
                    ", ".join(number(x) for x in arm.excess.mean(axis=0)),
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
    """Who of a block is best and near best; PPO cannot be, nor who ran alone."""
    entries = {
        label: (float(arm.reward.mean()), arm.costs.mean(axis=0).tolist())
        for label, arm in block.items()
        if arm.documents and arm.algorithm != REFERENCE
    }
    return marks(entries, limits) if len(entries) > 1 else {}


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


def cost_words(
    names: Sequence[str], costs: Sequence[float], limits: Sequence[float]
) -> str:
    """Each cost of a policy beside its limit, in words."""
    return "; ".join(
        f"{name}: cost {number(cost)}, {limit_words(limit)}"
        for name, cost, limit in zip(names, costs, limits, strict=True)
    )


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
        "interval. The last three are of training batches, whose noise depends on "
        "their size: they describe a run and do not compare algorithms. Strong "
        "violation: mean positive part of cost minus limit over all iterations. Until "
        f"feasible: the first of {st.WINDOW} iterations in a row "
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


def fair_table(family: str, shown: Iterable[Arm]) -> Table | None:
    """All tasks and limits of a family together, by the rule of `fair`."""
    blocks = fair.family_blocks(family, shown)
    if not blocks:
        return None
    ours = fair.ours_of(family, blocks)
    found = fair.standings(blocks, ours)
    full = [x.name for x in found if x.blocks == len(blocks)]
    winner = full[0] if len(full) > 1 and full[0] != paper.NAMES[REFERENCE] else ""
    shares = [at for at in SHARES if any(x.score[at] for x in found)]
    rows = []
    for x in found:
        words = [
            *("" if (s := x.score[at]) is None else f"{s.value:.2f}" for at in shares),
            fair.estimate(x.last),
            "" if x.ahead is None else fair.signed(x.ahead),
            percent(x.within),
            percent(x.forgiven),
            fair.estimate(x.lenient),
            f"{100 * x.excess:.1f} %",
        ]
        entries = [Entry(word) for word in words]
        if x.name == winner:
            entries[len(shares)] = Entry(words[len(shares)], "best")
        rows.append([Entry(x.name), Entry(f"{x.blocks} of {len(blocks)}"), *entries])
    head = ["algorithm", "tasks x limits"]
    head += [f"score at {100 * at:.0f} %" for at in shares]
    head += ["score at 100 % [95 %]", f"{ours} minus it [95 %]", "runs within [95 %]"]
    errors = f"{fair.ERRORS:g} se"
    head += [f"within + {errors} [95 %]", f"score within + {errors}", "mean excess"]
    note = f"By the rule of the report. {fair.EPISODES} Excess: relative to the limit."
    title = f"{fair.FAMILIES[family][0]}: score within the limits"
    return Table(f"score-{family}", title, head, rows, note)


def blocks_table(family: str, shown: Iterable[Arm]) -> Table | None:
    """The score of every competitor on every task and limits of a family."""
    blocks = fair.family_blocks(family, shown)
    if len(blocks) < 2:
        return None
    names = [x.name for x in fair.standings(blocks, fair.ours_of(family, blocks))]
    rows = []
    for block in blocks:
        row = [Entry(block.title)]
        for name in names:
            scores = [*block.scores(name).values()]
            if not scores:
                row.append(Entry(""))
                continue
            found = block.policies(name).values()
            inside = sum(x.within(block.limits) for x in found)
            text = f"{np.mean(scores):.2f} ({inside}/{len(scores)})"
            row.append(Entry(text, "" if inside else "above"))
        rows.append(row)
    title = f"{fair.FAMILIES[family][0]}, one by one: score (runs within)"
    note = "Marked where no run is within."
    return Table(f"blocks-{family}", title, ["", *names], rows, note, words=1)


def exact_table(section: str, shown: Iterable[Arm]) -> Table | None:
    """Tabular tasks: the optimum, and what the last policies reach, not sampled."""
    rows = []
    for arm in (arm for arm in shown if arm.section == section):
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
    return Table(section, SECTIONS[section], head, rows, note) if rows else None


def gaps_table(section: str, shown: Iterable[Arm]) -> Table | None:
    """Over all tabular tasks of a section: gaps and violations of each algorithm."""
    gaps: dict[str, list[float]] = {}
    excess: dict[str, list[float]] = {}
    for arm in (arm for arm in shown if arm.section == section):
        for truth in (d["exact"] for d in arm.documents if d.get("exact")):
            gap = (truth["optimum"] - truth["value"]) / max(abs(truth["optimum"]), 1e-9)
            over = (np.array(truth["costs"]) - arm.limits) / np.maximum(
                arm.limits, 1e-9
            )
            gaps.setdefault(fair.competitor(arm), []).append(gap)
            excess.setdefault(fair.competitor(arm), []).append(float(np.max(over)))
    rows = []
    for name, found in gaps.items():
        inside = sum(x <= fair.EXACT_SLACK for x in excess[name])
        words = [
            name,
            str(len(found)),
            f"{100 * median(found):.2f} %",
            f"{100 * float(np.quantile(found, 0.9)):.2f} %",
            percent(st.proportion(inside, len(found))),
            f"{100 * max(excess[name]):+.2f} %",
        ]
        rows.append([Entry(word) for word in words])
    head = ["algorithm", "runs", "median gap", "90 % of the gaps below"]
    head += ["runs within + 2 % [95 %]", "worst violation"]
    note = (
        "Users' defaults. A gap is relative to the linear program's optimum, a "
        "violation to the limit; both are exact."
    )
    title = f"{SECTIONS[section].split(':')[0]}: gaps to the optimum"
    return Table(f"gaps-{section}", title, head, rows, note, 1) if rows else None


LISTS = ("options", "tuning", "yardstick", "velocity")  # too many arms for columns
TABLES = ("exact", "exact_long")


def all_tables(shown: list[Arm]) -> list[Table]:
    """All tables that have something in them, in the order of the report."""
    layouts = [s for s in SECTIONS if s not in ("curves", "robust", *TABLES, *LISTS)]
    found: list[Table | None] = [paper_layout(layouts[0], shown)]
    for family in fair.FAMILIES:
        found += [fair_table(family, shown), blocks_table(family, shown)]
    found += [paper_layout(section, shown) for section in layouts[1:]]
    for section in (*TABLES, "robust"):
        found += [gaps_table(section, shown), exact_table(section, shown)]
    found += [table for section in LISTS for table in task_tables(section, shown)]
    found += [shares_table(shown), statistics_table(shown)]
    return [table for table in found if table is not None]
