"""What a walking robot feels: robots whose first joint is a free torso."""

from __future__ import annotations

import numpy as np

from ecop.envs.frames import in_body_frame
from ecop.envs.mujoco.physics import Physics

FREE = 7  # entries of the torso's pose: place and quaternion


def heading(position: np.ndarray) -> np.ndarray:
    """Angle [B] of the torso's forward axis in the plane."""
    w, x, y, z = position[:, 3:FREE].T
    return np.arctan2(2.0 * (w * z + x * y), 1.0 - 2.0 * (y**2 + z**2))


def upward(position: np.ndarray) -> np.ndarray:
    """The world's upward axis [B, 3] in the torso's frame: how it is tilted."""
    w, x, y, z = position[:, 3:FREE].T
    return np.stack(
        [2.0 * (x * z - w * y), 2.0 * (y * z + w * x), 1.0 - 2.0 * (x**2 + y**2)],
        axis=1,
    )


def size(joints: int) -> int:
    """Entries of `sensors`."""
    return 12 + 2 * joints


def sensors(robots: Physics, angle: np.ndarray) -> np.ndarray:
    """Height, heading, tilt, joints, and all velocities, the torso's along its heading.

    [B, 12 + 2 joints]; angle: the heading [B]
    """
    position, velocity = robots.position, robots.velocity
    return np.concatenate(
        [
            position[:, 2:3],
            np.stack([np.cos(angle), np.sin(angle)], axis=1),
            upward(position),
            position[:, FREE:],
            in_body_frame(angle, velocity[:, :2].T).T,
            velocity[:, 2:],
        ],
        axis=1,
    )


def healthy(robots: Physics, low: float, high: float) -> np.ndarray:
    """Whether the torso is at a height between the two [B]."""
    height = robots.position[:, 2]
    return (low < height) & (height < high)
