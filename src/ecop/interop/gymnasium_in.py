"""A Gymnasium environment as a simulator of whole episodes. Imports no JAX."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.spaces.utils import flatten, flatten_space

from ecop.drawing.scenes import Pictures
from ecop.errors import UserError
from ecop.interop.costs import WAYS, Costs, NamedCosts, Taken, detect
from ecop.simulators import guard
from ecop.simulators.forms import ActionForm, Chosen, Combined, Forms, Leaf, Scaled
from ecop.simulators.player import Result
from ecop.types import Action, Box, MultiDiscrete, Played

FRAMES = 150  # of a film, at most
SIDE, CHANNELS = 8, 16  # the least pixels of an image, and the most channels
FLAGS = (bool, np.bool_)


class Maker(NamedTuple):
    """How to make the environment: an id of Gymnasium's registry, or a function."""

    source: str | Callable[[], Any]
    horizon: int | None
    options: dict[str, Any]

    def __call__(self) -> Any:
        """Make one, with the time limit lifted to the horizon."""
        if callable(self.source):
            return self.source(**self.options)
        limit = {} if self.horizon is None else {"max_episode_steps": self.horizon}
        return gymnasium.make(
            self.source, disable_env_checker=True, **limit, **self.options
        )


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
        self.shape = space.shape if isinstance(space, spaces.Box) else None
        self.plain = self.shape is not None and len(self.shape) == 1
        self.raw: Any = None
        self.t = 0

    def reset(self, seed: int) -> np.ndarray:
        """Start an episode."""
        self.raw, _ = self.env.reset(seed=seed)
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
            return np.asarray(flatten(self.env.observation_space, observation))
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
        make = self.make._replace(
            options={**self.make.options, "render_mode": "rgb_array"}
        )
        try:
            env = make()
        except (TypeError, gymnasium.error.Error, ImportError) as error:
            raise UserError(
                f"The environment cannot be made with render_mode='rgb_array', so it "
                f"has no pictures: {error}"
            ) from None
        if getattr(env, "render_mode", None) != "rgb_array":
            env.close()
            raise UserError(
                f"{env} has no render mode 'rgb_array', so it has no pictures."
            )
        stride = -(-len(episode.reward) // FRAMES)
        fps = env.metadata.get("render_fps") or 25
        return Pictures(self.frames(env, episode, stride), stride, 1.0 / fps)

    def frames(self, env: Any, episode: Played, stride: int) -> Iterator[np.ndarray]:
        """One after the first step, then every `stride`."""
        try:
            env.reset(seed=episode.seed)
            for h, action in enumerate(self.form(episode.action)):
                take(env, action)
                if h % stride == 0:
                    yield np.asarray(env.render(), np.uint8)
        except (gymnasium.error.Error, ImportError) as error:
            raise UserError(f"{env} cannot be drawn: {error}") from None
        finally:
            env.close()


class Factory(NamedTuple):
    """What a worker needs to make its simulators."""

    make: Maker
    costs: Costs

    def __call__(self) -> GymnasiumSimulator:
        """Make one."""
        return GymnasiumSimulator(self.make, self.costs)


def take(env: Any, action: Any) -> Taken:
    """One step of either form."""
    out = env.step(action)
    if len(out) not in (5, 6):
        raise UserError(
            f"The environment's step returned {len(out)} values; Gymnasium's returns 5 "
            "(6 with a cost). Older environments need a wrapper."
        )
    if not (isinstance(out[-3], FLAGS) and isinstance(out[-2], FLAGS)):
        guard.flag(out[-3], f"'terminated' of {env}")
        guard.flag(out[-2], f"'truncated' of {env}")
    return out


def action_form(space: spaces.Space) -> ActionForm:
    """How actions of the library's spaces become those of an environment."""
    if isinstance(space, spaces.Box):
        if not (np.isfinite(space.low).all() and np.isfinite(space.high).all()):
            raise UserError(
                "The action space has entries without bounds; give it finite ones, "
                "e.g. by gymnasium.wrappers.TransformAction, so that [-1, 1] can be "
                "scaled to them."
            )
        return Scaled(space.low, space.high)
    if isinstance(space, spaces.Discrete):
        return Chosen(int(space.n), int(space.start))
    if isinstance(space, spaces.MultiDiscrete | spaces.MultiBinary):
        binary = isinstance(space, spaces.MultiBinary)
        sizes = np.full(space.shape, 2) if binary else np.asarray(space.nvec)
        start = np.zeros(space.shape) if binary else np.asarray(space.start)
        return Combined(sizes, start.astype(space.dtype))
    raise UserError(
        f"Actions of type {type(space).__name__} are not supported; Box, Discrete, "
        "MultiDiscrete and MultiBinary are. Wrap the environment."
    )


def leaves(space: spaces.Space, *path: str | int) -> list[Leaf] | None:
    """The arrays inside an observation, as Gymnasium flattens them, if that is all."""
    if isinstance(space, spaces.Dict | spaces.Tuple):
        inner = space.items() if isinstance(space, spaces.Dict) else enumerate(space)
        found: list[Leaf] = []
        for key, part in inner:
            more = leaves(part, *path, key)
            if more is None:
                return None
            found += more
        return found
    form = Leaf(path=list(path), shape=list(space.shape or ()), sizes=None, start=[])
    if isinstance(space, spaces.Box | spaces.MultiBinary):
        return [form]
    if isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
        many = isinstance(space, spaces.MultiDiscrete)
        sizes = space.nvec if many else np.asarray(space.n)
        start = np.broadcast_to(space.start, np.shape(sizes))
        form["sizes"], form["start"] = (x.reshape(-1).tolist() for x in (sizes, start))
        return [form]
    return None


class Probe(NamedTuple):
    """What one look at an environment tells."""

    observation_size: int
    forms: Forms
    horizon: int
    costs: Costs
    limits: tuple[float, ...] | None  # its own, if it has any
    bounds: tuple[float, ...] | None
    image: tuple[int, int, int] | None  # the shape of its observations, if they are


def image_shape(space: spaces.Space) -> tuple[int, int, int] | None:
    """Height, width and channels, if a space is one of images."""
    if not isinstance(space, spaces.Box) or len(space.shape) not in (2, 3):
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


def probe(make: Maker, costs: Costs | None) -> Probe:
    """Make the environment once and see what it is; play an episode to find costs."""
    try:
        env = make()
    except gymnasium.error.Error as error:
        raise UserError(f"Gymnasium cannot make '{make.source}': {error}") from None
    try:
        flat = flatten_space(env.observation_space)
        if not isinstance(flat, spaces.Box):
            raise UserError(
                f"Observations of type {type(env.observation_space).__name__} have no "
                "fixed size; wrap the environment so that they do."
            )
        action = action_form(env.action_space)
        base = env.unwrapped
        horizon = make.horizon or getattr(base, "horizon", None)
        if horizon is None and env.spec is not None:
            horizon = env.spec.max_episode_steps
        if horizon is None:
            raise UserError(
                "The environment has no time limit of its own; give horizon=... "
                "(--horizon), the number of steps of every episode."
            )
        blind = isinstance(costs, NamedCosts) and costs.absent_is_zero
        if costs is None or blind:
            names = getattr(base, "cost_names", None)
            found = find_costs(env, action, int(horizon), names)
            costs = found if costs is None else costs
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
            int(np.prod(flat.shape)),
            Forms(leaves(env.observation_space), action),
            int(horizon),
            costs,
            limits,
            bounds,
            image_shape(env.observation_space),
        )
    finally:
        env.close()


