"""A Gymnasium environment as a simulator of whole episodes.

Runs in workers of any Python from 3.8 on, with NumPy and any version of Gymnasium or of
its ancestor Gym: spaces are known by their names, both forms of `reset` are understood,
and steps of 4, 5 and 6 values. No JAX.
"""

from __future__ import annotations

import importlib
import inspect
import json
import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ecop.errors import UserError
from ecop.interop.costs import (
    WAYS,
    ArrayCosts,
    Costs,
    NamedCosts,
    NoCosts,
    as_costs,
    detect,
    missing,
)
from ecop.simulators import guard
from ecop.simulators.player import Result
from ecop.simulators.spaces import ActionForm, Chosen, Combined, Scaled, vector
from ecop.simulators.wire import Encoded, encode
from ecop.types import Action, Box, MultiDiscrete

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ecop.drawing.scenes import Pictures
    from ecop.interop.costs import Taken
    from ecop.simulators.forms import Leaf
    from ecop.types import Played

FRAMES = 150  # of a film, at most
SIDE, CHANNELS = 8, 16  # the least pixels of an image, and the most channels
FLAGS = (bool, np.bool_)
HOMES = ("gymnasium", "gym")  # in order of preference
OLDER = "_max_episode_steps"  # of time limits that `make` cannot set


def registry() -> Any:
    """Gymnasium, or Gym where only that is installed."""
    for name in HOMES:
        try:
            return importlib.import_module(name)
        except ImportError:
            continue
    raise UserError(
        "This needs Gymnasium, which is not installed: pip install 'ecop[gym]' (for "
        "a Python of its own: pip install gymnasium)"
    )


class Maker(NamedTuple):
    """How to make the environment: an id, or a function.

    An id "module:ID" is of a package that registers it when it is imported. If that has
    a `make` of its own, as Safety-Gymnasium's, it is called.
    """

    source: str | Callable[..., Any] | Encoded
    horizon: int | None
    options: dict[str, Any]

    def __call__(self) -> Any:
        """Make one, with the time limit lifted to the horizon."""
        if not isinstance(self.source, str):
            return made_by(self.source, self.options)
        home, _, name = self.source.rpartition(":")
        try:
            package = importlib.import_module(home) if home else registry()
            make = getattr(package, "make", None) or registry().make
        except ImportError as error:
            raise UserError(
                f"'{home}' cannot be imported ({error}); install it, or give the "
                "Python that has it: python=... (--python)."
            ) from None
        known = inspect.signature(make).parameters
        options = dict(self.options)
        old = package.__name__ == "gym" and "max_episode_steps" not in known
        if self.horizon is not None and not old:
            options["max_episode_steps"] = self.horizon
        if "disable_env_checker" in known:
            options["disable_env_checker"] = True
        try:
            env = make(name, **options)
        except UserError:
            raise
        except Exception as error:
            named = home_of(error) in HOMES or isinstance(error, AssertionError)
            if not named and not isinstance(error, (TypeError, ImportError)):
                raise
            raise UserError(
                f"Gymnasium cannot make '{self.source}': {error or error!r}"
            ) from None
        if self.horizon is not None and old:
            for layer in layers(env):
                if OLDER in vars(layer):
                    setattr(layer, OLDER, self.horizon)
        return env


def made_by(source: Any, options: dict[str, Any]) -> Any:
    """What a function of the user's makes; refuse what is no such function."""
    if not callable(source):
        raise UserError(
            f"{source} is no function; an environment that exists cannot play several "
            "episodes at once: give its id, or a function that makes it."
        )
    name = getattr(source, "__name__", repr(source))
    try:
        inspect.signature(source).bind(**options)
    except TypeError as error:
        given = ", ".join(f"{key}={value!r}" for key, value in options.items())
        raise UserError(
            f"{name}({given}) does not fit its arguments: {error}; give them defaults, "
            "or options={...}."
        ) from None
    except ValueError:  # a function without a signature
        pass
    made = source(**options)
    if not (hasattr(made, "reset") and hasattr(made, "step")):
        raise UserError(f"{name} made {made!r:.60}, which is no environment.")
    return made


def layers(env: Any) -> Iterator[Any]:
    """An environment and what it wraps, from the outside."""
    while env is not None:
        yield env
        env = vars(env).get("env")


