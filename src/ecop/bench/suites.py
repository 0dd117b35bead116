"""What the benchmark runs, as data: which algorithms on which tasks with which limits.

A suite is a list of groups; a group is one algorithm on one task with one setting, and
becomes one cell per seed (`cells.py`). Two suites that ask for the same cell share it:
the curves of Fig. 2 are those of Table 1's runs.

Options are those a user gets (defaults and the task's recipe, or a preset), and what
the group says. The paper's protocol is K = 500 iterations of 20 episodes of 200 steps
and 5 independent runs. Batches differ in size and episodes in length, so the budget is
counted in steps of the environment: everyone gets as many, however they are taken.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ecop.bench.tuning import tuning_settings
from ecop.exact.cmdp import TabularCMDP
from ecop.exact.lp import smallest_cost
from ecop.exact.problems import PROBLEMS, random_cmdp
from ecop.exact.values import backward_induction
from ecop.recipes import Preset

TABULAR = 6_000  # episodes of a tabular task, of as many steps as it has
TABULAR_SMOKE = 800

Limits = tuple[float, ...]

# Table 1's column "Task": the limits of the eight tasks.
LIMITS: dict[str, Limits] = {
    "Humanoid": (20.0,),
    "PointCircle": (10.0,),
    "AntCircle": (10.0,),
    "PointReach": (25.0,),
    "AntReach": (25.0,),
    "Grid": (75.0,),
    "Bottleneck": (50.0,),
    "Navigation": (10.0, 25.0),
}
# The columns of Table 1, in its order; then those of Table 3 alone; then the
# unconstrained reference, which sees no cost and cannot win.
TABLE1 = ("ecop", "focops", "ppo_lag", "pcpo", "p3o", "cpo", "appo", "ipo")
TABLE3 = ("pdo", "cppo_pid", "trpo_lag")
REFERENCE = "ppo"
EVERYONE = (*TABLE1, *TABLE3, REFERENCE)
# The printed Algorithm 2, errata mended, beside the e-COP that a user gets.
PAPER_FORM = "paper"
# On the exact problems: e-COP, and the kinds of multiplier and step of the others.
EXACT = ("ecop", "ppo_lag", "trpo_lag", "focops", "cpo")

# The Safe Velocity suite: those of whom there are published figures, and e-COP.
RUNNERS = ("HalfCheetah", "Hopper", "Walker2d", "Ant", "Humanoid", "Swimmer")
LIMITED = ("ecop", "focops", "ppo_lag", "cpo", "cppo_pid", "trpo_lag")

# The paper does not say by what factor p its adaptive beta grows.
BETA_GROWTH = 1.05


@dataclass(frozen=True)
class Group:
    """One algorithm on one task with one setting.

    Attributes:
        section: the part of the report it belongs to
        task: name of the task
        algorithm: name of the algorithm
        limits: what the algorithm is given; inf switches a constraint off
        variant: what sets this group apart from others of the same algorithm
        judged: the limits to judge it by, where they are not those it is given
        options: options of the algorithm and of training that this group is about;
            `steps` among them are its own budget
        env_options: arguments for making the task
        preset: of this group, whatever the preset of the suite
    """

    section: str
    task: str
    algorithm: str
    limits: Limits
    variant: str = ""
    judged: Limits | None = None
    options: dict[str, Any] = field(default_factory=dict)
    env_options: dict[str, Any] = field(default_factory=dict)
    preset: Preset | None = None


@dataclass(frozen=True)
class Suite:
    """Groups, and how long and how often each is run.

    Attributes:
        title: what it is
        groups: what is run
        seeds: runs of each group
        steps: budget of each run in steps of the environment, where a group has none
            of its own; the paper's 10,000 episodes of 200 steps
        evaluation_episodes: of the last policy of each run
        clips: whether the first seed's policy is filmed
    """

    title: str
    groups: tuple[Group, ...]
    seeds: int = 5
    steps: int = 2_000_000
    evaluation_episodes: int = 100
    clips: bool = True


def table1() -> Suite:
    """Table 1: all algorithms on all tasks, e-COP in two forms."""
    groups = []
    for task, limits in LIMITS.items():
        groups += [Group("table1", task, name, limits) for name in EVERYONE]
        printed = Group("table1", task, "ecop", limits, PAPER_FORM, preset="paper")
        groups.append(printed)
    return Suite(
        "Table 1: reward and cost of all algorithms on all tasks", tuple(groups)
    )


def curves() -> Suite:
    """Fig. 2: learning curves; the cells are Table 1's."""
    tasks = ("Humanoid", "AntCircle", "PointReach", "Bottleneck")
    return Suite(
        "Fig. 2: learning curves",
        tuple(
            Group("curves", task, algorithm, LIMITS[task])
            for task in tasks
            for algorithm in TABLE1
        ),
    )


