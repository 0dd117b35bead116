"""The backward pass of Algorithm 2: gradient steps for t = H..1, each over h >= t.

With `backward_steps` T below H a gradient step stands for a block of time steps; T = 1
is one step over whole episodes. Shared parameters descend the sum over the suffix
h >= t. Parameters of their own (`per_step`) change in block t alone, given the later
blocks, whose cost surrogate is then a number: O(H) for the whole pass.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from jaxtyping import Array

from ecop.errors import UserError
from ecop.learning.descent import CLIPPED_ADAM, descend
from ecop.learning.minibatch import (
    Descended,
    Descent,
    Optimiser,
    scheduled,
    select_episodes,
    settled,
    stepwise,
)
from ecop.learning.networks import Distribution, Policy
from ecop.types import Batch

SEGMENTS = 4  # a shared pass is compiled for this many lengths of suffix

# (distribution, part, late [K]) -> L_t [] and L_C,t [C] over the steps K of the part
# that are late enough.
Terms = Callable[[Distribution, Batch, Array], tuple[Array, Array]]
Total = Callable[[Array, Array], Array]  # (L_t [], L_C,t [C]) -> the loss []


def pass_steps(backward_steps: int, horizon: int) -> int:
    """Gradient steps of one pass; 0 asks for H, the literal pass."""
    return min(backward_steps or horizon, horizon)


def init_backward(
    policy: Policy, params: Any, backward_steps: int, options: Descent
) -> Any:
    """The optimiser's first state."""
    remembers = policy.encoder is not None and policy.encoder.remembers
    if remembers and backward_steps != 1:
        raise UserError(
            "A memory begins with the episode, and backward steps begin later: "
            "network='gru' needs backward_steps=1."
        )
    if policy.form != "per_step" or backward_steps == 1:
        return options.init(params)
    horizon = policy.spec.horizon
    steps = pass_steps(backward_steps, horizon)
    if horizon % steps:
        raise UserError(
            f"With policy 'per_step' the horizon ({horizon}) must be a multiple of "
            f"backward_steps ({steps})."
        )
    moments = jax.vmap(CLIPPED_ADAM.init)(in_blocks(params, steps))
    return options.init(params)._replace(moments=moments)


def backward_descent(
    key: Array,
    policy: Policy,
    params: Any,
    optimiser: Optimiser,
    batch: Batch,
    terms: Terms,
    total: Total,
    backward_steps: int,
    options: Descent,
) -> Descended:
    """Run the passes of one iteration: as many as `options` has epochs."""
    run = per_step_pass if policy.form == "per_step" else shared_pass
    steps = pass_steps(backward_steps, policy.spec.horizon)
    size = -(-len(batch.alive) // options.minibatches)

    rate = scheduled(optimiser, batch)

    def one_pass(carry: Any, key: Array) -> tuple[Any, Any]:
        return run(key, policy, carry, batch, terms, total, steps, size, rate)

    keys = jax.random.split(key, options.epochs)
    (after, moments), (losses, norms) = lax.scan(
        one_pass, (params, optimiser.moments), keys
    )
    info = {"loss": jnp.mean(losses), "gradient_norm": jnp.mean(norms)}
    optimiser = optimiser._replace(moments=moments)
    return settled(policy, params, after, optimiser, batch, options, info)


def shared_pass(
    key: Array,
    policy: Policy,
    carry: Any,
    batch: Batch,
    terms: Terms,
    total: Total,
    steps: int,
    size: int,
    rate: Array,
) -> tuple[Any, tuple[Array, Array]]:
    """Go t = H..1 with one set of parameters: step t descends the suffix h >= t."""
    episodes, length = batch.alive.shape
    starts = np.arange(steps) * policy.spec.horizon / steps
    starts = np.round(starts).astype(np.int32)
    draws = draw_episodes(key, episodes, steps, size)
    traces = []
    # The steps of a group share one compiled length of suffix, that of the first.
    for group in np.array_split(np.arange(steps), min(SEGMENTS, steps))[::-1]:
        # Of a batch cut short (rollout.py) the suffix may be dead.
        first = min(int(starts[group[0]]), length - 1)
        suffix = select_late(batch, slice(first, None))
        h = jnp.arange(first, length)

        def step(
            carry: Any, x: Any, suffix: Batch = suffix, h: Array = h
        ) -> tuple[Any, tuple[Array, Array]]:
            params, moments = carry
            start, draw = x
            part = suffix if draw is None else select_episodes(suffix, draw)
            late = (h >= start).astype(jnp.float32)

            def objective(params: Any) -> Array:
                return total(*terms(policy.over(params, part.observation), part, late))

            loss, gradient = jax.value_and_grad(objective)(params)
            carry = descend(CLIPPED_ADAM, gradient, params, moments, rate)
            return carry, (loss, optax.tree.norm(gradient))

        rows = None if draws is None else draws[group]
        x = (jnp.asarray(starts[group]), rows)
        carry, trace = lax.scan(step, carry, x, reverse=True)
        traces.append(trace)
    losses, norms = (jnp.concatenate(trace) for trace in zip(*traces, strict=True))
    return carry, (losses, norms)


def per_step_pass(
    key: Array,
    policy: Policy,
    carry: Any,
    batch: Batch,
    terms: Terms,
    total: Total,
    steps: int,
    size: int,
    rate: Array,
) -> tuple[Any, tuple[Array, Array]]:
    """Go t = H..1 with parameters of their own: step t changes block t alone."""
    params, moments = carry
    episodes, horizon = batch.alive.shape
    shape = (episodes, steps, horizon // steps)
    blocks = {
        name: jnp.moveaxis(leaf.reshape(*shape, *leaf.shape[2:]), 1, 0)
        for name, leaf in stepwise(batch).items()
    }
    late = jnp.ones(horizon // steps, jnp.float32)

    def step(later: Array, x: Any) -> tuple[Array, Any]:
        params, moments, block, draw = x
        whole = batch._replace(**block)
        part = whole if draw is None else select_episodes(whole, draw)

        def objective(params: Any) -> Array:
            loss, cost = terms(policy.over(params, part.observation), part, late)
            return total(loss, later + cost)

        loss, gradient = jax.value_and_grad(objective)(params)
        params, moments = descend(CLIPPED_ADAM, gradient, params, moments, rate)
        _, cost = terms(policy.over(params, whole.observation), whole, late)
        trace = (loss, optax.tree.norm(gradient))
        return later + cost, ((params, moments), trace)

    draws = draw_episodes(key, episodes, steps, size)
    x = (in_blocks(params, steps), moments, blocks, draws)
    later = jnp.zeros_like(batch.violation)
    _, ((params, moments), trace) = lax.scan(step, later, x, reverse=True)
    params = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), params)
    return (params, moments), trace


def draw_episodes(key: Array, episodes: int, steps: int, size: int) -> Array | None:
    """Episodes [T, E] of each gradient step, from fresh permutations; None for all."""
    if size >= episodes:
        return None
    rounds = -(-steps * size // episodes)
    keys = jax.random.split(key, rounds)
    order = jax.vmap(lambda k: jax.random.permutation(k, episodes))(keys)
    return order.reshape(-1)[: steps * size].reshape(steps, size)


def in_blocks(params: Any, steps: int) -> Any:
    """Split the leading axis H of per-step parameters into [T, H/T]."""
    return jax.tree.map(lambda leaf: leaf.reshape(steps, -1, *leaf.shape[1:]), params)


def select_late(batch: Batch, steps: slice) -> Batch:
    """Return the batch with only `steps` of every episode."""
    return batch._replace(**{k: leaf[:, steps] for k, leaf in stepwise(batch).items()})
