"""One measure for all algorithms: the reward that is kept within the limits.

Every number is of fresh episodes of a policy at a fixed share of the steps, never of a
training batch, whose size differs between algorithms. A block is a task with its limits
(and a case, where a suite has several on one task); a competitor is an algorithm, e-COP
in the form that a user gets or in the paper's. `RULE` says how they are compared.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from ecop.bench.cells import seed_of
from ecop.bench.results import fresh
from ecop.bench.suites import PAPER_FORM, REFERENCE
from ecop.bench.work import SHARE_EPISODES, SHARES
from ecop.report import statistics as st
from ecop.report.arms import Arm

EXACT_SLACK = 0.02  # of the limit, where costs are exact
LEVEL = 0.005  # difference of scores that is none
ERRORS = 2.0  # standard errors that the lenient rule forgives
MARKS = (*SHARES, 1.0)
# What is compared, and the sections that have it; a block counts once.
FAMILIES: dict[str, tuple[str, tuple[str, ...]]] = {
    "tasks": ("Tasks of the paper", ("table1", "limits", "robustness")),
    "velocity": ("Safe Velocity", ("velocity",)),
    "exact": ("Tables, 6,000 episodes", ("exact",)),
    "exact_long": ("Tables, 60,000 episodes", ("exact_long",)),
    "robust": ("Robustness of the defaults", ("robust",)),
    "runs": ("These runs", ("runs",)),
}
CASES = ("exact", "exact_long", "robust")  # sections whose variants are cases
RULE = (
    "A run scores the reward of its policy's fresh episodes on a scale from 0 to 1, or "
    "0 if a limit is broken: reward above a limit earns nothing. 1 is the best known "
    "reward within the limits: the linear program's optimum on tables, else the best "
    "run within them in this report. 0 is the reward of the untrained policies (the "
    "first training batch, mean over all runs), on tables the least that any policy "
    "has. Within means that the mean cost of the fresh episodes is at most the limit; "
    "on tables the last policy's reward and costs are exact, and up to "
    f"{100 * EXACT_SLACK:.0f} % above the limit counts as within, as in all cases of "
    "the robustness suite. If nobody is within, all score 0. 100 fresh episodes leave "
    f"noise: 'within + {ERRORS:g} se' also counts what is above a limit by at most "
    f"{ERRORS:g} standard errors of that mean. The score of an algorithm is the mean "
    "over tasks and limits of the mean over runs; "
    "intervals are 95 %, by bootstrap over the runs within each task and limits (over "
    "tasks and limits where there is one run each). 'e-COP minus it' pairs runs of one "
    "seed, on the tasks and limits that both have."
)


class Measured(NamedTuple):
    """A policy: mean reward, mean costs [C], and the costs' standard errors [C]."""

    reward: float
    costs: np.ndarray
    error: np.ndarray
    slack: float  # of the limit, that counts as within

    def within(self, limits: np.ndarray, errors: float = 0.0) -> bool:
        """Whether all costs are within the limits, or above by so many errors."""
        allowed = limits * (1.0 + self.slack) + errors * self.error
        return bool(np.all(self.costs <= allowed))

    def excess(self, limits: np.ndarray) -> float:
        """The largest relative excess over a limit; 0 if there is none."""
        above = np.where(np.isfinite(limits), self.costs - limits, 0.0)
        unit = np.where(np.isfinite(limits) & (limits > 0.0), limits, 1.0)
        return float(np.max(above / unit, initial=0.0))


def measured(
    document: dict[str, Any], share: float, slack: float = 0.0
) -> Measured | None:
    """The policy of a run after a share of its steps."""
    truth = document.get("exact")
    if share == 1.0 and truth:
        costs = np.array(truth["costs"], float)
        return Measured(truth["value"], costs, np.zeros_like(costs), EXACT_SLACK)
    for part in fresh(document):
        if part["share"] == share:
            costs = np.array(part["costs"], float)  # [E, C]
            spread = costs.std(axis=0, ddof=1) if len(costs) > 1 else 0 * costs[0]
            error = spread / math.sqrt(len(costs))
            reward = float(np.mean(part["reward"]))
            return Measured(reward, costs.mean(axis=0), error, slack)
    return None