def find_costs(
    env: Any,
    form: ActionForm,
    horizon: int,
    names: Any,
) -> Costs:
    """Play one episode at random until a step shows a cost; refuse if none does."""
    rng = np.random.default_rng(0)
    env.reset(seed=0)
    keys: set[str] = set()
    for _ in range(horizon):
        step = take(env, form(random_action(form.space, rng)[None])[0])
        found = detect(step, names)
        if found is not None:
            return found
        if np.ndim(step[1]) > 0 and np.size(step[1]) > 1:
            raise UserError(
                f"The reward has {np.size(step[1])} entries; say which are "
                "costs: costs=VectorReward(reward=0, costs={'name': 1})."
            )
        keys |= set(step[-1])
        if step[-3] or step[-2]:
            break
    seen = f"its info has {sorted(keys)}" if keys else "its info is empty"
    raise UserError(
        f"No cost was found in a whole episode of the environment ({seen}); say where "
        f"it is: {WAYS}."
    )


def random_action(space: Action, rng: np.random.Generator) -> np.ndarray:
    """A uniform action in the library's form."""
    if isinstance(space, Box):
        return rng.uniform(-1.0, 1.0, space.size).astype(np.float32)
    options = space.sizes if isinstance(space, MultiDiscrete) else space.n
    return np.asarray(rng.integers(options, dtype=np.int32))