def navigation() -> Suite:
    """Fig. 3: e-COP on Navigation with both constraints, and with either alone."""
    hazards, pillars = both = LIMITS["Navigation"]
    given = {
        "both constraints": both,
        "C1 only": (hazards, math.inf),
        "C2 only": (math.inf, pillars),
    }
    return Suite(
        "Fig. 3: Navigation with both constraints, C1 only, C2 only",
        tuple(
            Group("navigation", "Navigation", "ecop", limits, variant, judged=both)
            for variant, limits in given.items()
        ),
    )


def limits() -> Suite:
    """Fig. 4: two limits per task.

    The paper's limits are in its pictures only. These are Table 1's and half of it: at
    twice the limit the constraint might not be active. PointCircle is not in the paper.
    """
    return Suite(
        "Fig. 4: two limits per task",
        tuple(
            Group("limits", task, algorithm, (limit,), f"limit {limit:g}")
            for task in ("AntCircle", "PointReach", "PointCircle")
            for limit in (LIMITS[task][0] / 2, LIMITS[task][0])
            for algorithm in TABLE1
        ),
    )


def beta() -> Suite:
    """Table 2: e-COP with beta 5 and 10, fixed and adaptive, beside P3O; limit 20."""
    groups = []
    for task in ("PointCircle", "AntReach"):
        for value in (5.0, 10.0):
            for word, growth in (("fixed", 1.0), ("adaptive", BETA_GROWTH)):
                options = {"beta": value, "beta_growth": growth}
                variant = f"beta = {value:g}, {word}"
                groups.append(
                    Group("beta", task, "ecop", (20.0,), variant, options=options)
                )
        groups.append(Group("beta", task, "p3o", (20.0,)))
    return Suite("Table 2: sensitivity of e-COP to beta", tuple(groups))


def robustness() -> Suite:
    """Fig. 5: other limits with options that were tuned at 20 and 10."""
    given = {"Humanoid": (10.0, 50.0), "PointCircle": (3.0, 15.0)}
    return Suite(
        "Fig. 5: other limits with unchanged options",
        tuple(
            Group("robustness", task, algorithm, (limit,), f"limit {limit:g}")
            for task, values in given.items()
            for limit in values
            for algorithm in TABLE1
        ),
    )


def exact() -> Suite:
    """Tabular tasks with known optimum, named and random; 6,000 episodes."""
    groups = [
        tabular(problem(), name, algorithm)
        for name, problem in PROBLEMS.items()
        for algorithm in EXACT
    ]
    drawn: dict[str, dict[str, Any]] = {}
    for seed in range(6):
        for varying in (False, True):
            word = f"random {seed}" + ", time-varying" * varying
            drawn[word] = {"seed": seed, "time_varying": varying}
    for seed in range(6, 10):
        made = {"seed": seed, "constraints": 2, "time_varying": seed % 2 == 1}
        word = f"random {seed}, two constraints" + ", time-varying" * (seed % 2)
        drawn[word] = made
    for word, made in drawn.items():
        cmdp = random_cmdp(**made)
        groups += [
            tabular(cmdp, "RandomTable", name, variant=word, env_options=made)
            for name in EXACT
        ]
    title = "Exact: tabular tasks against their optimum"
    return Suite(title, tuple(groups), seeds=2)