def competitor(arm: Arm) -> str:
    """Who is compared; variants of other kinds are cases, not competitors."""
    return f"{arm.name} ({PAPER_FORM})" if arm.variant == PAPER_FORM else arm.name


@dataclass
class Block:
    """A task with its limits, and who was run on it.

    Attributes:
        case: what sets it apart from others on the same task
        best: the best known reward within the limits, None if nobody is within
        zero: the reward that scores 0
        slack: of a limit, that counts as within where costs are not exact
    """

    task: str
    limits: np.ndarray
    case: str
    arms: dict[str, Arm] = field(default_factory=dict)
    best: float | None = None
    zero: float = 0.0
    slack: float = 0.0

    @property
    def title(self) -> str:
        """Task, case and limits in words."""
        finite = [f"{x:g}" for x in self.limits if math.isfinite(x)]
        word = "limits" if len(finite) > 1 else "limit"
        limits = f"{word} {' and '.join(finite)}" if finite else "no limit"
        if not self.case:
            return f"{self.task}, {limits}"
        known = self.task == "RandomTable" or self.case.startswith(self.task)
        return self.case if known else f"{self.task}, {self.case}"

    def settle(self) -> None:
        """Find the ends of the scale."""
        documents = [d for arm in self.arms.values() for d in arm.documents]
        truths = [d["exact"] for d in documents if d.get("exact")]
        found = [measured(document, 1.0, self.slack) for document in documents]
        inside = [x.reward for x in found if x and x.within(self.limits)]
        self.best = truths[0]["optimum"] if truths else max(inside, default=None)
        least = [truth["worst"] for truth in truths if "worst" in truth]
        first = [document["curve"]["reward"][0] for document in documents]
        self.zero = least[0] if least else float(np.mean(first))

    def relative(self, reward: float) -> float:
        """A reward on the scale from `zero` (0) to `best` (1)."""
        if self.best is None or self.best <= self.zero:
            return 0.0
        return float(np.clip((reward - self.zero) / (self.best - self.zero), 0.0, 1.0))

    def policies(self, name: str, share: float = 1.0) -> dict[int, Measured]:
        """A competitor's policies by seed; none where it was not run."""
        if name not in self.arms:
            return {}
        found = {
            seed_of(document["cell"]): measured(document, share, self.slack)
            for document in self.arms[name].documents
        }
        return {seed: x for seed, x in found.items() if x is not None}

    def scores(
        self, name: str, share: float = 1.0, errors: float = 0.0
    ) -> dict[int, float]:
        """RULE: a competitor's scores by seed."""
        return {
            seed: self.relative(x.reward) if x.within(self.limits, errors) else 0.0
            for seed, x in self.policies(name, share).items()
        }


def family_blocks(family: str, shown: Iterable[Arm]) -> list[Block]:
    """The blocks of a family; of one that two sections have, the first section's."""
    sections = FAMILIES[family][1]
    found: dict[tuple[Any, ...], tuple[str, Block]] = {}
    arms = [arm for arm in shown if arm.section in sections and arm.documents]
    for section in sections:
        for arm in (a for a in arms if a.section == section):
            case = arm.variant if section in CASES else ""
            key = (arm.task, tuple(arm.limits), case)
            first, block = found.setdefault(
                key, (section, Block(arm.task, arm.limits, case))
            )
            if first == section and np.isfinite(arm.limits).any():
                block.arms[competitor(arm) if section != "runs" else arm.label] = arm
    blocks = [block for _, block in found.values() if block.arms]
    for block in blocks:
        block.slack = EXACT_SLACK if family == "robust" else 0.0
        block.settle()
    return blocks


def ours_of(family: str, blocks: Sequence[Block]) -> str:
    """Whom the others are compared with: e-COP, or the first of a user's runs."""
    return next(iter(blocks[0].arms)) if family == "runs" else "e-COP"


# Over all blocks


