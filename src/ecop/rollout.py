"""The one seam to simulators: from policies and keys to whole episodes [N, H].

A JAX environment is mapped over episodes and scanned over time inside the compiled
iteration (`collect_jax`); a host task gets all episodes of all seeds at once, with
their seeds, their noise and the policies as plain arrays, and NumPy acts
(`collect_host`). Both draw episode seeds and action noise from the key in the same way,
so a NumPy twin of a JAX task gives the same episodes, up to rounding.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array

from ecop.learning import normaliser
from ecop.learning.networks import Distribution, Policy, with_time
from ecop.simulators.acting import act_together, forgotten, product
from ecop.types import (
    Box,
    Episodes,
    HostEnv,
    HostPolicy,
    HostTask,
    JaxEnv,
    MultiDiscrete,
    Part,
    Playing,
    Record,
)

DRAWN = 16  # episodes per call of the host's draws: one program for any number of them


class Actor(NamedTuple):
    """What acts: policy parameters and the statistics that normalise its input."""

    params: Any
    normaliser: normaliser.Normaliser


def distribution(
    policy: Policy, actor: Actor, observation: Array, h: Array
) -> Distribution:
    """Action distribution for raw observations [N, O] at step h.

    Of a policy with a memory `recall` tells more than the first step's.
    """
    memory = policy.network.start(len(observation))
    return react(policy, actor, observation, h, memory)[0]


def react(
    policy: Policy, actor: Actor, observation: Array, h: Array, memory: Any
) -> tuple[Distribution, Any]:
    """Action distribution at step h, and what is remembered after it."""
    x = normaliser.apply(actor.normaliser, observation)
    return policy.at(actor.params, with_time(x, h, policy.spec.horizon), h, memory)


def recall(policy: Policy, actor: Actor, history: Array) -> Distribution:
    """Action distribution [1, K] of one episode for raw observations [K, O] so far."""
    x = normaliser.apply(actor.normaliser, history[None])
    steps = jnp.arange(len(history))
    return policy.over(actor.params, with_time(x, steps, policy.spec.horizon))


def draws(
    policy: Policy, key: Array, numbers: Array, *, deterministic: bool = False
) -> tuple[Array, Array]:
    """Seeds [N] uint32 and action noise [N, H, A] of the episodes of these numbers.

    deterministic: no noise, which makes the most likely actions of both kinds
    """

    def draw(number: Array) -> tuple[Array, Array]:
        seed_key, noise_key = jax.random.split(jax.random.fold_in(key, number))
        seed = jax.random.bits(seed_key, (), jnp.uint32)
        noise = policy.noise(noise_key, (policy.spec.horizon,))
        return seed, jnp.zeros_like(noise) if deterministic else noise

    return jax.vmap(draw)(numbers)


def episode_keys(seed: Array, horizon: int) -> tuple[Array, Array]:
    """The reset key and the step keys [H] of an episode of a JAX environment."""
    reset_key, step_key = jax.random.split(jax.random.key(seed))
    return reset_key, jax.random.split(step_key, horizon)


def collect_jax(
    env: JaxEnv, policy: Policy, episodes: int, *, deterministic: bool = False
) -> Callable[..., Episodes]:
    """A pure function (actor, key) -> Episodes[N, H] for one seed."""
    horizon = policy.spec.horizon

    def collect(actor: Actor, key: Array) -> Episodes:
        seeds, noise = draws(
            policy, key, jnp.arange(episodes), deterministic=deterministic
        )
        reset_keys, step_keys = jax.vmap(lambda s: episode_keys(s, horizon))(seeds)

        def step(carry: Any, x: Any) -> tuple[Any, Any]:
            state, observation, alive, memory = carry
            h, noise, keys = x
            actions, memory = react(policy, actor, observation, h, memory)
            action = actions.sample(noise)
            out = jax.vmap(env.step)(keys, state, action)
            record = (
                observation,
                action,
                jnp.where(alive > 0.0, out.reward, 0.0),
                jnp.where(alive[:, None] > 0.0, out.costs, 0.0),
                alive,
            )
            alive = alive * (1.0 - out.failed.astype(jnp.float32))
            return (out.state, out.observation, alive, memory), record

        state, observation = jax.vmap(env.reset)(reset_keys)
        memory = policy.network.start(episodes)
        carry = (state, observation, jnp.ones(episodes, jnp.float32), memory)
        noise, step_keys = (jnp.moveaxis(x, 1, 0) for x in (noise, step_keys))
        x = (jnp.arange(horizon), noise, step_keys)
        (_, _, alive, _), record = lax.scan(step, carry, x)
        return Episodes(*(jnp.moveaxis(r, 0, 1) for r in record), failed=alive == 0.0)

    return collect


def replay(env: JaxEnv, seed: Array, actions: Array) -> Any:
    """States [H], before each step, of the episode with this seed and these actions."""

    def step(state: Any, x: Any) -> tuple[Any, Any]:
        key, action = x
        return env.step(key, state, action).state, state

    reset_key, step_keys = episode_keys(seed, len(actions))
    return lax.scan(step, env.reset(reset_key)[0], (step_keys, actions))[1]


def collect_host(
    env: HostTask, policy: Policy, *, deterministic: bool = False
) -> Callable[..., list[Episodes]]:
    """A function (actors, keys, counts, later=()) -> Episodes[count, H] of each seed.

    The episodes of all seeds are played together. An episode's bits depend neither on
    the others nor on the process it is played in. `later` are the keys of the batch
    that comes next: simulators that have nothing left to play are reset for it.
    """
    playing = env if isinstance(env, Playing) else None
    draw = jax.jit(functools.partial(draws, policy, deterministic=deterministic))
    first_seeds = jax.jit(lambda *x: draws(policy, *x)[0])  # without the noise
    export = exporter(policy)

    def collect(
        actors: list[Actor],
        keys: list[Array],
        counts: list[int],
        later: Sequence[Array] = (),
    ) -> list[Episodes]:
        policies, parts = [], []
        for s, (actor, key, count) in enumerate(zip(actors, keys, counts, strict=True)):
            plain, spread = export(actor)
            policies.append(plain)
            for first in range(0, count, DRAWN):
                seeds, noise = draw(key, np.arange(first, first + DRAWN))
                pairs = zip(
                    np.asarray(seeds).tolist(), np.asarray(noise) * spread, strict=True
                )
                rows = itertools.islice(pairs, count - first)
                parts += [Part(seed, s, noise) for seed, noise in rows]
        if playing is None:
            records = iter(play_batch(cast(HostEnv, env), policies, parts))
        else:
            ahead = [
                seed
                for key, count in zip(later, counts, strict=False)
                for seed in np.asarray(first_seeds(key, np.arange(DRAWN)))[:count]
            ]
            records = iter(playing.play(policies, parts, list(map(int, ahead))))
        return [
            together(policy, list(itertools.islice(records, count))) for count in counts
        ]

    return collect


def exporter(
    policy: Policy,
) -> Callable[[Actor], tuple[HostPolicy, np.ndarray | np.float32]]:
    """A function that gives an actor as plain arrays, and what scales its noise.

    What does not depend on the observation is computed here: the share of the time in
    the first layer and its gate; a log std that the policy predicts starts from its
    bias.
    """
    spec = policy.spec
    size, horizon = policy.network.width, spec.horizon
    blank = jnp.zeros((horizon, 0), jnp.float32)
    times = np.asarray(with_time(blank, jnp.arange(horizon), horizon))
    scale = jax.jit(normaliser.scale)

    def export(actor: Actor) -> tuple[HostPolicy, np.ndarray | np.float32]:
        params = jax.tree.map(np.asarray, actor.params)
        layers, filters, recurrent = params["mlp"], (), ()
        if policy.encoder is not None:
            encoder, layers = layers["encoder"], layers["layers"]
            if policy.encoder.remembers:
                recurrent = as_recurrent(encoder)
            else:
                filters = tuple(as_filter(x) for x in encoder)
        if policy.form != "per_step":
            layers = jax.tree.map(lambda leaf: leaf[None], layers)
        weights = [layer["w"] for layer in layers]
        biases = [layer["b"] for layer in layers]
        if policy.form == "time":
            shift = product(times[:, None], weights[0][0, size:])[:, 0]
            weights[0], biases[0] = weights[0][:, :size], biases[0] + shift
        gate = np.ones((1, 0), np.float32)
        if "g" in layers[0]:
            gate = 1.0 + product(times[:, None], layers[0]["g"][0])[:, 0]
        head, spread = "choice", np.float32(1.0)
        if isinstance(spec.action, Box) and policy.std == "shared":
            head, spread = "normal", np.exp(params["log_std"])
        elif isinstance(spec.action, Box):
            head, log_std = "spread", np.atleast_2d(params["log_std"])
            biases[-1] = biases[-1] + np.pad(log_std, ((0, 0), (spec.action.size, 0)))
        plain = HostPolicy(
            np.asarray(actor.normaliser.mean),
            np.asarray(scale(actor.normaliser)),
            tuple(np.ascontiguousarray(weight) for weight in weights),
            tuple(biases),
            gate,
            head,
            spec.image or (),
            filters,
            spec.action.sizes if isinstance(spec.action, MultiDiscrete) else (),
            recurrent,
        )
        return plain, spread

    return export


def as_filter(layer: dict[str, np.ndarray]) -> np.ndarray:
    """A convolution as one matrix [1, 9 I + 1, J]: its weights, then its bias."""
    bias = layer["b"]
    return np.concatenate([layer["w"].reshape(-1, len(bias)), bias[None]])[None]


def as_recurrent(params: dict[str, np.ndarray]) -> tuple[np.ndarray, ...]:
    """A memory as two matrices: [1, I + 1, 3 U], its bias last, and [1, U, 3 U]."""
    return np.concatenate([params["w"], params["b"][None]])[None], params["u"][None]


def play_batch(
    env: HostEnv, policies: list[HostPolicy], parts: list[Part]
) -> list[Record]:
    """Play all parts at once, step by step, until the last one has ended."""
    horizon = env.spec.horizon
    groups = []
    for number, group in itertools.groupby(parts, lambda part: part.policy):
        policy, noise = policies[number], np.stack([part.noise for part in group])
        groups.append((policy, noise, forgotten(policy, len(noise))))
    cuts = np.cumsum([len(noise) for _, noise, _ in groups])[:-1]
    observation = env.reset(np.array([part.seed for part in parts], np.uint32))
    failed = np.zeros(len(parts), bool)
    length = np.zeros(len(parts), int)
    steps = []
    for h in range(horizon):
        seen = np.array(observation, np.float32)
        action = np.concatenate(
            [
                act_together(policy, rows, h, noise[:, h], memory)
                for (policy, noise, memory), rows in zip(
                    groups, np.split(seen, cuts), strict=True
                )
            ]
        )
        out = env.step(action)
        steps.append((seen, action, np.array(out.reward), np.array(out.costs)))
        length += ~failed
        failed |= out.failed
        observation = out.observation
        if failed.all():
            break
    whole = [np.stack(part, axis=1) for part in zip(*steps, strict=True)]
    return [
        Record(*(part[n, : length[n]] for part in whole), ended=int(failed[n]))
        for n in range(len(parts))
    ]


SHORTEST = 64  # steps; lengths of a batch are this times powers of four, or H


def together(policy: Policy, records: list[Record]) -> Episodes:
    """Records of one seed as Episodes[N, K], zero where dead.

    Steps that no episode has lived are left out: few lengths, few programs.
    """
    horizon, length = policy.spec.horizon, SHORTEST
    longest = max(len(record.reward) for record in records)
    while length < (horizon if policy.form == "per_step" else longest):
        length *= 4
    shape = len(records), min(length, horizon)
    parts = [np.zeros((*shape, *x.shape[1:]), x.dtype) for x in records[0][:4]]
    alive = np.zeros(shape, np.float32)
    for n, record in enumerate(records):
        steps = len(record.reward)
        alive[n, :steps] = 1.0
        for part, rows in zip(parts, record[:4], strict=True):
            part[n, :steps] = rows
    failed = np.array([record.ended > 0 for record in records])
    observation, action, reward, costs = parts
    reward, costs = (x.astype(np.float32) for x in (reward, costs))
    arrays = (observation, action, reward, costs, alive, failed)
    return Episodes(*(jnp.asarray(x) for x in arrays))


def lengthened(episodes: Episodes, length: int) -> Episodes:
    """The same episodes with dead steps at their end."""
    more = length - episodes.alive.shape[1]

    def pad(x: Array) -> Array:
        steps = [(0, 0), (0, more)] + [(0, 0)] * (x.ndim - 2)
        return jnp.pad(x, steps) if x.ndim > 1 else x

    return Episodes(*(pad(x) for x in episodes))


def collector(
    env: JaxEnv | HostTask,
    policy: Policy,
    episodes: int,
    *,
    deterministic: bool = False,
) -> Callable[[Actor, Array], Episodes]:
    """The seam for either kind: (actors[S], keys[S]) -> Episodes[S, N, H].

    deterministic: the most likely actions in place of drawn ones
    """
    if not isinstance(env, HostTask):
        collect = collect_jax(env, policy, episodes, deterministic=deterministic)
        return jax.jit(lambda *x: lax.map(lambda x: collect(*x), x))
    play = collect_host(env, policy, deterministic=deterministic)

    def collect_all(actors: Actor, keys: Array) -> Episodes:
        count = len(keys)
        each = [jax.tree.map(lambda x, s=s: x[s], actors) for s in range(count)]
        seeds = play(each, list(keys), [episodes] * count)
        length = max(part.alive.shape[1] for part in seeds)
        longer = [lengthened(part, length) for part in seeds]
        return jax.tree.map(lambda *x: jnp.stack(x), *longer)

    return collect_all
