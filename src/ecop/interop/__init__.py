"""Gymnasium, both ways: our tasks for its users, its environments for our learner.

Gymnasium is an extra; it is imported when one of these functions is called.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import repeat
from math import inf
from typing import TYPE_CHECKING, Any

from ecop.errors import UserError
from ecop.interop.costs import (
    ArrayCosts,
    CostFunction,
    Costs,
    NamedCosts,
    ScalarCost,
    TupleCost,
    VectorReward,
    missing,
)
from ecop.simulators.guard import staying
from ecop.simulators.pool import LIVE, SimulatorPool
from ecop.simulators.wire import imported, reference
from ecop.types import Constraint, Spec

if TYPE_CHECKING:
    from ecop.interop.gymnasium_out import SixTuple, TaskEnv, TaskVectorEnv


def need_gymnasium() -> None:
    """Refuse, with the command to type, if Gymnasium is not installed."""
    try:
        import gymnasium  # noqa: F401
    except ImportError:
        raise UserError(
            "This needs Gymnasium, which is not installed: pip install 'ecop[gym]'"
        ) from None


def make_gymnasium(name: str, **options: Any) -> TaskEnv:
    """One of our JAX tasks as a `gymnasium.Env`; options go to the task.

    `info` has "cost" (the sum), "costs" [C] and "cost_<name>"; the environment has
    `cost_names`, `cost_limits`, `cost_bounds` and `horizon`.
    """
    need_gymnasium()
    from ecop.interop.gymnasium_out import TaskEnv

    return TaskEnv(name, **options)


def make_gymnasium_vec(name: str, num_envs: int, **options: Any) -> TaskVectorEnv:
    """`num_envs` episodes of a JAX task, stepped as one batch: a `VectorEnv`.

    Its autoreset mode is NEXT_STEP: the step after an episode's last one ignores its
    action, returns the next episode's first observation, and has no reward and cost.
    """
    need_gymnasium()
    from ecop.interop.gymnasium_out import TaskVectorEnv

    return TaskVectorEnv(name, num_envs, **options)


def to_safety_gymnasium(env: Any) -> SixTuple:
    """Wrap any environment with `info["cost"]`: `step` returns the cost third."""
    need_gymnasium()
    from ecop.interop.gymnasium_out import SixTuple

    return SixTuple(env)


def from_gymnasium(
    env: str | Callable[..., Any],
    *,
    horizon: int | None = None,
    costs: Any = None,
    limits: Sequence[float] | Mapping[str, float] | None = None,
    workers: int = 0,
    timeout: float = 60.0,
    live: int = LIVE,
    options: dict[str, Any] | None = None,
) -> SimulatorPool:
    """A Gymnasium environment as a task for `ecop.train`.

    env: an id such as "Pendulum-v1", or a function that makes the environment
    horizon: steps of every episode; default: the environment's time limit. An episode
        that ends earlier stays where it is, without reward and cost, and is counted
    costs: where the costs are: "cost" or "costs" in `info`, a list of its keys,
        "tuple" for a 6-tuple step, a function (obs, action, next_obs, info, t), an
        adapter of `ecop.interop.costs`; default: looked for in an episode
    limits: one per cost, or name -> limit; default: the environment's `cost_limits`;
        without any, `ecop.train` must be given them
    workers: processes to run the episodes in; 0 is this process
    timeout: seconds after which a step that has not returned counts as hung
    live: environments that a process holds at once, whatever the number of episodes
    options: arguments for making the environment
    """
    need_gymnasium()
    from ecop.interop.gymnasium_in import Factory, Filming, Maker, probe

    adapter = as_costs(costs)
    make = Maker(env, horizon, options or {})
    with staying("The environment"):
        seen = probe(make, adapter)
    if costs == "costs" and not isinstance(seen.costs, ArrayCosts):
        raise missing("costs", {})
    names = seen.costs.names
    if len(set(names)) < len(names):
        raise UserError(f"Two costs have the same name: {', '.join(names)}.")
    spec = Spec(
        seen.observation_size,
        seen.forms.action.space,
        seen.horizon,
        tuple(
            Constraint(name, float("inf"), float(bound))
            for name, bound in zip(names, seen.bounds or repeat(inf), strict=False)
        ),
        seen.image,
    )
    if isinstance(limits, Mapping):
        unknown = set(limits) - set(names)
        if unknown:
            raise UserError(
                f"There is no cost {sorted(unknown)}; known: {', '.join(names)}."
            )
        limits = [limits.get(name, float("inf")) for name in names]
    elif limits is None:
        limits = seen.limits
    if limits is not None:
        spec = spec.with_limits(tuple(float(limit) for limit in limits))
    recipe = None
    name = f"gym:{env}" if isinstance(env, str) else reference(env)
    saved = plain_costs(costs)
    if name is not None and (costs is None or saved is not None):
        arguments = {"costs": saved, "workers": workers, "timeout": timeout}
        arguments |= {} if live == LIVE else {"live": live}
        recipe = (name, arguments | ({"options": options} if options else {}))
    make = make._replace(horizon=seen.horizon)
    return SimulatorPool(
        Factory(make, seen.costs),
        spec,
        workers=workers,
        timeout=timeout,
        live=live,
        film=Filming(make, seen.forms.action),
        forms=seen.forms,
        name=env if isinstance(env, str) else getattr(env, "__name__", "environment"),
        recipe=recipe,
    )


def from_name(name: str, **options: Any) -> Any:
    """A task named "gym:ID" or "module:attribute" (of this folder, or installed).

    The attribute makes a Gymnasium environment, or a task with the library's interface.
    """
    scheme, _, rest = name.partition(":")
    if scheme == "gym":
        return from_gymnasium(rest, **options)
    with staying(f"'{name}'"):
        make = imported(name)
        made = make()
    if not isinstance(getattr(made, "spec", None), Spec):
        made.close()
        return from_gymnasium(make, **options)
    horizon = options.pop("horizon", None)
    given = sorted(key for key, value in options.items() if value)
    if given:
        raise UserError(
            f"{given} are for Gymnasium environments, which '{name}' is not."
        )
    return made if horizon is None else make(horizon=horizon)


def plain_costs(costs: Any) -> Any:
    """The `costs` argument as JSON, where it can be; otherwise None."""
    if isinstance(costs, str):
        return costs
    if isinstance(costs, list | tuple):
        return list(costs)
    return None if isinstance(costs, ADAPTERS) else reference(costs)


ADAPTERS = (ArrayCosts, NamedCosts, ScalarCost, TupleCost, VectorReward, CostFunction)


def as_costs(costs: Any) -> Costs | None:
    """The adapter a `costs` argument asks for; None if it is to be found out."""
    if costs is None or costs == "costs" or isinstance(costs, ADAPTERS):
        return None if isinstance(costs, str) else costs
    if isinstance(costs, list | tuple) and len(costs) == 1:
        return as_costs(costs[0])
    if isinstance(costs, list | tuple):
        return NamedCosts(tuple(costs))
    if isinstance(costs, str) and ":" in costs:
        costs = imported(costs)
    if callable(costs):
        name = getattr(costs, "__name__", "cost")
        return CostFunction(costs, ("cost" if name == "<lambda>" else name,))
    known = {"cost": ScalarCost(), "tuple": TupleCost()}
    return known.get(costs) or NamedCosts((costs,))
