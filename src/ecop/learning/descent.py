"""Steps of an optimiser, and sweeps over a batch in minibatches of living steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax import lax
from jaxtyping import Array, Float

ADAM = optax.scale_by_adam(eps=1e-5)
CLIPPED_ADAM = optax.chain(optax.clip_by_global_norm(0.5), ADAM)


def descend(
    rule: optax.GradientTransformation,
    gradient: Any,
    params: Any,
    state: Any,
    rate: Array | float,
) -> tuple[Any, Any]:
    """Go `rate` times the rule's step down; return parameters and the rule's state.

    optax relies on JAX's standard type promotion; everything else here is strict.
    """
    with jax.numpy_dtype_promotion("standard"):
        step, state = rule.update(gradient, state, params)
        return jax.tree.map(lambda p, s: p - rate * s, params, step), state


def sweep(
    key: Array,
    alive: Float[Array, " R"],
    parts: int,
    carry: Any,
    step: Callable[[Any, Array], tuple[Any, Array]],
) -> tuple[Any, Array]:
    """Go once through the living rows, in random order, in `parts` minibatches.

    step: (carry, rows [M]) -> (carry, trace [...]). The last rows are filled up with
    the first; of a batch with dead rows there are fewer parts, each as large. Returns
    the carry and the mean trace.
    """
    size = -(-alive.size // min(parts, alive.size))
    place = jax.random.uniform(key, alive.shape)
    order = jnp.argsort(jnp.where(alive > 0.0, place, 2.0))
    living = jnp.maximum(jnp.sum(alive > 0.0), 1)
    count = -(-living // size)

    def body(i: Array, state: tuple[Any, Array]) -> tuple[Any, Array]:
        carry, total = state
        carry, trace = step(carry, order[(i * size + jnp.arange(size)) % living])
        return carry, total + trace

    shape = jax.eval_shape(step, carry, order[:size])[1]
    start = (carry, jnp.zeros(shape.shape, shape.dtype))
    carry, total = lax.fori_loop(0, count, body, start)
    return carry, total / count.astype(jnp.float32)
