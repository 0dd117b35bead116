"""Pseudo-lidar of Safety-Gym: how near is the nearest object in each direction.

The circle around the robot has 16 bins, counted anticlockwise from straight ahead. An
object at distance d reads max(0, reach - d) / reach in its bin and, so that the reading
is continuous in the angle, a share of that in the two neighbours: `alias` of it in the
next bin and 1 - `alias` in the one before, with `alias` in [0, 1) its place in its bin.
"""

from __future__ import annotations

import math
from typing import Any

from ecop.envs.frames import in_body_frame

BINS = 16


def lidar(heading: Any, offsets: Any, reach: float) -> Any:
    """Readings [..., 16] of objects at `offsets` [..., K, 2], world frame.

    For NumPy and JAX arrays alike; heading [...].
    """
    xp = offsets.__array_namespace__()
    forward, left = in_body_frame(heading[..., None], xp.moveaxis(offsets, -1, 0))
    place = xp.arctan2(left, forward) * (BINS / (2.0 * math.pi))
    near = xp.maximum(0.0, 1.0 - xp.sqrt(forward**2 + left**2) / reach)
    # Bins from the middle of each bin to the object, in [-8, 8).
    middles = xp.broadcast_to(
        xp.arange(0.5, BINS, dtype=offsets.dtype), (*place.shape, BINS)
    )
    gap = place[..., None] - middles
    gap = xp.abs(gap - BINS * xp.round(gap / BINS))
    return xp.max(xp.clip(1.5 - gap, 0.0, 1.0) * near[..., None], axis=-2)