def begin(env: Any, seed: int) -> Any:
    """The first observation of an episode, by either form of `reset`."""
    base = getattr(env, "unwrapped", env)
    known = inspect.signature(base.reset).parameters.values()
    if any(p.name == "seed" or p.kind is p.VAR_KEYWORD for p in known):
        first = env.reset(seed=seed)
    elif hasattr(env, "seed"):
        env.seed(seed)
        first = env.reset()
    else:
        raise UserError(
            f"The reset of {env} takes no seed, so no episode could be played again; "
            "let it be reset(seed=None)."
        )
    pair = isinstance(first, tuple) and len(first) == 2 and isinstance(first[1], dict)
    return first[0] if pair else first


class GymnasiumSimulator:
    """One environment; observations in the library's form, actions in its own.

    Attributes:
        prepare: actions [B, ...] in the library's form, as environments want them
    """

    def __init__(self, make: Maker, costs: Costs) -> None:
        self.env = make()
        self.costs = costs
        self.horizon = make.horizon or math.inf
        self.prepare = action_form(self.env.action_space)
        space = self.env.observation_space
        self.shape = space.shape if kind(space) == "Box" else None
        self.leaves = leaves(space)
        self.plain = self.shape is not None and len(self.shape) == 1
        self.raw: Any = None
        self.t = 0

    def reset(self, seed: int) -> np.ndarray:
        """Start an episode."""
        self.raw = begin(self.env, seed)
        self.t = 0
        return self.raw if self.plain else self.flat(self.raw)

    def step(self, action: Any) -> Result:
        """Take one step."""
        step = take(self.env, action)
        reward, costs = self.costs.read(step, self.raw, action, self.t)
        self.raw = step[0]
        self.t += 1
        early = step[-2] and self.t < self.horizon
        ended = 1 if step[-3] else 2 if early else 0
        observation = self.raw if self.plain else self.flat(self.raw)
        return Result(observation, reward, costs, ended)

    def flat(self, observation: Any) -> np.ndarray:
        """An observation as a vector [O]."""
        if self.shape is None:
            return vector(self.leaves, observation)
        array = np.asarray(observation)  # flattening would hide shape and type
        if array.shape != self.shape:
            raise guard.Misbehaved(
                f"{self} gave an observation of shape {array.shape}, not {self.shape}."
            )
        return array.reshape(-1)

    def __str__(self) -> str:
        return str(self.env)

    def close(self) -> None:
        """Close the environment."""
        self.env.close()


