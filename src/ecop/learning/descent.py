"""Steps of an optimiser, and sweeps over a batch in minibatches of living steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import lax
from jaxtyping import Array, Float

EPSILON = 1e-5  # Adam's
MAX_NORM = 0.5  # of a policy's gradient; a longer one is shortened
ADAM = optax.scale_by_adam(eps=EPSILON)
CLIPPED_ADAM = optax.chain(optax.clip_by_global_norm(MAX_NORM), ADAM)


class Optimiser(NamedTuple):
    """Adam's state, and a step size that may change between iterations."""

    moments: Any
    rate: Array  # []


def start(rule: optax.GradientTransformation, params: Any, rate: float) -> Optimiser:
    """Before the first step."""
    return Optimiser(rule.init(params), jnp.asarray(rate, jnp.float32))


def move(
    rule: optax.GradientTransformation, gradient: Any, params: Any, state: Optimiser
) -> tuple[Any, Optimiser]:
    """One step of the rule, `rate` times as long."""
    updates, moments = apply(rule, gradient, params, state.moments)
    moved = jax.tree.map(lambda p, u: p - state.rate * u, params, updates)
    return moved, Optimiser(moments, state.rate)


def descend(
    optimiser: optax.GradientTransformation, gradient: Any, params: Any, state: Any
) -> tuple[Any, Any]:
    """Return the new parameters and optimiser state."""
    updates, state = apply(optimiser, gradient, params, state)
    return optax.apply_updates(params, updates), state


def apply(
    rule: optax.GradientTransformation, gradient: Any, params: Any, state: Any
) -> tuple[Any, Any]:
    """Updates of a rule; optax relies on JAX's standard type promotion, we do not."""
    with jax.numpy_dtype_promotion("standard"):
        return rule.update(gradient, state, params)


def sweep(
    key: Array,
    alive: Float[Array, " R"],
    size: int,
    carry: Any,
    step: Callable[[Any, Array], tuple[Any, Array]],
) -> tuple[Any, Array]:
    """Go once through the living rows in random order, `size` of them at a time.

    step: (carry, rows [size]) -> (carry, trace [...]); the last rows are filled up with
    the first. Returns the carry and the mean trace.
    """
    size = min(size, alive.size)
    order = jnp.argsort(jnp.where(alive > 0.0, jax.random.uniform(key, alive.shape), 2.0))
    living = jnp.maximum(jnp.sum(alive > 0.0), 1)
    count = -(-living // size)

    def body(i: Array, state: tuple[Any, Array]) -> tuple[Any, Array]:
        carry, total = state
        carry, trace = step(carry, order[(i * size + jnp.arange(size)) % living])
        return carry, total + trace

    shape = jax.eval_shape(step, carry, order[:size])[1]
    zero = jnp.zeros(shape.shape, shape.dtype)
    carry, total = lax.fori_loop(0, count, body, (carry, zero))
    return carry, total / count.astype(jnp.float32)
