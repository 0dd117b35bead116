"""Vectors in the plane, for NumPy and JAX arrays alike."""

from __future__ import annotations

from typing import Any


def in_body_frame(heading: Any, vector: Any) -> Any:
    """Components [2, ...] of a world vector [2, ...] along forward and left."""
    xp = heading.__array_namespace__()
    cos, sin = xp.cos(heading), xp.sin(heading)
    x, y = vector
    return xp.stack([cos * x + sin * y, cos * y - sin * x])
