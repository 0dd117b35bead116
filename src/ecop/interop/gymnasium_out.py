"""Our JAX tasks as Gymnasium environments: one episode, a batch, or with 6-tuples.

An episode with seed s is the very one the learner collects for that seed. A step is one
compiled call, and one array comes back: [observation, reward, costs, failed].
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec
from gymnasium.error import ResetNeeded
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from jax import lax

from ecop.envs import make
from ecop.errors import UserError
from ecop.rollout import episode_keys
from ecop.types import Box, HostTask, JaxEnv, MultiDiscrete, Spec, Step


class Episode(NamedTuple):
    """An episode under way."""

    state: Any  # the task's
    keys: jax.Array  # [H, 2] one per step, as plain words: quicker to pass
    h: jax.Array  # [] int32
    done: jax.Array  # [] bool


class Programs(NamedTuple):
    """A task and its compiled functions, shared by all its environments."""

    spec: Spec
    reset: Callable[..., Any]  # seed -> episode, packed
    step: Callable[..., Any]  # episode, action -> episode, packed
    reset_all: Callable[..., Any]  # seeds [N] -> episodes, packed [N]
    step_all: Callable[..., Any]  # episodes, actions, seeds -> episodes, packed [N]


def programs(name: str, options: dict[str, Any]) -> Programs:
    """Compile a task's functions, or find those compiled before."""
    try:
        return _programs(name, tuple(sorted(options.items())))
    except TypeError as error:
        if "unhashable" not in str(error):
            raise
        return _programs.__wrapped__(name, tuple(options.items()))


@functools.lru_cache(maxsize=32)
def _programs(name: str, options: tuple[tuple[str, Any], ...]) -> Programs:
    env: JaxEnv = make(name, **dict(options))
    if isinstance(env, HostTask):
        raise UserError(
            f"'{name}' is stepped on the host; make_gymnasium is for JAX tasks."
        )
    horizon, count = env.spec.horizon, len(env.spec.constraints)

    def reset(seed: jax.Array) -> tuple[Episode, jax.Array]:
        reset_key, keys = episode_keys(seed, horizon)
        state, observation = env.reset(reset_key)
        data = jax.random.key_data(keys)
        episode = Episode(state, data, jnp.int32(0), jnp.zeros((), bool))
        return episode, jnp.pad(observation, (0, 2 + count))

    def step(episode: Episode, action: jax.Array) -> tuple[Episode, jax.Array]:
        key = jax.random.wrap_key_data(episode.keys[episode.h])
        out: Step = env.step(key, episode.state, action)
        h = episode.h + jnp.int32(1)
        done = out.failed | (h == horizon)
        failed = out.failed.astype(jnp.float32)
        packed = (out.observation, out.reward[None], out.costs, failed[None])
        return Episode(out.state, episode.keys, h, done), jnp.concatenate(packed)

    def step_all(
        episodes: Episode, actions: jax.Array, seeds: jax.Array
    ) -> tuple[Episode, jax.Array]:
        stepped = jax.vmap(step)(episodes, actions)

        def fresh() -> tuple[Episode, jax.Array]:
            started = jax.vmap(reset)(seeds)

            def pick(new: jax.Array, old: jax.Array) -> jax.Array:
                shape = (-1,) + (1,) * (new.ndim - 1)
                return jnp.where(episodes.done.reshape(shape), new, old)

            return jax.tree.map(pick, started, stepped)

        return lax.cond(episodes.done.any(), fresh, lambda: stepped)

    return Programs(
        env.spec,
        jax.jit(reset),
        jax.jit(step),
        jax.jit(jax.vmap(reset)),
        jax.jit(step_all),
    )


def spaces_of(spec: Spec) -> tuple[spaces.Box, spaces.Space]:
    """Gymnasium's observation and action space of a task."""
    # Finite because Gymnasium's checker warns of infinite bounds.
    top = float(np.finfo(np.float32).max)
    observation = spaces.Box(-top, top, (spec.observation_size,), np.float32)
    if isinstance(spec.action, Box):
        return observation, spaces.Box(-1.0, 1.0, (spec.action.size,), np.float32)
    if isinstance(spec.action, MultiDiscrete):
        return observation, spaces.MultiDiscrete(list(spec.action.sizes))
    return observation, spaces.Discrete(spec.action.n)


def as_action(spec: Spec, action: Any) -> np.ndarray:
    """An action of either kind in the type the compiled step takes."""
    kind = np.float32 if isinstance(spec.action, Box) else np.int32
    return np.asarray(action, kind)


class Unpacked(NamedTuple):
    """The parts of a packed result, for one episode or a batch."""

    observation: np.ndarray
    reward: np.ndarray
    costs: np.ndarray
    failed: np.ndarray


def unpack(spec: Spec, packed: jax.Array) -> Unpacked:
    """Copy a packed result to the host and take it apart."""
    data = np.array(packed)
    size = spec.observation_size
    return Unpacked(
        data[..., :size], data[..., size], data[..., size + 1 : -1], data[..., -1] > 0
    )


