"""One step of an optimiser."""

from __future__ import annotations

from typing import Any

import jax
import optax


def descend(
    optimiser: optax.GradientTransformation, gradient: Any, params: Any, state: Any
) -> tuple[Any, Any]:
    """Return the new parameters and optimiser state.

    optax relies on JAX's standard type promotion; everything else here is strict.
    """
    with jax.numpy_dtype_promotion("standard"):
        updates, state = optimiser.update(gradient, state, params)
        return optax.apply_updates(params, updates), state
