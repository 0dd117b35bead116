"""The one seam to simulators: `collect(actors[S], keys[S]) -> Episodes[S, N, H]`.

A JAX environment is mapped over episodes and scanned over time inside the compiled
iteration (`collect_jax`); a host environment is stepped from Python, with one compiled
call per step for the actions of all S x N episodes (`collect_host`). Both draw episode
seeds and action noise from the key in the same way, so a NumPy twin of a JAX task
gives the same episodes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array

from ecop.learning import normaliser
from ecop.learning.networks import Distribution, Policy, with_time
from ecop.types import Episodes, HostEnv, JaxEnv, Limited


class Actor(NamedTuple):
    """What acts: policy parameters and the statistics that normalise its input."""

    params: Any
    normaliser: normaliser.Normaliser


def distribution(
    policy: Policy, actor: Actor, observation: Array, h: Array
) -> Distribution:
    """Action distribution for raw observations [N, O] at step h."""
    x = normaliser.apply(actor.normaliser, observation)
    return policy.at(actor.params, with_time(x, h, policy.spec.horizon), h)


def draws(policy: Policy, key: Array, episodes: int) -> tuple[Array, Array]:
    """Episode seeds [N] uint32 and action noise [H, N, A]."""
    seed_key, noise_key = jax.random.split(key)
    seeds = jax.random.bits(seed_key, (episodes,), jnp.uint32)
    return seeds, policy.noise(noise_key, (policy.spec.horizon, episodes))


def episode_keys(seed: Array, horizon: int) -> tuple[Array, Array]:
    """The reset key and the step keys [H] of an episode of a JAX environment."""
    reset_key, step_key = jax.random.split(jax.random.key(seed))
    return reset_key, jax.random.split(step_key, horizon)


def collect_jax(env: JaxEnv, policy: Policy, episodes: int) -> Callable[..., Episodes]:
    """A pure function (actor, key) -> Episodes[N, H] for one seed."""
    horizon = policy.spec.horizon

    def collect(actor: Actor, key: Array) -> Episodes:
        seeds, noise = draws(policy, key, episodes)
        reset_keys, step_keys = jax.vmap(lambda s: episode_keys(s, horizon))(seeds)

        def step(carry: Any, x: Any) -> tuple[Any, Any]:
            state, observation, alive = carry
            h, noise, keys = x
            actions = distribution(policy, actor, observation, h)
            action = actions.sample(noise)
            log_prob = actions.log_prob(action)
            out = jax.vmap(env.step)(keys, state, action)
            record = (
                observation,
                action,
                log_prob,
                jnp.where(alive > 0.0, out.reward, 0.0),
                jnp.where(alive[:, None] > 0.0, out.costs, 0.0),
                alive,
            )
            alive = alive * (1.0 - out.failed.astype(jnp.float32))
            return (out.state, out.observation, alive), record

        state, observation = jax.vmap(env.reset)(reset_keys)
        carry = (state, observation, jnp.ones(episodes, jnp.float32))
        x = (jnp.arange(horizon), noise, jnp.moveaxis(step_keys, 1, 0))
        (_, _, alive), record = lax.scan(step, carry, x)
        return Episodes(*(jnp.moveaxis(r, 0, 1) for r in record), failed=alive == 0.0)

    return collect


def replay(env: JaxEnv, seed: Array, actions: Array) -> Any:
    """States [H], before each step, of the episode with this seed and these actions."""

    def step(state: Any, x: Any) -> tuple[Any, Any]:
        key, action = x
        return env.step(key, state, action).state, state

    reset_key, step_keys = episode_keys(seed, len(actions))
    return lax.scan(step, env.reset(reset_key)[0], (step_keys, actions))[1]


def waves(env: HostEnv, count: int) -> list[slice]:
    """Cut `count` episodes into parts that `env` can run at once."""
    size = env.capacity if isinstance(env, Limited) else count
    return [slice(i, min(i + size, count)) for i in range(0, count, size)]


def collect_host(
    env: HostEnv, policy: Policy, episodes: int
) -> Callable[[Actor, Array], Episodes]:
    """A function (actors[S], keys[S]) -> Episodes[S, N, H] that steps a simulator."""
    horizon = policy.spec.horizon

    # lax.map, not vmap: a seed then has the same bits alone and beside others.
    @jax.jit
    def prepare(keys: Array) -> tuple[Array, Array]:
        return lax.map(lambda key: draws(policy, key, episodes), keys)

    @jax.jit
    def act(
        actors: Actor, observation: Array, noise: Array, h: Array
    ) -> tuple[Array, Array]:
        def one(x: Any) -> tuple[Array, Array]:
            actor, observation, noise = x
            actions = distribution(policy, actor, observation, h)
            action = actions.sample(noise[h])
            return action, actions.log_prob(action)

        return lax.map(one, (actors, observation, noise))

    def play(
        actors: Actor, seeds: np.ndarray, noise: Array, rows: slice
    ) -> tuple[np.ndarray, ...]:
        """The episodes `rows` of all S x N; the others are padding for `act`."""
        lead = seeds.shape  # [S, N]
        observation = env.reset(seeds.reshape(-1)[rows])
        padded = np.zeros((seeds.size, observation.shape[1]), np.float32)
        alive = np.ones(len(observation), np.float32)
        record = []
        for h in range(horizon):
            padded[rows] = observation
            now = padded.reshape(*lead, -1)
            action, log_prob = (
                np.asarray(part).reshape(seeds.size, *part.shape[2:])[rows]
                for part in act(actors, now, noise, np.int32(h))
            )
            out = env.step(action)
            reward = np.where(alive, out.reward, 0).astype(np.float32)
            costs = np.where(alive[:, None], out.costs, 0).astype(np.float32)
            record.append((padded[rows].copy(), action, log_prob, reward, costs, alive))
            alive = alive * (1.0 - out.failed.astype(np.float32))
            observation = out.observation
        stacked = (np.stack(part, axis=1) for part in zip(*record, strict=True))
        return *stacked, alive == 0.0

    def collect(actors: Actor, keys: Array) -> Episodes:
        seeds, noise = prepare(keys)
        seeds = np.asarray(seeds)
        parts = [play(actors, seeds, noise, rows) for rows in waves(env, seeds.size)]
        whole = (np.concatenate(part) for part in zip(*parts, strict=True))
        return Episodes(
            *(jnp.asarray(x.reshape(*seeds.shape, *x.shape[1:])) for x in whole)
        )

    return collect


def collector(
    env: JaxEnv | HostEnv, policy: Policy, episodes: int
) -> Callable[[Actor, Array], Episodes]:
    """The seam for either kind: (actors[S], keys[S]) -> Episodes[S, N, H]."""
    if isinstance(env, HostEnv):
        return collect_host(env, policy, episodes)
    collect = collect_jax(env, policy, episodes)
    return jax.jit(lambda actors, keys: lax.map(lambda x: collect(*x), (actors, keys)))
