"""Random layouts without rejection: every object has a cell of a square to itself.

An object whose keepout fits into its cell, wherever it is shifted to, never overlaps
one in another cell, so one draw is always enough and no loop is needed.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp


def centres(side: int, cell: float) -> jax.Array:
    """Middles [side^2, 2] of the cells of a square around the origin."""
    line = cell * (jnp.arange(side, dtype=jnp.float32) - (side - 1) / 2)
    return jnp.stack(jnp.meshgrid(line, line, indexing="ij"), axis=-1).reshape(-1, 2)


def staggered(key: jax.Array, middles: jax.Array, cell: float) -> jax.Array:
    """The cells [side^2, 2] with every column shifted by a part of a cell along y.

    Without that, the edges of the cells are straight lanes without any object.
    """
    side = round(len(middles) ** 0.5)
    shift = jax.random.uniform(key, (side, 1), jnp.float32, 0.0, cell)
    columns = middles.reshape(side, side, 2)
    return columns.at[..., 1].add(jnp.broadcast_to(shift, (side, side))).reshape(-1, 2)


def shifted(key: jax.Array, middles: jax.Array, room: float) -> jax.Array:
    """Points drawn around `middles` [..., 2], at most `room` away along x and y."""
    shape = middles.shape
    return middles + jax.random.uniform(key, shape, jnp.float32, -room, room)
