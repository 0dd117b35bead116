"""A Gymnasium environment as a simulator of whole episodes. Imports no JAX."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.spaces.utils import flatten, flatten_space

from ecop.errors import UserError
from ecop.interop.costs import WAYS, Costs, NamedCosts, Reading, detect
from ecop.simulators import guard
from ecop.simulators.worker import Result
from ecop.types import Box, Discrete

MAX_ACTIONS = 1024  # of a product of discrete spaces


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
    """One environment; actions and observations in the library's form."""

    def __init__(self, make: Maker, costs: Costs) -> None:
        self.env = make()
        self.costs = costs
        self.horizon = make.horizon or math.inf
        self.to_action = action_map(self.env.action_space)[1]
        space = self.env.observation_space
        self.shape = space.shape if isinstance(space, spaces.Box) else None
        self.raw: Any = None
        self.t = 0

    def reset(self, seed: int) -> np.ndarray:
        """Start an episode."""
        self.raw, _ = self.env.reset(seed=seed)
        self.t = 0
        return self.flat(self.raw)

    def step(self, action: np.ndarray) -> Result:
        """Take one step."""
        reading, terminated, truncated = take(
            self.env, self.raw, self.to_action(action), self.t
        )
        reward, costs = self.costs.read(reading)
        self.raw = reading.next_observation
        self.t += 1
        early = truncated and self.t < self.horizon
        ended = 1 if terminated else 2 if early else 0
        return Result(self.flat(self.raw), reward, costs, ended)

    def flat(self, observation: Any) -> np.ndarray:
        """An observation as a vector [O]."""
        if self.shape is None:
            row = np.asarray(flatten(self.env.observation_space, observation))
            return guard.observation(row, len(row), str(self))
        array = np.asarray(observation)  # flattening would hide shape and type
        if array.shape != self.shape:
            raise guard.Misbehaved(
                f"{self} gave an observation of shape {array.shape}, not {self.shape}."
            )
        return guard.observation(array.reshape(-1), array.size, str(self))

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


def take(env: Any, before: Any, action: Any, t: int) -> tuple[Reading, bool, bool]:
    """One step of either form; the reading, terminated, truncated."""
    out = env.step(action)
    if len(out) not in (5, 6):
        raise UserError(
            f"The environment's step returned {len(out)} values; Gymnasium's returns 5 "
            "(6 with a cost). Older environments need a wrapper."
        )
    observation, reward, *cost, terminated, truncated, info = out
    reading = Reading(
        before, action, observation, reward, cost[0] if cost else None, info, t
    )
    return (
        reading,
        guard.flag(terminated, f"'terminated' of {env}"),
        guard.flag(truncated, f"'truncated' of {env}"),
    )


def action_map(
    space: spaces.Space,
) -> tuple[Box | Discrete, Callable[[np.ndarray], Any]]:
    """The library's action space, and its actions as the environment wants them."""
    if isinstance(space, spaces.Box):
        if not (np.isfinite(space.low).all() and np.isfinite(space.high).all()):
            raise UserError(
                "The action space has entries without bounds; give it finite ones, "
                "e.g. by gymnasium.wrappers.TransformAction, so that [-1, 1] can be "
                "scaled to them."
            )
        low = space.low.astype(np.float64)
        half = (space.high.astype(np.float64) - low) / 2.0

        def scale(action: np.ndarray) -> np.ndarray:
            unit = np.clip(np.asarray(action, np.float64), -1.0, 1.0)
            value = low + (unit.reshape(space.shape) + 1.0) * half
            if np.issubdtype(space.dtype, np.integer):
                value = np.rint(value)
            return np.clip(value.astype(space.dtype), space.low, space.high)

        return Box(int(np.prod(space.shape))), scale
    if isinstance(space, spaces.Discrete):
        return Discrete(int(space.n)), lambda action: int(space.start) + int(action)
    if isinstance(space, spaces.MultiDiscrete | spaces.MultiBinary):
        binary = isinstance(space, spaces.MultiBinary)
        sizes = np.full(space.shape, 2) if binary else np.asarray(space.nvec)
        start = 0 if binary else np.asarray(space.start)
        total = math.prod(sizes.reshape(-1).tolist())
        if total > MAX_ACTIONS:
            raise UserError(
                f"The action space {space} has {total} combinations; they are learned "
                f"as one choice, of at most {MAX_ACTIONS}. Make the space smaller by a "
                "wrapper."
            )

        def split(action: np.ndarray) -> np.ndarray:
            parts = np.unravel_index(int(action), sizes.reshape(-1))
            return np.asarray(parts).reshape(sizes.shape).astype(space.dtype) + start

        return Discrete(total), split
    raise UserError(
        f"Actions of type {type(space).__name__} are not supported; Box, Discrete, "
        "MultiDiscrete and MultiBinary are. Wrap the environment."
    )


class Probe(NamedTuple):
    """What one look at an environment tells."""

    observation_size: int
    action: Box | Discrete
    horizon: int
    costs: Costs
    limits: tuple[float, ...] | None  # its own, if it has any


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
        action, to_action = action_map(env.action_space)
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
            found = find_costs(env, action, to_action, int(horizon), names)
            costs = found if costs is None else costs
        limits = getattr(base, "cost_limits", None)
        return Probe(
            int(np.prod(flat.shape)),
            action,
            int(horizon),
            costs,
            None if limits is None else tuple(float(v) for v in limits),
        )
    finally:
        env.close()


def find_costs(
    env: Any,
    space: Box | Discrete,
    to_action: Callable[[np.ndarray], Any],
    horizon: int,
    names: Any,
) -> Costs:
    """Play one episode at random until a step shows a cost; refuse if none does."""
    rng = np.random.default_rng(0)
    observation, _ = env.reset(seed=0)
    keys: set[str] = set()
    for t in range(horizon):
        reading, terminated, truncated = take(
            env, observation, to_action(random_action(space, rng)), t
        )
        found = detect(reading, names)
        if found is not None:
            return found
        if np.ndim(reading.reward) > 0 and np.size(reading.reward) > 1:
            raise UserError(
                f"The reward has {np.size(reading.reward)} entries; say which are "
                "costs: costs=VectorReward(reward=0, costs={'name': 1})."
            )
        keys |= set(reading.info)
        observation = reading.next_observation
        if terminated or truncated:
            break
    seen = f"its info has {sorted(keys)}" if keys else "its info is empty"
    raise UserError(
        f"No cost was found in a whole episode of the environment ({seen}); say where "
        f"it is: {WAYS}."
    )


def random_action(space: Box | Discrete, rng: np.random.Generator) -> np.ndarray:
    """A uniform action in the library's form."""
    if isinstance(space, Box):
        return rng.uniform(-1.0, 1.0, space.size).astype(np.float32)
    return np.asarray(rng.integers(space.n, dtype=np.int32))