class TaskEnv(gymnasium.Env):
    """One episode at a time; truncated at the horizon, terminated on a failure.

    `reset(seed=s)` starts the learner's episode of seed s; without a seed the next one
    is drawn from the environment's generator.
    """

    metadata = {"render_modes": []}  # noqa: RUF012

    def __init__(
        self, name: str, *, render_mode: str | None = None, **options: Any
    ) -> None:
        self.render_mode = render_mode
        self._programs = programs(name, options)
        spec = self._programs.spec
        self._spec = spec
        self._episode: Episode | None = None
        self._h = 0
        self.observation_space, self.action_space = spaces_of(spec)
        self.cost_names = spec.cost_names
        self.cost_limits = np.asarray(spec.limits, np.float64)
        self.cost_bounds = np.asarray([c.bound for c in spec.constraints], np.float64)
        self.horizon = spec.horizon
        self._cost_keys = [f"cost_{name}" for name in spec.cost_names]
        self.spec = EnvSpec(
            f"ecop/{name}-v0",
            "ecop.interop.gymnasium_out:TaskEnv",
            max_episode_steps=spec.horizon,
            kwargs={"name": name, **options},
        )

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Start an episode."""
        super().reset(seed=seed)
        number = self.np_random.integers(2**32) if seed is None else seed % 2**32
        self._episode, packed = self._programs.reset(np.uint32(number))
        self._h = 0
        return unpack(self._spec, packed).observation, {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Take one step."""
        if self._episode is None:
            raise ResetNeeded("The episode is over or none was started: call reset().")
        self._episode, packed = self._programs.step(
            self._episode, as_action(self._spec, action)
        )
        out = unpack(self._spec, packed)
        self._h += 1
        terminated, truncated = bool(out.failed), self._h == self.horizon
        if terminated or truncated:
            self._episode = None
        costs = out.costs.tolist()
        info = dict(zip(self._cost_keys, costs, strict=True))
        info |= {"cost": sum(costs), "costs": out.costs}
        return out.observation, float(out.reward), terminated, truncated, info


class TaskVectorEnv(VectorEnv):
    """N episodes as one JAX batch; a finished one starts anew at the next step."""

    metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}  # noqa: RUF012

    def __init__(self, name: str, num_envs: int, **options: Any) -> None:
        if num_envs < 1:
            raise UserError(f"num_envs must be at least 1, not {num_envs}.")
        self._programs = programs(name, options)
        spec = self._programs.spec
        self._spec = spec
        self._episodes: Episode | None = None
        self._h = np.zeros(num_envs, np.int64)
        self._done = np.zeros(num_envs, bool)
        self.num_envs = num_envs
        self.single_observation_space, self.single_action_space = spaces_of(spec)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.cost_names = spec.cost_names
        self.cost_limits = np.asarray(spec.limits, np.float64)
        self.cost_bounds = np.asarray([c.bound for c in spec.constraints], np.float64)
        self.horizon = spec.horizon

    def reset(
        self,
        *,
        seed: int | list[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Start all episodes; an integer seed s gives them the seeds s, s + 1, ..."""
        first = seed[0] if isinstance(seed, list) and seed else seed
        super().reset(seed=first if isinstance(first, int) else None)
        seeds = self._draw()
        if isinstance(seed, int):
            seeds = ((seed + np.arange(self.num_envs)) % 2**32).astype(np.uint32)
        elif seed is not None:
            given = zip(seed, seeds.tolist(), strict=True)
            seeds = np.array([d if s is None else s % 2**32 for s, d in given], "u4")
        self._episodes, packed = self._programs.reset_all(seeds)
        self._h[:] = 0
        self._done[:] = False
        return unpack(self._spec, packed).observation, {}

    def step(
        self, actions: Any
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Take one step in every episode, or start the next one where it is over."""
        if self._episodes is None:
            raise ResetNeeded("No episode was started: call reset().")
        seeds = self._draw() if self._done.any() else np.zeros(self.num_envs, "u4")
        self._episodes, packed = self._programs.step_all(
            self._episodes, as_action(self._spec, actions), seeds
        )
        out = unpack(self._spec, packed)
        self._h = np.where(self._done, 0, self._h + 1)
        truncated = self._h == self.horizon
        self._done = truncated | out.failed
        values = {"cost": out.costs.sum(axis=1), "costs": out.costs}
        for i, name in enumerate(self.cost_names):
            values[f"cost_{name}"] = out.costs[:, i]
        present = {f"_{key}": np.ones(self.num_envs, bool) for key in values}
        return out.observation, out.reward, out.failed, truncated, values | present

    def _draw(self) -> np.ndarray:
        return self.np_random.integers(2**32, size=self.num_envs, dtype=np.uint32)


class SixTuple(gymnasium.Wrapper):
    """Safety-Gymnasium's form: obs, reward, cost, terminated, truncated, info."""

    def step(self, action: Any) -> Any:
        """Take one step; the cost is `info["cost"]`."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        return observation, reward, info["cost"], terminated, truncated, info