def mean_of_means(samples: Sequence[np.ndarray]) -> st.Estimate:
    """Mean over strata of the mean over runs, with a stratified bootstrap interval.

    Where a stratum has one run there is nothing to draw from: strata are drawn.
    """
    if min(map(len, samples)) < 2:
        samples = [np.array([np.mean(part) for part in samples])]
    value = float(np.mean([np.mean(part) for part in samples]))
    if min(map(len, samples)) < 2:
        return st.Estimate(value, math.nan, math.nan)
    chance = np.random.default_rng(0)
    drawn = [
        part[chance.integers(len(part), size=(st.DRAWS, len(part)))].mean(axis=1)
        for part in samples
    ]
    tails = [(1 - st.LEVEL) / 2, (1 + st.LEVEL) / 2]
    low, high = np.quantile(np.mean(drawn, axis=0), tails)
    return st.Estimate(value, float(low), float(high))


@dataclass(frozen=True)
class Standing:
    """How a competitor did over the blocks that it has.

    Attributes:
        score: by share of the steps; None where no run has fresh episodes of it
        lenient: the score if costs may be above by ERRORS standard errors
        within, forgiven: runs within all limits by the rule, and by the lenient one
        excess: relative excess over the limits, mean over runs
        ahead: e-COP's score minus this one, paired; None for e-COP itself
    """

    name: str
    blocks: int
    score: dict[float, st.Estimate | None]
    lenient: st.Estimate
    within: st.Estimate
    forgiven: st.Estimate
    excess: float
    ahead: st.Estimate | None

    @property
    def last(self) -> st.Estimate:
        """The score of the last policies."""
        found = self.score[1.0]
        assert found is not None
        return found


def paired(blocks: Iterable[Block], ours: str, theirs: str) -> st.Estimate | None:
    """The mean difference in score between runs of one seed on common blocks."""
    strata = []
    for block in blocks:
        a, b = block.scores(ours), block.scores(theirs)
        both = sorted(set(a) & set(b))
        if both:
            strata.append(np.array([a[seed] - b[seed] for seed in both]))
    return mean_of_means(strata) if strata else None


def standings(blocks: Sequence[Block], ours: str = "e-COP") -> list[Standing]:
    """All competitors: those with the most blocks first, then by score; PPO last."""
    names = dict.fromkeys(name for block in blocks for name in block.arms)
    found = []
    for name in names:
        mine = [block for block in blocks if name in block.arms]
        score: dict[float, st.Estimate | None] = {}
        for share in MARKS:
            parts = [np.array([*block.scores(name, share).values()]) for block in mine]
            known = all(len(part) for part in parts)
            score[share] = mean_of_means(parts) if known else None
        lenient = [np.array([*b.scores(name, 1.0, ERRORS).values()]) for b in mine]
        runs = [(x, b.limits) for b in mine for x in b.policies(name).values()]
        inside = sum(x.within(limits) for x, limits in runs)
        forgiven = sum(x.within(limits, ERRORS) for x, limits in runs)
        found.append(
            Standing(
                name,
                len(mine),
                score,
                mean_of_means(lenient),
                st.proportion(inside, len(runs)),
                st.proportion(forgiven, len(runs)),
                float(np.mean([x.excess(limits) for x, limits in runs])),
                paired(mine, ours, name) if name != ours else None,
            )
        )
    reference = {
        name
        for block in blocks
        for name, arm in block.arms.items()
        if arm.algorithm == REFERENCE
    }
    return sorted(found, key=lambda x: (x.name in reference, -x.blocks, -x.last.value))


def rival(block: Block, ours: str = "e-COP") -> str | None:
    """The best of the others on a block; PPO is none, nor are e-COP's other forms.

    By score; if all have 0, by the smallest excess.
    """
    others = [
        name
        for name, arm in block.arms.items()
        if name != ours and arm.algorithm != REFERENCE
        if not name.startswith(f"{ours} (")
    ]

    def worth(name: str) -> tuple[float, float]:
        excess = [x.excess(block.limits) for x in block.policies(name).values()]
        return float(np.mean([*block.scores(name).values()])), -float(np.mean(excess))

    return max(others, key=worth, default=None)


