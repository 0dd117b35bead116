"""Environments of others as tasks for `ecop.train`."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from itertools import repeat
from math import inf
from os import PathLike
from typing import Any, NamedTuple

from ecop.drawing.scenes import Pictures
from ecop.errors import UserError
from ecop.interop.costs import plain_costs
from ecop.interop.gymnasium_in import (
    Factory,
    Filming,
    Maker,
    Probe,
    Probing,
    Shots,
    made_by,
    probe,
)
from ecop.simulators.forms import Forms
from ecop.simulators.guard import staying
from ecop.simulators.pool import LIVE, SimulatorPool
from ecop.simulators.processes import ask, interpreter
from ecop.simulators.wire import Encoded, imported, reference
from ecop.types import Constraint, Played, Spec


def from_gymnasium(
    env: str | Callable[..., Any] | Encoded,
    *,
    horizon: int | None = None,
    costs: Any = None,
    limits: Sequence[float] | Mapping[str, float] | None = None,
    workers: int = 0,
    timeout: float = 60.0,
    live: int = LIVE,
    options: dict[str, Any] | None = None,
    python: str | PathLike[str] | None = None,
) -> SimulatorPool:
    """A Gymnasium environment as a task for `ecop.train`.

    env: an id such as "Pendulum-v1" or "safety_gymnasium:SafetyPointGoal1-v0" (the
        package first), or a function that makes the environment
    horizon: steps of every episode; default: the environment's time limit. An episode
        that ends earlier stays where it is, without reward and cost, and is counted
    costs: where the costs are: "cost" or "costs" in `info`, a list of its keys,
        "tuple" for a 6-tuple step, "NAME=-reward.1" for an entry of a vector reward, a
        function (obs, action, next_obs, info, t), an adapter of `ecop.interop.costs`;
        default: looked for in an episode
    limits: one per cost, or name -> limit; default: the environment's `cost_limits`;
        without any, `ecop.train` must be given them
    workers: processes to run the episodes in; 0 is this process
    timeout: seconds after which a step that has not returned counts as hung
    live: environments that a process holds at once, whatever the number of episodes
    options: arguments for making the environment
    python: interpreter to run it in, 3.8 or newer, or the virtual environment of one,
        for a package that cannot be installed here; it needs that package, Gymnasium
        (or Gym) and NumPy, not this library. At least one worker
    """
    other = None if python is None else interpreter(python)
    make = Maker(env, horizon, options or {})
    with staying("The environment"):
        seen = probe(make, costs) if other is None else probe_in(other, make, costs)
    names, unknown = seen.names, seen.unknown
    if len(set(names)) < len(names):
        raise UserError(f"Two costs have the same name: {', '.join(names)}.")
    spec = Spec(
        seen.observation_size,
        seen.action.space,
        seen.horizon,
        tuple(
            Constraint(name, float("inf"), float(bound))
            for name, bound in zip(names, seen.bounds or repeat(inf), strict=False)
        ),
        seen.image,
    )
    limits = seen.limits if limits is None else limits
    if limits is not None:
        if unknown:
            raise UserError(unknown)
        spec = spec.with_limits(in_order(limits, names))
    elif names:
        unknown = (
            f"No limit is known for the costs {', '.join(names)}; give limits=[...] "
            "(--limits), or inf to only measure them."
        )
    recipe = None
    name = f"gym:{env}" if isinstance(env, str) else name_of(env)
    saved = plain_costs(costs)
    if name is not None and (costs is None or saved is not None):
        arguments = {"costs": saved, "workers": workers, "timeout": timeout}
        arguments |= {} if live == LIVE else {"live": live}
        arguments |= {} if other is None else {"python": other}
        recipe = (name, arguments | ({"options": options} if options else {}))
    make = make._replace(horizon=seen.horizon)
    filming = Filming(make, seen.action)
    return SimulatorPool(
        Factory(make, seen.costs),
        spec,
        workers=workers,
        timeout=timeout,
        live=live,
        film=filming if other is None else Elsewhere(other, filming),
        forms=Forms(seen.leaves, seen.action),
        name=env if isinstance(env, str) else getattr(env, "__name__", "environment"),
        recipe=recipe,
        unknown=unknown,
        python=other,
    )


def from_name(name: str, **options: Any) -> Any:
    """A task named "gym:ID" or "module:attribute" (of this folder, or installed).

    The attribute makes a Gymnasium environment, or a task with the library's interface.
    """
    scheme, _, rest = name.partition(":")
    if scheme == "gym":
        return from_gymnasium(rest, **options)
    if options.get("python") is not None:
        return from_gymnasium(Encoded({"name": name}), **options)
    with staying(f"'{name}'"):
        make = imported(name)
        made = made_by(make, options.get("options") or {})
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


def in_order(
    limits: Sequence[float] | Mapping[str, float], names: Sequence[str]
) -> tuple[float, ...]:
    """Limits as a spec has them; a cost that is not named has none."""
    if not isinstance(limits, Mapping):
        return tuple(map(float, limits))
    strange = set(limits) - set(names)
    if strange:
        known = ", ".join(names)
        raise UserError(f"There is no cost {sorted(strange)}; known: {known}.")
    return tuple(float(limits.get(name, inf)) for name in names)


def probe_in(python: str, make: Maker, wanted: Any) -> Probe:
    """A probe in another Python; nothing of the environment is imported here."""
    found, _ = ask(python, Probing(make, wanted))
    return found._replace(costs=Encoded(json.loads(found.costs)))


class Elsewhere(NamedTuple):
    """Pictures of an environment that another Python has."""

    python: str
    filming: Filming

    def __call__(self, episode: Played) -> Pictures:
        """Pictures of the episode, after each of its steps."""
        call = Shots(self.filming, episode.seed, episode.action)
        (stride, seconds), frames = ask(self.python, call)
        return Pictures(iter(frames), stride, seconds)


def name_of(make: Any) -> str | None:
    """The "module:attribute" of what makes an environment, if it has one."""
    return make.value["name"] if isinstance(make, Encoded) else reference(make)