def exact_long() -> Suite:
    """The same with ten times the episodes."""
    suite = exact()
    groups = []
    for group in suite.groups:
        steps = 10 * group.options["steps"]
        options = group.options | {"steps": steps}
        groups.append(replace(group, section="exact_long", options=options))
    title = "Exact, 60,000 episodes: tabular tasks against their optimum"
    return replace(suite, title=title, groups=tuple(groups))


def tabular(cmdp: TabularCMDP, task: str, algorithm: str, **more: Any) -> Group:
    """A group of a tabular task at its own limits, with its own budget."""
    own = {"limits": tuple(cmdp.limits), "options": {"steps": TABULAR * cmdp.horizon}}
    return Group("exact", task, algorithm, **(own | more))


def frontier() -> Suite:
    """e-COP on Inventory at limits from the smallest feasible to the free one."""
    cmdp = PROBLEMS["Inventory"]()
    least, most = smallest_cost(cmdp), float(backward_induction(cmdp).costs[0])
    return Suite(
        "Frontier: reward against the limit on Inventory",
        tuple(
            tabular(
                cmdp, "Inventory", "ecop", limits=(limit,), variant=f"limit {limit:g}"
            )
            for limit in np.linspace(least, most, 7)[1:-1].round(4).tolist()
        ),
        seeds=2,
    )


def robust() -> Suite:
    """One set of defaults across limits, horizons, constraints, scales and batches.

    Each case differs from the others in what its name says. At 0.3 times the limit all
    must be given up for the cost; three times the limit does not bind. Nobody has been
    tuned on these tables.
    """
    cases: dict[str, Group] = {}

    def table(
        word: str,
        *,
        horizon: int = 10,
        episodes: int = 4_000,
        batch: int | None = None,
        **drawn: Any,
    ) -> None:
        made = {"seed": 21, **drawn}
        options = {"steps": episodes * horizon, "horizon": horizon}
        if batch is not None:
            options["episodes"] = batch
        limits = random_cmdp(horizon=horizon, **made).limits
        cases[word] = Group(
            "robust",
            "RandomTable",
            "",
            tuple(limits),
            word,
            options=options,
            env_options=made,
        )

    def at(word: str, task: str, limit: float, steps: int) -> None:
        options = {"steps": steps}
        cases[word] = Group("robust", task, "", (limit,), word, options=options)

    for times in (0.3, 1.0, 3.0):
        # Twelve steps, limit 3; and Table 1's limit.
        at(f"PeakHours, limit x {times:g}", "PeakHours", round(3 * times, 6), 60_000)
        limit = round(LIMITS["PointCircle"][0] * times, 6)
        at(f"PointCircle, limit x {times:g}", "PointCircle", limit, 400_000)
    for horizon, episodes in ((7, 6_000), (30, 2_000), (200, 1_000), (1000, 300)):
        small = {"states": 4, "actions": 2}
        table(f"horizon {horizon}", horizon=horizon, episodes=episodes, **small)
    for count in (1, 2, 3, 5):
        word = f"{count} constraint{'s' * (count > 1)}"
        table(word, constraints=count, time_varying=count % 2 == 0)
    for scale in (1e-3, 1e3):
        table(f"rewards x {scale:g}", reward_scale=scale)
        table(f"costs x {scale:g}", cost_scale=scale)
    table("starts far above the limit", seed=24, tightness=0.9)
    table("starts below the limit", seed=20, tightness=0.1)
    for batch in (5, 20, 80):
        table(f"{batch} episodes per batch", batch=batch, episodes=8_000)
    return Suite(
        "Robust: one set of defaults across limits, horizons, constraints and scales",
        tuple(
            replace(group, algorithm=name) for group in cases.values() for name in EXACT
        ),
        seeds=1,
        clips=False,
    )


