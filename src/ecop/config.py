"""What a run is made of, as data; from names to a `Learner`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from ecop import recipes
from ecop.algorithms import ALGORITHMS
from ecop.envs import make
from ecop.errors import UserError, unknown
from ecop.learning.options import values
from ecop.simulators.pool import SimulatorPool
from ecop.training import Learner, TrainConfig
from ecop.types import Spec


class RunConfig(NamedTuple):
    """What was trained: enough to build the very same learner again."""

    task: str
    algorithm: Any
    train: TrainConfig
    env_options: dict[str, Any] | None = {}  # noqa: RUF012 - None: it has no name


class Resolved(NamedTuple):
    """Options as they apply, and where each comes from."""

    algorithm: Any
    train: TrainConfig
    origin: dict[str, str]  # by name of the option


def resolve(
    task: str,
    algorithm: str,
    preset: str = "default",
    given: Mapping[str, Any] = MappingProxyType({}),
) -> Resolved:
    """Defaults, then the task's recipe, the preset, and the options that are given."""
    if algorithm not in ALGORITHMS:
        raise UserError(unknown("algorithm", algorithm, ALGORITHMS))
    kind = ALGORITHMS[algorithm]
    layers = {
        f"recipe of {task}": recipes.TASKS.get(task, {}),
        f"preset {preset}": recipes.preset_options(preset, algorithm),
        "given": given,
    }
    chosen: dict[str, Any] = {}
    origin = dict.fromkeys(values(TrainConfig()), "default of training")
    origin |= dict.fromkeys(values(kind()), f"default of {algorithm}")
    for where, layer in layers.items():
        for name, value in layer.items():
            if name not in origin:
                raise UserError(unknown("option", name, origin))
            chosen[name] = tuple(value) if isinstance(value, list) else value
            origin[name] = where
    ours = {name: chosen.pop(name) for name in values(kind()) if name in chosen}
    return Resolved(kind(**ours), TrainConfig(**chosen), origin)


def build(config: RunConfig, env: Any = None) -> Learner:
    """The learner of a config, with the limits and horizon it asks for.

    env: the environment, if it was given as an object
    """
    horizon = config.train.horizon
    if env is None:
        if config.env_options is None:
            raise UserError(
                f"The run was trained on an environment given as an object "
                f"({config.task}), which no folder can hold; pass it again: "
                "ecop.load(path, env=env) or ecop.resume(path, env=env)."
            )
        options = {} if horizon is None else {"horizon": horizon}
        env = make(config.task, **options, **config.env_options)
    if not isinstance(getattr(env, "spec", None), Spec):
        raise UserError(
            f"{type(env).__name__} is no task of this library; make one of a Gymnasium "
            "environment by ecop.from_gymnasium(id or function, costs=..., limits=...)."
        )
    spec = env.spec
    if horizon not in (None, spec.horizon):
        raise UserError(
            f"The environment's horizon is {spec.horizon}, not {horizon}; give the "
            "horizon where the environment is made."
        )
    if config.train.limits is not None:
        spec = spec.with_limits(config.train.limits)
    elif isinstance(env, SimulatorPool) and spec.constraints and not spec.enforced:
        raise UserError(
            f"No limit is known for the costs {', '.join(spec.cost_names)}; give "
            "limits=[...] (--limits), or inf to only measure them."
        )
    return Learner(env, spec, config.algorithm, config.train)


def algorithm_name(algorithm: Any) -> str:
    """The registry's name of an algorithm object."""
    for name, kind in ALGORITHMS.items():
        if type(algorithm) is kind:
            return name
    raise UserError(
        f"{algorithm!r} is not an algorithm; known: {', '.join(ALGORITHMS)}."
    )


def to_json(config: Any) -> dict[str, Any]:
    """All options of a config as JSON; an infinite limit is null."""

    def plain(value: Any) -> Any:
        if isinstance(value, tuple):
            return [plain(v) for v in value]
        return None if isinstance(value, float) and math.isinf(value) else value

    return {name: plain(value) for name, value in values(config).items()}


def from_json(kind: Any, fields: dict[str, Any]) -> Any:
    """Rebuild a config from `to_json`; unknown names are errors."""
    extra = set(fields) - set(values(kind()))
    if extra:
        raise UserError(
            f"The run's config has options this ecop does not know: {sorted(extra)}."
        )
    given = {
        name: tuple(math.inf if v is None else v for v in value)
        if isinstance(value, list)
        else value
        for name, value in fields.items()
    }
    return kind(**given)
