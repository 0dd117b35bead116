"""An endless field of obstacles: a square tile, repeated in all directions.

For NumPy and JAX arrays alike. There is no way around such a field.
"""

from __future__ import annotations

from typing import Any


def offsets(position: Any, obstacles: Any, tile: float) -> Any:
    """From `position` [..., 2] to the nearest copy of each obstacle [..., K, 2]."""
    offset = obstacles - position[..., None, :]
    return offset - tile * offset.__array_namespace__().round(offset / tile)


def contact(near: Any, radius: float) -> Any:
    """Whether any of the obstacles at `near` [..., K, 2] is within `radius` [...]."""
    xp = near.__array_namespace__()
    return xp.any(xp.sqrt(xp.sum(near**2, axis=-1)) <= radius, axis=-1)