def options() -> Suite:
    """What e-COP's forms bring on PointCircle, and each part of the default."""
    task = "PointCircle"
    forms: dict[str, dict[str, Any]] = {}
    for penalty, units, steps in itertools.product(
        ("augmented", "paper"), ("dimensionless", "paper"), (1, 20, 200)
    ):
        # About as many gradient steps per iteration for all.
        epochs = {1: 10, 20: 4, 200: 1}[steps]
        form = {"penalty": penalty, "units": units}
        form |= {"backward_steps": steps, "epochs": epochs}
        forms[f"{penalty}, {units}, {steps} backward steps"] = form
    forms |= {
        "fixed learning rate": {"kl_goal": 0.0},
        "no clip": {"clip": 1e3},
        "no caution": {"caution": 0.0},
        "whole batch": {"minibatches": 1},
        "adaptive beta": {"beta_growth": BETA_GROWTH},
        "discount 0.99": {"discount": 0.99},
        "time unseen": {"policy": "stationary"},
    }
    return Suite(
        "Forms of e-COP on PointCircle",
        tuple(
            Group("options", task, "ecop", LIMITS[task], word, options=form)
            for word, form in forms.items()
        ),
        seeds=3,
    )


def tuning() -> Suite:
    """Settings drawn from a grid for every algorithm, as many for each."""
    task = "PointCircle"
    return Suite(
        "Tuning: the same number of settings for every algorithm",
        tuple(
            Group("tuning", task, name, LIMITS[task], f"setting {i}", options=setting)
            for name in EVERYONE
            for i, setting in enumerate(tuning_settings(name))
        ),
        seeds=2,
        steps=1_200_000,
    )


def yardstick() -> Suite:
    """PPO on Gymnasium's robots without a limit, beside published figures."""
    return Suite(
        "Yardstick: PPO without limits on Gymnasium's v5 robots, 1 million steps",
        tuple(
            Group(
                "yardstick",
                f"{robot}Velocity",
                "ppo",
                (math.inf,),
                env_options={"version": "v5"},
            )
            for robot in RUNNERS
            if robot != "Swimmer"
        ),
        steps=1_000_000,
        clips=False,
    )


def velocity() -> Suite:
    """The Safe Velocity suite at limit 25, beside published figures."""
    return Suite(
        "Safe Velocity: six robots with a speed limit, 2 million steps",
        tuple(
            Group("velocity", f"{robot}Velocity", algorithm, (25.0,))
            for robot in RUNNERS
            for algorithm in (*LIMITED, REFERENCE)
        ),
        clips=False,
    )


def smoke() -> Suite:
    """A little of everything, to see within minutes that all parts work."""
    some = {
        "table1": ("PointCircle", "PointReach", "Humanoid"),
        "navigation": ("Navigation",),
        "limits": ("PointReach",),
        "beta": ("PointCircle",),
        "robustness": ("PointCircle",),
        "exact": ("FactoredRing",),
    }
    few = {
        "table1": ("ecop", "ppo_lag", "cpo", "ppo"),
        "beta": ("ecop", "p3o"),
    }
    groups = []
    for section, tasks in some.items():
        for group in SUITES[section]().groups:
            wanted = few.get(section, ("ecop",))
            if group.task not in tasks or group.algorithm not in wanted:
                continue
            if "steps" in group.options:
                few_steps = group.options["steps"] // TABULAR * TABULAR_SMOKE
                group = replace(group, options=group.options | {"steps": few_steps})
            groups.append(group)
    return Suite(
        "Smoke: a little of everything",
        tuple(groups),
        seeds=2,
        steps=160_000,
        evaluation_episodes=20,
    )


SUITES: dict[str, Callable[[], Suite]] = {
    "table1": table1,
    "curves": curves,
    "navigation": navigation,
    "limits": limits,
    "beta": beta,
    "robustness": robustness,
    "exact": exact,
    "exact_long": exact_long,
    "robust": robust,
    "frontier": frontier,
    "options": options,
    "tuning": tuning,
    "yardstick": yardstick,
    "velocity": velocity,
    "smoke": smoke,
}
