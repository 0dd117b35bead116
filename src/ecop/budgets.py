"""What a budget buys: a task trained at several limits of one of its costs.

The shadow price at a limit is the slope of reward against limit between its neighbours;
at the first and the last it is that to the only neighbour.
(The module is not called `frontier` because `ecop.frontier` is the function.)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ecop import api, runs
from ecop.config import algorithm_name, resolve
from ecop.envs import make
from ecop.errors import UserError, unknown
from ecop.evaluate import Evaluation
from ecop.types import HostTask, Spec


@dataclass(frozen=True)
class Point:
    """What was reached at one limit; intervals are halves of normal 95 % ones."""

    limit: float
    cost: float
    cost_interval: float
    reward: float
    reward_interval: float
    within: float  # share of the policies whose mean cost is within the limit
    price: float
    price_interval: float


@dataclass(frozen=True)
class Plan:
    """A task to be trained at several limits of the cost with this index."""

    task: Any
    algorithm: str
    spec: Spec
    index: int
    env_options: dict[str, Any]
    options: dict[str, Any]  # of training
    out: Path | None

    @property
    def cost_name(self) -> str:
        """Of the cost whose limit changes."""
        return self.spec.cost_names[self.index]

    def limits(self, limit: float) -> tuple[float, ...]:
        """Those of all costs if the one that changes has this limit."""
        before, after = self.spec.limits[: self.index], self.spec.limits[self.index :]
        return (*before, limit, *after[1:])

    def train(self, limit: float, watch: Any = "progress") -> api.Run:
        """Train at a limit, or go on where its folder ends."""
        options = {**self.options, "limits": self.limits(limit)}
        path = None if self.out is None else self.out / folder(limit)
        if path is None or not (path / "config.json").is_file():
            return api.train(
                self.task,
                self.algorithm,
                env_options=self.env_options,
                out=path,
                watch=watch,
                **options,
            )
        self.refuse_other(path, options)
        env = None if isinstance(self.task, str) else self.task
        return api.resume(path, env=env, trust=True, watch=watch)

    def refuse_other(self, path: Path, options: dict[str, Any]) -> None:
        """Raise unless a run folder is of this plan; the code it names is ours then."""
        found = runs.read_config(path)
        same = algorithm_name(found.algorithm) == self.algorithm
        if isinstance(self.task, str):
            wanted = resolve(self.task, self.algorithm, given=options).train
            same &= (found.task, found.train) == (self.task, wanted)
            same &= found.env_options == self.env_options
        else:
            same &= found.train.limits == options["limits"]
        if not same:
            raise UserError(
                f"'{path}' holds a run with another task or other options; choose "
                "another folder with --out (in Python out=...)."
            )


def plan(
    task: Any,
    algorithm: str | None = None,
    *,
    cost: str | None = None,
    env_options: dict[str, Any] | None = None,
    out: str | Path | None = None,
    **options: Any,
) -> Plan:
    """A plan for a task; arguments are those of `frontier`."""
    algorithm = algorithm or "ecop"
    api.refuse_misplaced(options, algorithm)
    given = env_options or {}
    if isinstance(task, str):
        resolve(task, algorithm, given=options)
        horizon = options.get("horizon")
        env = make(task, **given, **({} if horizon is None else {"horizon": horizon}))
        spec = env.spec
        close(env)
    else:
        spec = task.spec
    if not spec.constraints:
        raise UserError("The task has no cost, so there is no budget to vary.")
    name = spec.cost_names[0] if cost is None else cost
    if name not in spec.cost_names:
        raise UserError(unknown("cost", name, spec.cost_names))
    index, path = spec.cost_names.index(name), None if out is None else Path(out)
    return Plan(task, algorithm, spec, index, given, options, path)


def folder(limit: float) -> str:
    """The name of the run folder of a limit."""
    return f"limit-{limit!r}"


def close(env: Any) -> None:
    """Release the simulators of a host task."""
    if isinstance(env, HostTask):
        env.close()


def ascending(limits: Sequence[float]) -> tuple[float, ...]:
    """Limits in order; at least two, all different and finite."""
    found = tuple(sorted(api.as_limits(limits) or ()))
    if len(set(found)) < 2 or len(set(found)) < len(found):
        raise UserError(
            "A frontier needs two limits or more, each of them once: --limits 5 10 20."
        )
    if not 0 <= found[0] <= found[-1] < math.inf:
        raise UserError(f"Limits must be finite and zero or more, not {found}.")
    return found


def points(
    limits: Sequence[float], found: Sequence[Evaluation], index: int
) -> list[Point]:
    """What evaluations say of each limit, with the slope between its neighbours."""
    summaries = [evaluation.summary() for evaluation in found]
    rewards = [summary["reward"] for summary in summaries]
    result = []
    for i, limit in enumerate(limits):
        before, after = max(i - 1, 0), min(i + 1, len(limits) - 1)
        width = limits[after] - limits[before]
        ends = rewards[before], rewards[after]
        cost = summaries[i]["constraints"][index]
        result.append(
            Point(
                limit=limit,
                cost=cost["mean"],
                cost_interval=cost["interval"],
                reward=rewards[i]["mean"],
                reward_interval=rewards[i]["interval"],
                within=float((found[i].costs[..., index].mean(axis=1) <= limit).mean()),
                price=(ends[1]["mean"] - ends[0]["mean"]) / width,
                price_interval=math.hypot(*(e["interval"] for e in ends)) / width,
            )
        )
    return result


def document(found: Sequence[Point]) -> list[dict[str, Any]]:
    """Points as JSON; an interval that is not known is null."""
    return [
        {k: v if math.isfinite(v) else None for k, v in asdict(point).items()}
        for point in found
    ]


def frontier(
    task: Any,
    limits: Sequence[float],
    algorithm: str | None = None,
    *,
    cost: str | None = None,
    episodes: int = 100,
    env_options: dict[str, Any] | None = None,
    out: str | Path | None = None,
    watch: Any = "progress",
    **options: Any,
) -> list[Point]:
    """Train a task at several limits of a cost; say what each unit of it buys.

    task, algorithm, env_options, options: as for `train`, the algorithm by its name
    limits: of the cost that is varied; those of the others are the task's
    cost: its name; default: the first
    episodes: fresh ones of each policy, to measure reward and cost
    out: folder for a run per limit; what is there already is gone on with
    """
    limits = ascending(limits)
    ours = plan(task, algorithm, cost=cost, env_options=env_options, out=out, **options)
    found = []
    for limit in limits:
        run = ours.train(limit, watch)
        found.append(run.evaluate(episodes))
        if isinstance(task, str):
            close(run.learner.env)
    return points(limits, found, ours.index)
