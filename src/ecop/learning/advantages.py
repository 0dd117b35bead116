"""Finite-horizon returns and advantages: nothing is bootstrapped after step H.

Both are weighted sums over later steps, written as products with an [H, H] triangle:
one matrix product instead of a loop over time.
"""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float


def triangle(horizon: int, decay: float) -> Float[Array, "H H"]:
    """W[h, g] = decay^(g - h) for g >= h, else 0."""
    gap = jnp.arange(horizon)[None, :] - jnp.arange(horizon)[:, None]
    power = jnp.float32(decay) ** jnp.maximum(gap, 0).astype(jnp.float32)
    return jnp.where(gap >= 0, power, 0.0)


def returns_to_go(
    signal: Float[Array, "N H C"], discount: float = 1.0
) -> Float[Array, "N H C"]:
    """Sum of discounted `signal` from each step to the end of the episode."""
    return jnp.einsum("hg,ngc->nhc", triangle(signal.shape[1], discount), signal)


def gae(
    signal: Float[Array, "N H C"],
    value: Float[Array, "N H C"],
    alive: Float[Array, "N H"],
    *,
    discount: float = 1.0,
    decay: float = 0.95,
) -> Float[Array, "N H C"]:
    """Generalised advantages of `signal` (rewards or costs) with critic `value`.

    A_h = sum_{g >= h} (discount decay)^(g-h) (signal_g + discount V_{g+1} - V_g) with
    V = 0 after the horizon and after a failure. decay = 1 is Monte Carlo: the return
    to go minus the value.
    """
    value = value * alive[..., None]
    following = jnp.concatenate([value[:, 1:], jnp.zeros_like(value[:, :1])], axis=1)
    delta = signal + discount * following - value
    advantage = returns_to_go(delta, discount * decay)
    return advantage * alive[..., None]
