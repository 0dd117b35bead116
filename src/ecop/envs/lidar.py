"""Pseudo-lidar of Safety-Gym: how near is the nearest object in each direction.

The circle around the robot has 16 bins, counted anticlockwise from straight ahead. An
object at distance d reads max(0, reach - d) / reach in its bin and, so that the reading
is continuous in the angle, a share of that in the two neighbours: `alias` of it in the
next bin and 1 - `alias` in the one before, with `alias` in [0, 1) its place in its bin.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from ecop.envs.point import in_body_frame

BINS = 16


def lidar(heading: jax.Array, offsets: jax.Array, reach: float) -> jax.Array:
    """Readings [16] of objects at `offsets` [K, 2] from the robot, world frame."""
    forward, left = in_body_frame(heading, offsets.T)
    place = jnp.arctan2(left, forward) * (BINS / (2.0 * jnp.pi))
    near = jnp.maximum(0.0, 1.0 - jnp.sqrt(forward**2 + left**2) / reach)
    # Bins from the middle of each bin to the object, in [-8, 8).
    gap = place[:, None] - jnp.arange(0.5, BINS, dtype=jnp.float32)[None]
    gap = jnp.abs(gap - BINS * jnp.round(gap / BINS))
    return jnp.max(jnp.clip(1.5 - gap, 0.0, 1.0) * near[:, None], axis=0)
