"""Importance ratios and the clipped, pessimistic surrogates of PPO's family."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float


def ratio(
    log_prob: Float[Array, "N K"], old_log_prob: Float[Array, "N K"]
) -> Float[Array, "N K"]:
    """pi_theta(a|s,h) / pi_old(a|s,h)."""
    return jnp.exp(log_prob - old_log_prob)


def clipped_gain(
    ratio: Float[Array, "N K"], adv: Float[Array, "N K"], clip: float
) -> Float[Array, "N K"]:
    """min(ratio A, clip(ratio) A): the pessimistic value of a gain."""
    bounded = jnp.clip(ratio, 1.0 - clip, 1.0 + clip)
    return jnp.minimum(ratio * adv, bounded * adv)


def clipped_cost(
    ratio: Float[Array, "N K"], cost_adv: Float[Array, "N K C"], clip: float
) -> Float[Array, "N K C"]:
    """max(ratio A_C, clip(ratio) A_C): the pessimistic value of a cost (erratum 1)."""
    bounded = jnp.clip(ratio, 1.0 - clip, 1.0 + clip)
    return jnp.maximum(ratio[..., None] * cost_adv, bounded[..., None] * cost_adv)


def moments(
    x: Float[Array, "N H C"], alive: Float[Array, "N H"]
) -> tuple[Float[Array, " C"], Float[Array, " C"]]:
    """Mean and standard deviation over the living steps."""
    weight = alive[..., None] / jnp.maximum(jnp.sum(alive), 1.0)
    mean = jnp.sum(weight * x, axis=(0, 1))
    variance = jnp.sum(weight * (x - mean[None, None]) ** 2, axis=(0, 1))
    return mean, jnp.sqrt(variance)
