"""The one running average: exponential, from the first value on."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array

MEMORY = 0.9  # per iteration, unless said otherwise


class Average(NamedTuple):
    """A running average of an array, entry by entry."""

    value: Array  # [...] 0 before the first
    count: Array  # [...] float: values seen


def start(shape: tuple[int, ...]) -> Average:
    """Nothing seen yet."""
    return Average(jnp.zeros(shape, jnp.float32), jnp.zeros(shape, jnp.float32))


def follow(
    average: Average, new: Array, *, memory: float = MEMORY, known: Any = True
) -> Average:
    """Take a value in where it is `known`; the first one counts in full."""
    value, count = average
    mixed = jnp.where(count == 0.0, new, memory * value + (1.0 - memory) * new)
    return Average(jnp.where(known, mixed, value), jnp.where(known, count + 1.0, count))
