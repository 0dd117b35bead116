"""A certificate: a policy of a run whose mean costs are within the limits, with proof.

Fresh episodes of every candidate are drawn in rounds until the best of those that are
not shown to break a limit is shown to keep all (`confidence.py`). With K candidates, C
costs and an error of 1 - confidence: a policy that breaks a limit passes only if the
bet on that cost goes wrong, error / K; one that keeps all is rejected only if one of C
bets goes wrong, error / (K C) each. So all verdicts together are right with the
confidence asked for, whichever policy is picked and whenever the drawing stops.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import jax
import numpy as np

from ecop.confidence import at_least, at_most, below
from ecop.errors import UserError
from ecop.evaluate import player
from ecop.training import Learner
from ecop.types import Constraint, Spec, TrainState

ROUND = 100  # episodes of a policy between two looks
DRAWS = 2**31  # the first draw of the key; evaluations begin at 0
ROUNDING = 1e-5  # of sums in single precision, relative to the bound

Verdict = Literal["within", "beyond", "open"]


@dataclass(frozen=True)
class Trial:
    """Fresh episodes of one policy, and what they show."""

    seed: int
    state: TrainState
    reward: np.ndarray  # [E]
    costs: np.ndarray  # [E, C]
    verdict: Verdict = "open"

    @property
    def iteration(self) -> int:
        """When the policy was reached."""
        return int(self.state.iteration)

    @property
    def merit(self) -> float:
        """Mean reward; infinite before the first episode."""
        return float(self.reward.mean()) if len(self.reward) else math.inf


@dataclass(frozen=True, repr=False)
class Certificate:
    """What was asked, what was found, and for which policy."""

    constraints: tuple[Constraint, ...]  # the enforced ones
    confidence: float
    assumed: bool  # the bounds are the caller's, not the task's
    deterministic: bool
    trials: tuple[Trial, ...]

    def __repr__(self) -> str:
        return f"<Certificate: {self.sentence}>"

    @property
    def best(self) -> Trial | None:
        """The policy with the most reward of those within the limits."""
        passed = [trial for trial in self.trials if trial.verdict == "within"]
        return max(passed, key=lambda trial: trial.merit, default=None)

    @property
    def verdict(self) -> Verdict:
        """Within: there is a policy that keeps the limits; beyond: there is none."""
        if self.best is not None:
            return "within"
        beyond = all(trial.verdict == "beyond" for trial in self.trials)
        return "beyond" if beyond else "open"

    @property
    def episodes(self) -> int:
        """Fresh episodes in all."""
        return sum(len(trial.reward) for trial in self.trials)

    def table(self, trial: Trial) -> list[dict[str, Any]]:
        """What is known of each mean cost; each bound alone has the confidence."""
        error = (1.0 - self.confidence) / len(self.trials)
        return [
            {
                "name": c.name,
                "limit": c.limit,
                "bound": c.bound,
                "mean": float(x.mean()),
                "at_least": at_least(x, c.bound, error / len(self.constraints)),
                "at_most": at_most(x, c.bound, error),
            }
            for c, x in zip(self.constraints, trial.costs.T, strict=True)
        ]

    @property
    def sentence(self) -> str:
        """The finding in words, with all that it depends on."""
        sure = f"With {100 * self.confidence:g} % confidence"
        count = len(self.trials)
        kind = "most likely actions" if self.deterministic else "drawn actions"
        whose = "as given, not checked" if self.assumed else "as the task declares"
        most = ", ".join(f"{c.bound:g} of '{c.name}'" for c in self.constraints)
        terms = (
            f"{self.episodes:,} fresh episodes of {count} "
            f"polic{'ies' if count > 1 else 'y'}, {kind}; an episode has at most "
            f"{most}, {whose}"
        )
        if self.best is not None:
            found = ", ".join(
                f"'{row['name']}' at most {row['at_most']:.4g} (limit {row['limit']:g})"
                for row in self.table(self.best)
            )
            what = f"the policy of {named(self.best)} is within the limits: mean cost "
            return f"{sure} {what}{found}, reward {self.best.merit:.2f} ({terms})."
        if self.verdict == "beyond":
            return f"{sure} no policy is within the limits ({terms})."
        return (
            f"It is open whether a policy is within the limits: draw more episodes, or "
            f"train with a lower limit and certify for this one ({terms})."
        )

    def document(self) -> dict[str, Any]:
        """The certificate as JSON."""
        best = self.best
        return {
            "verdict": self.verdict,
            "sentence": self.sentence,
            "confidence": self.confidence,
            "actions": "most likely" if self.deterministic else "drawn",
            "bounds": "given" if self.assumed else "declared by the task",
            "policy": best and identity(best),
            "candidates": [
                identity(trial)
                | {"verdict": trial.verdict, "episodes": len(trial.reward)}
                | {"reward": trial.merit, "costs": self.table(trial)}
                for trial in self.trials
            ],
        }


def named(trial: Trial) -> str:
    """Which policy it is."""
    return f"seed {trial.seed} after iteration {trial.iteration}"


def identity(trial: Trial) -> dict[str, Any]:
    """Which policy it is, to the bit."""
    digest = hashlib.sha256()
    for leaf in jax.tree.leaves((trial.state.policy, trial.state.normaliser)):
        digest.update(np.asarray(leaf).tobytes())
    place = {"seed": trial.seed, "iteration": trial.iteration}
    return place | {"sha256": digest.hexdigest()}


def certify(
    learner: Learner,
    candidates: Sequence[tuple[int, TrainState]],
    *,
    confidence: float = 0.95,
    limits: Sequence[float] | None = None,
    bounds: Sequence[float] | None = None,
    episodes: int = 10_000,
    deterministic: bool = False,
    note: Callable[[str], None] = lambda text: None,
) -> Certificate:
    """Find the best candidate, (seed, state), whose mean costs are within the limits.

    episodes: at most so many of each policy
    note: is told how it goes
    """
    if not 0.5 <= confidence < 1:
        raise UserError(f"confidence must lie in [0.5, 1), not {confidence}.")
    if episodes < 1:
        raise UserError(f"episodes must be at least 1, not {episodes}.")
    spec = learner.spec if limits is None else learner.spec.with_limits(tuple(limits))
    constraints = bounded(spec, bounds)
    error = (1.0 - confidence) / len(candidates)
    play = player(learner, min(ROUND, episodes), deterministic=deterministic)
    nothing = np.zeros(0), np.zeros((0, len(constraints)))
    trials = [Trial(seed, state, *nothing) for seed, state in candidates]
    told = 1
    for draw in range(-(-episodes // ROUND)):
        passed = [trial.merit for trial in trials if trial.verdict == "within"]
        enough = max(passed, default=-math.inf)
        due = [
            (i, trial)
            for i, trial in enumerate(trials)
            if trial.verdict == "open" and trial.merit > enough
        ]
        if not due:
            break
        for i, trial in due:
            batch = play([trial.state], DRAWS + draw)
            costs = np.asarray(batch.costs[0], np.float64).sum(axis=1)
            costs = np.concatenate([trial.costs, costs[:, list(spec.enforced)]])
            refuse_outside(costs, constraints)
            rewards = np.asarray(batch.reward[0], np.float64).sum(axis=1)
            trials[i] = replace(
                trial,
                reward=np.concatenate([trial.reward, rewards]),
                costs=costs,
                verdict=judge(costs, constraints, error),
            )
        if draw + 1 == told:
            told *= 2
            note(progress(trials))
    return Certificate(
        constraints, confidence, bounds is not None, deterministic, tuple(trials)
    )


def bounded(spec: Spec, bounds: Sequence[float] | None) -> tuple[Constraint, ...]:
    """The enforced constraints with finite bounds; say what is missing."""
    all_of_them = spec.constraints
    if bounds is not None:
        if len(bounds) != len(all_of_them):
            raise UserError(
                f"The task has {len(all_of_them)} cost(s) "
                f"({', '.join(spec.cost_names)}); give one bound for each, not "
                f"{len(bounds)}."
            )
        pairs = zip(all_of_them, bounds, strict=True)
        all_of_them = tuple(replace(c, bound=float(b)) for c, b in pairs)
    constraints = tuple(all_of_them[i] for i in spec.enforced)
    if not constraints:
        raise UserError("The run has no limits; say which to certify: --limits.")
    for c in constraints:
        if not 0 < c.bound < math.inf:
            raise UserError(
                f"Nobody says how much an episode can cost of '{c.name}' at most, and "
                "without that no number of episodes excludes a rare large cost; give "
                "it with --bounds (in Python bounds=[...]), one number for each cost."
            )
        if c.limit == 0:
            raise UserError(
                f"That the mean of '{c.name}' is 0 cannot be shown by any number of "
                "episodes; certify for a limit above 0: --limits."
            )
    return constraints


def refuse_outside(costs: np.ndarray, constraints: Sequence[Constraint]) -> None:
    """Raise if an episode costs more than it can; take rounding away in place."""
    for c, x in zip(constraints, costs.T, strict=True):
        for worst in (x.min(), x.max()):
            if not -ROUNDING * c.bound <= worst <= (1.0 + ROUNDING) * c.bound:
                raise UserError(
                    f"An episode has {worst:g} of '{c.name}', outside [0, {c.bound:g}];"
                    " the certificate needs a bound that holds: --bounds."
                )
        np.clip(x, 0.0, c.bound, out=x)


def judge(
    costs: np.ndarray, constraints: Sequence[Constraint], error: float
) -> Verdict:
    """What episodes with these costs [E, C] show; wrong with a probability `error`."""
    pairs = list(zip(constraints, costs.T, strict=True))
    if all(below(x, c.bound, c.limit, error) for c, x in pairs):
        return "within"
    share = error / len(pairs)
    if any(c.bound > c.limit and above(x, c, share) for c, x in pairs):
        return "beyond"
    return "open"


def above(x: np.ndarray, constraint: Constraint, error: float) -> bool:
    """Whether the mean of x is above the limit."""
    bound = constraint.bound
    return below(bound - x, bound, bound - constraint.limit, error)


def progress(trials: Sequence[Trial]) -> str:
    """How many policies are settled."""
    count = Counter(trial.verdict for trial in trials)
    total = sum(len(trial.reward) for trial in trials)
    settled = ", ".join(f"{count[kind]} {kind}" for kind in get_args(Verdict))
    return f"{total:,} episodes of {len(trials)} policies: {settled}"
