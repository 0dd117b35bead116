"""What a run is made of, as data; from names to a `Learner`."""

from __future__ import annotations

import importlib
import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, TypedDict

from ecop import recipes
from ecop.algorithms import ALGORITHMS, PPO
from ecop.envs import ENVS, OPTIONS, make
from ecop.errors import UserError, require, unknown
from ecop.files import Name
from ecop.learning.options import values
from ecop.simulators.pool import SimulatorPool
from ecop.training import Learner, TrainConfig
from ecop.types import Spec

# The largest sizes that a file may ask for; other numbers cost time, not memory.
SIZES = {"seeds": 1000, "episodes": 10**6, "horizon": 10**5, "hidden": 10**4}
SIZES |= {"workers": 1000, "threads": 1000, "states": 1000, "actions": 1000}
SIZES |= {"constraints": 100, "delay": 10**5, "steps": 2**31 - 1}
SIZES |= dict.fromkeys(("epochs", "minibatches", "backward_steps"), 10**5)
SIZES |= dict.fromkeys(("critic_epochs", "critic_minibatches"), 10**5)


class Document(TypedDict):
    """What a file says of a config."""

    task: Name
    env_options: dict[str, Any] | None
    algorithm: dict[str, Any]
    train: dict[str, Any]


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
    limits = config.train.limits
    unknown = env.unknown if isinstance(env, SimulatorPool) else None
    if limits is not None and (spec.constraints or unknown is None):
        spec = spec.with_limits(limits)
    elif unknown and (limits is not None or not isinstance(config.algorithm, PPO)):
        raise UserError(unknown)
    learner = Learner(env, spec, config.algorithm, config.train)
    _ = learner.encoder  # refused here, before a folder is made
    return learner


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
    """Rebuild a config from `to_json`; unknown names and large sizes are errors."""
    extra = set(fields) - set(values(kind()))
    if extra:
        raise UserError(
            f"The run's config has options this ecop does not know: {sorted(extra)}."
        )
    refuse_large(fields)
    given = {
        name: tuple(math.inf if v is None else v for v in value)
        if isinstance(value, list)
        else value
        for name, value in fields.items()
    }
    return kind(**given)


def refuse_large(fields: dict[str, Any]) -> None:
    """Refuse sizes that would fill the memory."""
    for name, value in fields.items():
        entries = value if isinstance(value, list) else [value]
        most = SIZES.get(name, math.inf)
        numbers = [v for v in entries if isinstance(v, int | float)]
        if max(numbers, default=0) > most or len(entries) > 1000:
            raise UserError(f"{name} must be at most {most:,}, not {value!r:.40}.")


def from_document(document: Document) -> RunConfig:
    """The config that a file describes; its task is not made and nothing is run."""
    fields = dict(document["algorithm"])
    name = fields.pop("name", None)
    if not isinstance(name, str) or name not in ALGORITHMS:
        raise UserError(unknown("algorithm", f"{name!s:.40}", ALGORITHMS))
    train = from_json(TrainConfig, document["train"])
    if train.first_seed + train.seeds > 2**32:
        raise UserError(f"Seeds end at {2**32 - 1}, not {train.first_seed:,}.")
    algorithm = from_json(ALGORITHMS[name], fields)
    options = document["env_options"]
    if document["task"] in ENVS:
        refuse_options(document["task"], options or {})
    return RunConfig(document["task"], algorithm, train, options)


def refuse_options(task: str, options: dict[str, Any]) -> None:
    """Refuse options that a task of the library does not have, or of another type."""
    refuse_large(options)
    home, _, name = OPTIONS.get(task, "").partition(":")
    kind = getattr(importlib.import_module(home), name) if home else None
    known = values(kind()) if kind else {}
    for option in options:
        if option not in known:
            raise UserError(unknown(f"option of {task}", option, known))
    if kind:
        require(kind(**options))


def refuse_code(config: RunConfig, path: Any, how: str) -> None:
    """Refuse a config from a file that names code; say what would be run.

    how: to allow it
    """
    if ":" not in config.task or config.env_options is None:
        return
    costs, python = (config.env_options.get(name) for name in ("costs", "python"))
    names = [config.task, *(costs if isinstance(costs, list) else [costs])]
    code = ", ".join(f"'{name}'" for name in names if ":" in str(name))[:300]
    code += "" if python is None else f", by the program {python!r:.300}"
    raise UserError(
        f"'{path}' names code that would be imported and run: {code}. If you trust "
        f"whoever wrote it, say so: {how}."
    )
