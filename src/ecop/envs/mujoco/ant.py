"""The Ant of Gymnasium: a torso on four legs with two joints each.

The model is Gymnasium's, the time step of Euler's method ours. Against a fine run of
RK4, Euler at the model's own 10 ms throws the robot up; at 5 ms it keeps height and
speed as well as RK4 at 10 ms does (docs/notebook/2026-11-robots.md).
"""

from __future__ import annotations

import numpy as np

from ecop.envs.mujoco import torso
from ecop.envs.mujoco.physics import Physics, PhysicsOptions, load

EULER_STEP = 0.005  # s
INTERVAL = 0.05  # s, between two actions; Gymnasium's
HEALTHY = (0.2, 1.0)  # m, height of the torso; outside it has fallen
STRIDE = 2  # steps from one picture to the next
NOISE = 0.1  # of the first pose and velocity, as Gymnasium's
RADIUS = 0.25  # m, of the torso
JOINTS = 8
SENSORS = torso.size(JOINTS)


def physics(options: PhysicsOptions) -> Physics:
    """The robots of a batch."""
    return Physics(load("ant", EULER_STEP, options), INTERVAL, options)


def first_state(
    robots: Physics, rng: np.random.Generator, place: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Near the model's pose, at `place` [2]: position [nq] and velocity [nv]."""
    model = robots.model
    position = model.qpos0 + rng.uniform(-NOISE, NOISE, model.nq)
    position[:2] = place
    return position, NOISE * rng.standard_normal(model.nv)


def fallen(robots: Physics) -> np.ndarray:
    """[B] bool."""
    return ~torso.healthy(robots, *HEALTHY)
