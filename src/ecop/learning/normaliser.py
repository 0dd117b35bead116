"""Running mean and variance of observations: part of the training state."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

CLIP = 10.0


class Normaliser(NamedTuple):
    """Count, mean and sum of squared deviations of every step seen so far."""

    count: Array  # []
    mean: Array  # [O]
    square: Array  # [O]


def init(size: int) -> Normaliser:
    """Statistics of nothing: `apply` then only clips."""
    return Normaliser(
        count=jnp.zeros((), jnp.float32),
        mean=jnp.zeros(size, jnp.float32),
        square=jnp.zeros(size, jnp.float32),
    )


def scale(state: Normaliser) -> Array:
    """Factors [O] that give each entry unit variance."""
    variance = jnp.where(
        state.count > 1.0, state.square / jnp.maximum(state.count, 1.0), 1.0
    )
    # An entry that hardly varies is left in its own unit instead of being blown up.
    return jnp.where(variance > 1e-8, 1.0 / jnp.sqrt(variance + 1e-8), 1.0)


def apply(state: Normaliser, observation: Float[Array, "*rows O"]) -> Array:
    """Centre, scale to unit variance, clip to +-10."""
    shape = observation.shape
    z = (observation - jnp.broadcast_to(state.mean, shape)) * jnp.broadcast_to(
        scale(state), shape
    )
    return jnp.clip(z, -CLIP, CLIP)


def update(
    state: Normaliser,
    observation: Float[Array, "N H O"],
    alive: Float[Array, "N H"],
) -> Normaliser:
    """Merge the living steps of a batch (Chan's parallel variance)."""
    weight = alive[..., None]
    count = jnp.sum(alive)
    mean = jnp.sum(weight * observation, axis=(0, 1)) / jnp.maximum(count, 1.0)
    square = jnp.sum(weight * (observation - mean[None, None]) ** 2, axis=(0, 1))
    total = state.count + count
    gap = mean - state.mean
    share = count / jnp.maximum(total, 1.0)
    return Normaliser(
        count=total,
        mean=state.mean + gap * share,
        square=state.square + square + gap**2 * state.count * share,
    )