# In words


def verdict(block: Block, ours: str = "e-COP") -> str:
    """One sentence on a block."""
    if ours not in block.arms:
        best = max(
            block.arms, key=lambda n: np.mean([*block.scores(n).values()]), default=""
        )
        return f"{block.title}: {ours} was not run; {outcome(block, best)}."
    other = rival(block, ours)
    if other is None:
        return f"{block.title}: nothing else was run; {outcome(block, ours)}."
    score = {
        name: float(np.mean([*block.scores(name).values()])) for name in (ours, other)
    }
    if not any(score.values()):
        return (
            f"{block.title}: no run of {ours} is within, and none of "
            f"{other}, which comes closest of the others; {outcome(block, ours)}."
        )
    gap = paired([block], ours, other)
    more = "" if gap is None else f", difference {signed(gap)}"
    how = standing_to(score[ours] - score[other], gap)
    return (
        f"{block.title}: {ours} {how} the best other, {other}: score {score[ours]:.2f} "
        f"against {score[other]:.2f}{more}; {outcome(block, ours)}, against "
        f"{outcome(block, other).removeprefix(f'{other} has ')}."
    )


def standing_to(difference: float, gap: st.Estimate | None) -> str:
    """Ahead or behind, and whether the interval of the paired difference says so."""
    if abs(difference) < LEVEL:
        return "is level with"
    if gap is not None and math.isfinite(gap.low) and gap.low * gap.high > 0:
        return "is ahead of" if gap.value > 0 else "is behind"
    return f"is, not clearly, {'ahead of' if difference > 0 else 'behind'}"


def outcome(block: Block, name: str) -> str:
    """Reward, costs and runs within of a competitor."""
    found = list(block.policies(name).values())
    reward = float(np.mean([x.reward for x in found]))
    costs = np.mean([x.costs for x in found], axis=0)
    inside = sum(x.within(block.limits) for x in found)
    cost = " and ".join(f"{c:.3g}" for c in costs)
    return (
        f"{name} has reward {reward:.4g} at cost {cost}, "
        f"{inside} of {len(found)} runs within"
    )


def overall(
    title: str, found: Sequence[Standing], count: int, ours: str = "e-COP"
) -> str:
    """One sentence on a family."""
    by = {standing.name: standing for standing in found}
    if ours not in by:
        return ""
    mine = by[ours]
    words = (
        f"{title}: {ours} scores {estimate(mine.last)} over {mine.blocks} of {count} "
        f"task{'s' * (count > 1)} x limits, with {share(mine.within)} of its runs "
        "within every limit"
    )
    others = [
        x
        for x in found
        if x.ahead is not None and x.name != "PPO"
        if not x.name.startswith(f"{ours} (")
    ]
    if not others:
        return f"{words}; nothing else was run."
    best = max(others, key=lambda x: (x.blocks, x.last.value))
    assert best.ahead is not None
    return (
        f"{words}; the best of the others is {best.name} with {estimate(best.last)} "
        f"and {share(best.within)} ({ours} minus it, paired: {signed(best.ahead)})."
    )


def estimate(x: st.Estimate) -> str:
    """A score with its interval."""
    if not math.isfinite(x.low):
        return f"{x.value:.2f}"
    return f"{x.value:.2f} [{x.low:.2f}, {x.high:.2f}]"


def signed(x: st.Estimate) -> str:
    """A difference of scores with its interval."""
    if not math.isfinite(x.low):
        return f"{x.value:+.2f}"
    return f"{x.value:+.2f} [{x.low:+.2f}, {x.high:+.2f}]"


def share(x: st.Estimate) -> str:
    """A share with its interval."""
    return f"{100 * x.value:.0f} % [{100 * x.low:.0f}, {100 * x.high:.0f}]"


EPISODES = (
    f"Policies on the way are judged by {SHARE_EPISODES} fresh episodes, the last by "
    "100; older files have the last alone."
)
