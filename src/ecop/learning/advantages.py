"""Finite-horizon returns and advantages: nothing is bootstrapped after step H."""

from __future__ import annotations

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float


def returns_to_go(
    signal: Float[Array, "N H C"], discount: float = 1.0
) -> Float[Array, "N H C"]:
    """Sum of discounted `signal` from each step to the end of the episode."""

    def add(later: Array, now: Array) -> tuple[Array, Array]:
        total = now + discount * later
        return total, total

    steps = jnp.moveaxis(signal, 1, 0)
    sums = lax.scan(add, jnp.zeros_like(steps[0]), steps, reverse=True)[1]
    return jnp.moveaxis(sums, 0, 1)


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
