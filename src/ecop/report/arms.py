"""From a results folder to arms: which cells belong together, and what is missing.

An arm is a group of a suite with its finished runs.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from ecop.bench.cells import changed, seed_of
from ecop.bench.results import Results, fresh, steps
from ecop.bench.suites import EVERYONE, LIMITS, PAPER_FORM, TABLE1, TABLE3
from ecop.report import paper
from ecop.report import statistics as st

SECTIONS = {
    "table1": "Table 1: reward and cost of all algorithms",
    "curves": "Fig. 2: learning curves",
    "navigation": "Fig. 3: Navigation with both constraints, C1 only, C2 only",
    "limits": "Fig. 4: two limits per task",
    "beta": "Table 2: sensitivity of e-COP to beta",
    "robustness": "Fig. 5: other limits with unchanged options",
    "exact": "Exact: tabular tasks against their optimum",
    "exact_long": "Exact, 60,000 episodes: tabular tasks against their optimum",
    "robust": "Robust: one set of defaults across limits, horizons and scales",
    "options": "Forms of e-COP",
    "tuning": "Tuning: the same number of settings for every algorithm",
    "yardstick": "Yardstick: PPO without limits beside published figures",
    "velocity": "Safe Velocity: beside published figures",
    "runs": "Training runs",
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
        if self.variant == PAPER_FORM:
            return f"{self.name} ({PAPER_FORM})"
        return f"{self.name}, {self.variant}" if self.variant else self.name

    @property
    def steps(self) -> int:
        """Environment steps that each run was given."""
        document = self.documents[0]
        train = document["cell"]["train"]
        planned = 0 if train["iterations"] else train.get("steps", 0)
        return planned or document["env_steps"]

    @cached_property
    def reward(self) -> np.ndarray:
        """Mean reward of fresh episodes, by run [S]."""
        return np.array([np.mean(d["evaluation"]["reward"]) for d in self.documents])

    @cached_property
    def costs(self) -> np.ndarray:
        """Mean costs of fresh episodes, by run [S, C]."""
        rows = [np.mean(d["evaluation"]["costs"], axis=0) for d in self.documents]
        return np.array(rows).reshape(len(rows), len(self.limits))

    def at(self, share: float) -> list[dict[str, Any]]:
        """Fresh episodes after a share of the steps, of the runs that have them."""
        found = [part for d in self.documents for part in fresh(d)]
        return [part for part in found if part["share"] == share]

    @cached_property
    def deterministic(self) -> list[dict[str, Any]]:
        """Fresh episodes of most likely actions, of the runs that have them."""
        return [d["deterministic"] for d in self.documents if d.get("deterministic")]

    def curves(self, points: int) -> tuple[np.ndarray, np.ndarray]:
        """Steps [K], and by run the reward with each cost [S, 1 + C, K].

        Means over blocks of equal numbers of steps, since runs of tasks that end early
        differ in their iterations; an iteration counts with its steps.
        """
        ends = [np.array(steps(document), float) for document in self.documents]
        count = min(points, *map(len, ends))
        edges = np.linspace(0.0, min(end[-1] for end in ends), count + 1)
        rows = []
        for document, end, costs in zip(
            self.documents, ends, self.training_costs, strict=True
        ):
            values = np.column_stack([document["curve"]["reward"], costs])
            rows.append([st.block_means(end, row, edges) for row in values.T])
        return edges[1:], np.array(rows)

    @cached_property
    def training_costs(self) -> list[np.ndarray]:
        """Costs of every iteration [K, C], by run."""
        count = len(self.limits)
        return [
            np.array(d["curve"]["costs"], float).reshape(-1, count)
            for d in self.documents
        ]

    @property
    def feasible(self) -> int:
        """Runs whose mean costs are within every limit."""
        return int(np.sum(st.feasible(self.costs, self.limits)))

    @cached_property
    def excess(self) -> np.ndarray:
        """Cost of fresh episodes above the limit, 0 if within, by run [S, C]."""
        return np.maximum(st.violation(self.costs, self.limits), 0.0)

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
        """Steps until the costs stay within the limits, by run."""
        found = []
        for document, costs in zip(self.documents, self.training_costs, strict=True):
            k = st.time_to_feasible(costs, self.limits)
            found.append(None if k is None else steps(document)[k - 1])
        return found


def collect(found: Results) -> tuple[list[Arm], list[str]]:
    """The arms to show, and a sentence for all that is missing, mixed or left out."""
    shown, left_out = _arms(found)
    notes = [*_missing(found, shown), *_failed(found), *_mixed(found), *_stray(found)]
    if not any(arm.documents for arm in shown):
        notes.append("No plan fits the finished cells: there is nothing to draw.")
    return shown, notes + left_out + found.problems


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


# Which cells belong together


def _arms(found: Results) -> tuple[list[Arm], list[str]]:
    """The arms of all plans, and a sentence for each that was run in several ways.

    If a group was run with several settings, the one with the most steps is shown,
    then the one with the most runs.
    """
    groups: dict[tuple[str, ...], dict[str, list[dict[str, Any]]]] = {}
    for plan in found.plans:
        for group in plan["groups"]:
            key = tuple(group[k] for k in ("section", "task", "algorithm", "variant"))
            groups.setdefault(key, {}).setdefault(group["setting"], []).append(group)
    old = _of_other_tasks(found)
    shown, notes = [], []
    for (section, task), names in old.items():
        notes.append(
            f"{section}, {task}: {len(names)} run(s) are not shown: the task had other "
            "constants then, or its file does not say which."
        )
    for (section, task, *_), settings in groups.items():
        left_out = old.get((section, task), set())
        candidates = [_arm(lines, found, left_out) for lines in settings.values()]
        chosen, *others = sorted(candidates, key=_weight, reverse=True)
        shown.append(chosen)
        left = sum(len(other.documents) for other in others)
        if left:
            notes.append(
                f"{chosen.section}, {chosen.task}, {chosen.label}: {left} run(s) with "
                "other settings or fewer steps are in the folder and not shown."
            )
    sections = _order(SECTIONS, (arm.section for arm in shown))
    tasks = _order(LIMITS, (arm.task for arm in shown))
    algorithms = _order(EVERYONE, (arm.algorithm for arm in shown))
    shown.sort(
        key=lambda a: (sections[a.section], tasks[a.task], algorithms[a.algorithm])
    )
    return shown, notes


def _order(known: Iterable[str], found: Iterable[str]) -> dict[str, int]:
    """Places: the known names first, then the others as they come."""
    return {name: i for i, name in enumerate(dict.fromkeys([*known, *found]))}


def _of_other_tasks(found: Results) -> dict[tuple[str, str], set[str]]:
    """By section and task, the cells of a task whose constants have changed since.

    Where the cells of a section differ in the constants of a task (with one set of
    options), those of the present constants stay, else those of the most cells.
    """
    kinds: dict[tuple[str, str, str], dict[str, set[str]]] = {}
    for plan in found.plans:
        for group in plan["groups"]:
            for name in (x for x in group["cells"] if x in found.cells):
                cell = found.cells[name]["cell"]
                options = [cell["env_options"], cell["train"].get("horizon")]
                key = group["section"], group["task"], json.dumps(options)
                constants = json.dumps(cell.get("constants"), sort_keys=True)
                kinds.setdefault(key, {}).setdefault(constants, set()).add(name)
    old: dict[tuple[str, str], set[str]] = {}
    for (section, task, _), sets in kinds.items():
        if len(sets) > 1:
            kept = max(sets, key=lambda text: _present(sets[text], found))
            others = set.union(*(sets[text] for text in sets if text != kept))
            old.setdefault((section, task), set()).update(others)
    return old


def _present(names: set[str], found: Results) -> tuple[bool, int]:
    """Whether cells have the constants that the task has now, and how many they are."""
    cell = found.cells[min(names)]["cell"]
    return "constants" in cell and not changed(cell), len(names)


def _arm(lines: list[dict[str, Any]], found: Results, left_out: set[str]) -> Arm:
    first = lines[0]
    names = list(dict.fromkeys(name for line in lines for name in line["cells"]))
    there = [name for name in names if name in found.cells and name not in left_out]
    documents = [found.cells[name] for name in there]
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
    return (arm.steps, len(arm.documents)) if arm.documents else (0, 0)


# What to know first


def _missing(found: Results, shown: Sequence[Arm]) -> list[str]:
    """What was asked for and is not there."""
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
    there = {arm.algorithm for arm in shown if arm.section == "table1" if arm.documents}
    names = [paper.NAMES[a] for a in (*TABLE1, *TABLE3) if a not in there]
    if there and names:
        notes.append(f"Table 1 has no runs of {', '.join(names)}.")
    return notes


def _failed(found: Results) -> list[str]:
    if not found.failed:
        return []
    words = "; ".join(f["error"].split("\n")[0] for f in found.failed.values())
    return [f"{len(found.failed)} cell(s) failed: {words}."]


def _mixed(found: Results) -> list[str]:
    """Whether more than one version made the cells."""
    makers = versions(found)
    if len(makers) < 2:
        return []
    return [
        f"The runs were made by {len(makers)} versions of the code; they are listed "
        "at the end."
    ]


def _stray(found: Results) -> list[str]:
    groups = [group for plan in found.plans for group in plan["groups"]]
    planned = {name for group in groups for name in group["cells"]}
    stray = len(set(found.cells) - planned)
    if not stray:
        return []
    return [
        f"{stray} finished cell(s) belong to no plan in this folder and are not "
        "shown; copy the plans too."
    ]
