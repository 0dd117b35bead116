"""A Gymnasium environment as a simulator of whole episodes. Imports no JAX."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.spaces.utils import flatten, flatten_space

from ecop.errors import UserError
from ecop.interop.costs import WAYS, Costs, NamedCosts, Taken, detect
from ecop.simulators import guard
from ecop.simulators.player import Result
from ecop.types import Action, Box, Discrete, MultiDiscrete

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
        self.prepare = action_map(self.env.action_space)[1]
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


def action_map(
    space: spaces.Space,
) -> tuple[Action, Callable[[np.ndarray], Sequence[Any]]]:
    """The library's action space, and batches of its actions as environments want."""
    if isinstance(space, spaces.Box):
        if not (np.isfinite(space.low).all() and np.isfinite(space.high).all()):
            raise UserError(
                "The action space has entries without bounds; give it finite ones, "
                "e.g. by gymnasium.wrappers.TransformAction, so that [-1, 1] can be "
                "scaled to them."
            )
        low = space.low.astype(np.float64)
        half = (space.high.astype(np.float64) - low) / 2.0
        whole = np.issubdtype(space.dtype, np.integer)

        def scale(actions: np.ndarray) -> Any:
            unit = np.minimum(np.maximum(actions.astype(np.float64), -1.0), 1.0)
            value = low + (unit.reshape(-1, *space.shape) + 1.0) * half
            value = (np.rint(value) if whole else value).astype(space.dtype)
            return np.minimum(np.maximum(value, space.low), space.high)

        return Box(int(np.prod(space.shape))), scale
    if isinstance(space, spaces.Discrete):
        start = int(space.start)
        return Discrete(int(space.n)), lambda actions: (actions + start).tolist()
    if isinstance(space, spaces.MultiDiscrete | spaces.MultiBinary):
        binary = isinstance(space, spaces.MultiBinary)
        sizes = np.full(space.shape, 2) if binary else np.asarray(space.nvec)
        start = 0 if binary else np.asarray(space.start)
        action = MultiDiscrete(tuple(sizes.reshape(-1).tolist()))

        def shape(actions: np.ndarray) -> Any:
            return actions.reshape(-1, *sizes.shape).astype(space.dtype) + start

        return action, shape
    raise UserError(
        f"Actions of type {type(space).__name__} are not supported; Box, Discrete, "
        "MultiDiscrete and MultiBinary are. Wrap the environment."
    )


class Probe(NamedTuple):
    """What one look at an environment tells."""

    observation_size: int
    action: Action
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
        action, to_actions = action_map(env.action_space)
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
            found = find_costs(env, action, to_actions, int(horizon), names)
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
            action,
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
    space: Action,
    to_actions: Callable[[np.ndarray], Sequence[Any]],
    horizon: int,
    names: Any,
) -> Costs:
    """Play one episode at random until a step shows a cost; refuse if none does."""
    rng = np.random.default_rng(0)
    env.reset(seed=0)
    keys: set[str] = set()
    for _ in range(horizon):
        step = take(env, to_actions(random_action(space, rng)[None])[0])
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