class Filming(NamedTuple):
    """Plays an episode again in an environment that draws itself (`rgb_array`)."""

    make: Maker
    form: ActionForm

    def __call__(self, episode: Played) -> Pictures:
        """Pictures of the episode, after each of its steps."""
        from ecop.drawing.scenes import Pictures

        return Pictures(*self.shots(episode.seed, episode.action))

    def shots(
        self, seed: int, actions: np.ndarray
    ) -> tuple[Iterator[np.ndarray], int, float]:
        """Pictures, how many steps apart they are, and seconds per step."""
        make = self.make._replace(
            options={**self.make.options, "render_mode": "rgb_array"}
        )
        try:
            env = make()
        except (TypeError, ImportError, UserError) as error:
            raise UserError(
                f"The environment cannot be made with render_mode='rgb_array', so it "
                f"has no pictures: {error}"
            ) from None
        if getattr(env, "render_mode", None) != "rgb_array":
            env.close()
            raise UserError(
                f"{env} has no render mode 'rgb_array', so it has no pictures."
            )
        stride = -(-len(actions) // FRAMES)
        fps = env.metadata.get("render_fps") or 25
        return self.frames(env, seed, actions, stride), stride, 1.0 / fps

    def frames(
        self, env: Any, seed: int, actions: np.ndarray, stride: int
    ) -> Iterator[np.ndarray]:
        """One after the first step, then every `stride`."""
        try:
            begin(env, seed)
            for h, action in enumerate(self.form(actions)):
                take(env, action)
                if h % stride == 0:
                    yield np.asarray(env.render(), np.uint8)
        except Exception as error:
            if not (isinstance(error, ImportError) or home_of(error) in HOMES):
                raise
            raise UserError(f"{env} cannot be drawn: {error}") from None
        finally:
            env.close()


class Shots(NamedTuple):
    """A film, asked of another Python."""

    filming: Filming
    seed: int
    actions: np.ndarray

    def __call__(self) -> tuple[tuple[int, float], list[np.ndarray]]:
        """Stride and seconds, and the pictures."""
        frames, stride, seconds = self.filming.shots(self.seed, self.actions)
        return (stride, seconds), list(frames)


class Factory(NamedTuple):
    """What a worker needs to make its simulators."""

    make: Maker
    costs: Costs | Encoded

    def __call__(self) -> GymnasiumSimulator:
        """Make one."""
        assert not isinstance(self.costs, Encoded)  # it is decoded on its way
        return GymnasiumSimulator(self.make, self.costs)


def take(env: Any, action: Any) -> Taken:
    """One step, of any form."""
    out = env.step(action)
    if len(out) == 4:  # Gym's, before 0.26
        *rest, over, info = out
        cut = guard.flag(info.get("TimeLimit.truncated", False), "TimeLimit.truncated")
        out = *rest, over and not cut, cut, info
    if len(out) not in (5, 6):
        raise UserError(
            f"The environment's step returned {len(out)} values; Gymnasium's returns 5 "
            "(6 with a cost, 4 before 2022)."
        )
    if not (isinstance(out[-3], FLAGS) and isinstance(out[-2], FLAGS)):
        guard.flag(out[-3], f"'terminated' of {env}")
        guard.flag(out[-2], f"'truncated' of {env}")
    return out


def home_of(thing: Any) -> str:
    """The package that a thing's class is of."""
    return type(thing).__module__.split(".")[0]


def kind(space: Any) -> str:
    """The name of a space's class in Gymnasium or Gym; otherwise the class's own."""
    for ancestor in type(space).__mro__:
        if ancestor.__module__.split(".")[0] in HOMES and ancestor.__name__ != "Space":
            return ancestor.__name__
    return type(space).__name__


def action_form(space: Any) -> ActionForm:
    """How actions of the library's spaces become those of an environment."""
    name = kind(space)
    if name == "Box":
        if not (np.isfinite(space.low).all() and np.isfinite(space.high).all()):
            raise UserError(
                "The action space has entries without bounds; give it finite ones, "
                "e.g. by gymnasium.wrappers.TransformAction, so that [-1, 1] can be "
                "scaled to them."
            )
        return Scaled(space.low, space.high)
    start = getattr(space, "start", 0)
    if name == "Discrete":
        return Chosen(int(space.n), int(start))
    if name in ("MultiDiscrete", "MultiBinary"):
        binary = name == "MultiBinary"
        sizes = np.full(space.shape, 2) if binary else np.asarray(space.nvec)
        first = np.broadcast_to(0 if binary else start, sizes.shape)
        return Combined(sizes, first.astype(space.dtype))
    raise UserError(
        f"Actions of type {name} are not supported; Box, Discrete, "
        "MultiDiscrete and MultiBinary are. Wrap the environment."
    )


def leaves(space: Any, *path: str | int) -> list[Leaf]:
    """The arrays inside an observation, as Gymnasium flattens them."""
    name = kind(space)
    if name in ("Dict", "Tuple"):
        inner = space.spaces.items() if name == "Dict" else enumerate(space.spaces)
        return [leaf for key, part in inner for leaf in leaves(part, *path, key)]
    form: Leaf = {
        "path": list(path),
        "shape": list(space.shape or ()),
        "sizes": None,
        "start": [],
    }
    if name in ("Box", "MultiBinary"):
        return [form]
    if name in ("Discrete", "MultiDiscrete"):
        sizes = np.asarray(space.n if name == "Discrete" else space.nvec)
        start = np.broadcast_to(getattr(space, "start", 0), sizes.shape)
        form["sizes"], form["start"] = (x.reshape(-1).tolist() for x in (sizes, start))
        return [form]
    where = "".join(f"[{key!r}]" for key in path)
    raise UserError(
        f"observation{where} is of type {type(space).__name__}, which is no array of a "
        "fixed size; leave it out by a wrapper, such as "
        "gymnasium.wrappers.FilterObservation (for MiniGrid: "
        "minigrid.wrappers.ImgObsWrapper)."
    )


class Probe(NamedTuple):
    """What one look at an environment tells."""

    observation_size: int
    leaves: list[Leaf]
    action: ActionForm
    horizon: int
    costs: Costs | Encoded
    names: tuple[str, ...]  # of the costs
    limits: tuple[float, ...] | None  # its own, if it has any
    bounds: tuple[float, ...] | None
    image: tuple[int, int, int] | None  # the shape of its observations, if they are
    unknown: str | None  # why there are no costs, if there are none


def size_of(leaf: Leaf) -> int:
    """Entries of the vector that a leaf becomes."""
    return math.prod(leaf["shape"]) if leaf["sizes"] is None else sum(leaf["sizes"])


def image_shape(space: Any) -> tuple[int, int, int] | None:
    """Height, width and channels, if a space is one of images."""
    if kind(space) != "Box" or len(space.shape) not in (2, 3):
        return None
    if len(space.shape) == 2:
        flat = min(space.shape) >= SIDE and space.dtype == np.uint8
        return (*space.shape, 1) if flat else None
    first, middle, last = space.shape
    if min(first, middle) >= SIDE and last <= CHANNELS:
        return first, middle, last
    if min(middle, last) >= SIDE and first <= CHANNELS:
        raise UserError(
            f"Observations of shape {space.shape} look like images with their channels "
            "first; wrap the environment so that they come last."
        )
    return None


def probe(make: Maker, wanted: Any) -> Probe:
    """Make the environment once and see what it is; play until a cost is found.

    wanted: the `costs` argument of `from_gymnasium`
    """
    costs = as_costs(wanted)
    env = make()
    try:
        if getattr(env, "num_envs", None) is not None:
            raise UserError(
                f"{env} is a vector environment; give one that plays one episode at a "
                "time, workers=... makes many of them."
            )
        parts, action = leaves(env.observation_space), action_form(env.action_space)
        base = getattr(env, "unwrapped", env)
        horizon = make.horizon or getattr(base, "horizon", None) or time_limit(env)
        if horizon is None:
            raise UserError(
                "The environment has no time limit of its own; give horizon=... "
                "(--horizon), the number of steps of every episode."
            )
        names = getattr(base, "cost_names", None)
        costs, unknown = find_costs(env, action, int(horizon), costs, names)
        if wanted == "costs" and not isinstance(costs, ArrayCosts):
            raise missing("costs", {})
        limits, bounds = (
            None if (found := getattr(base, name, None)) is None else tuple(found)
            for name in ("cost_limits", "cost_bounds")
        )
        if bounds is not None and len(bounds) != len(costs.names):
            raise UserError(
                f"The environment has {len(bounds)} cost_bounds for "
                f"{len(costs.names)} cost(s)."
            )
        return Probe(
            sum(map(size_of, parts)),
            parts,
            action,
            int(horizon),
            costs,
            costs.names,
            limits,
            bounds,
            image_shape(env.observation_space),
            unknown,
        )
    finally:
        env.close()


class Probing(NamedTuple):
    """A probe, asked of another Python."""

    make: Maker
    wanted: Any

    def __call__(self) -> tuple[Probe, list[np.ndarray]]:
        """What it tells; the costs as text, which need not mean anything over there."""
        found = probe(self.make, self.wanted)
        return found._replace(costs=json.dumps(encode(found.costs))), []  # pyright: ignore


def time_limit(env: Any) -> int | None:
    """Steps after which an environment ends an episode."""
    steps = getattr(getattr(env, "spec", None), "max_episode_steps", None)
    return steps or next(
        (vars(layer)[OLDER] for layer in layers(env) if OLDER in vars(layer)), None
    )


def find_costs(
    env: Any,
    form: ActionForm,
    horizon: int,
    costs: Costs | None,
    names: Any,
) -> tuple[Costs, str | None]:
    """Play one episode at random until a step shows a cost, or say that none does.

    costs: where they should be, if that is known: the first step must have them there
    """
    rng = np.random.default_rng(0)
    before = begin(env, 0)
    blind = isinstance(costs, NamedCosts) and costs.absent_is_zero
    keys: set[str] = set()
    for t in range(horizon):
        action = form(random_action(form.space, rng)[None])[0]
        step = take(env, action)
        if costs is not None:
            costs.read(step, before, action, t)
        found = costs if costs is not None and not blind else detect(step, names)
        if found is not None:
            return (found if costs is None else costs), None
        if np.ndim(step[1]) > 0 and np.size(step[1]) > 1:
            raise UserError(
                f"The reward has {np.size(step[1])} entries; say which are costs: "
                "costs=['name=-reward.1'] (--costs name=-reward.1), where entry 0 is "
                "the reward unless you add 'reward=reward.INDEX'."
            )
        keys |= set(step[-1])
        if step[-3] or step[-2]:
            break
    seen = f"its info has {sorted(keys)}" if keys else "its info is empty"
    text = (
        f"No cost was found in a whole episode of the environment ({seen}); say where "
        f"it is: {WAYS}"
    )
    if blind:
        raise UserError(f"{text}.")
    return NoCosts(), f"{text}; or train with ppo, which needs none."


def random_action(space: Action, rng: np.random.Generator) -> np.ndarray:
    """A uniform action in the library's form."""
    if isinstance(space, Box):
        return rng.uniform(-1.0, 1.0, space.size).astype(np.float32)
    options = space.sizes if isinstance(space, MultiDiscrete) else space.n
    return np.asarray(rng.integers(options, dtype=np.int32))
