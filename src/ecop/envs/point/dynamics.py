"""The Point robot of Safety-Gym: one thruster and one turning servo on a plane.

A pure substep model of the robot's joint-space dynamics (x, y, heading): the centre of
mass lies ahead of the pivot, so turning and sliding are coupled. Damping and the
velocity servo are integrated implicitly, which keeps the servo quiet at any time step
(integrated explicitly it flips the yaw rate by 0.48 rad/s every 2 ms).

Constants: the robot's published model, masses and inertia measured from it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ecop.envs.frames import in_body_frame

MASS = 0.00518879  # kg
INERTIA = 2.842e-5  # kg m^2 about the pivot
OFFSET = 0.0193  # m, centre of mass ahead of the pivot
SLIDE_DAMPING = 0.01
TURN_DAMPING = 0.005
GEAR = 0.3  # of both actuators
FORCE_RANGE = 0.05  # both actuators saturate here
RADIUS = 0.1  # m, of its round body
GRAVITY = 9.81  # m/s^2
TOP_SPEED = GEAR * FORCE_RANGE / SLIDE_DAMPING  # 1.5 m/s


class PointState(NamedTuple):
    """Pose and velocity of the pivot in the world frame."""

    position: jax.Array  # [2] m
    heading: jax.Array  # [] rad
    velocity: jax.Array  # [2] m/s
    turn: jax.Array  # [] rad/s


def substep(state: PointState, action: jax.Array, timestep: float) -> PointState:
    """One time step under `action` [2] (thrust, turn; in [-1, 1])."""
    thrust = GEAR * jnp.clip(action[0], -FORCE_RANGE, FORCE_RANGE)
    slide = MASS + timestep * SLIDE_DAMPING
    coupling = MASS * OFFSET
    turn_inertia = INERTIA + timestep * TURN_DAMPING
    servo_inertia = turn_inertia + timestep * GEAR**2

    # In the body frame the mass matrix is constant and couples only left and turn.
    forward, left = in_body_frame(state.heading, state.velocity)
    push = thrust + coupling * state.turn**2 - SLIDE_DAMPING * forward
    drag = -SLIDE_DAMPING * left
    friction = -TURN_DAMPING * state.turn

    def turn_rate(torque: jax.Array, inertia: float) -> jax.Array:
        determinant = slide * inertia - coupling**2
        return (slide * (torque + friction) - coupling * drag) / determinant

    # The servo's torque at the end of the substep, saturated if need be.
    free = turn_rate(GEAR * (action[1] - GEAR * state.turn), servo_inertia)
    command = action[1] - GEAR * (state.turn + timestep * free)
    torque = GEAR * jnp.clip(command, -FORCE_RANGE, FORCE_RANGE)
    spin = turn_rate(torque, turn_inertia)

    forward_rate = push / slide
    left_rate = (drag - coupling * spin) / slide
    cos, sin = jnp.cos(state.heading), jnp.sin(state.heading)
    rate = jnp.stack(
        [cos * forward_rate - sin * left_rate, sin * forward_rate + cos * left_rate]
    )
    velocity = state.velocity + timestep * rate
    turn = state.turn + timestep * spin
    return PointState(
        position=state.position + timestep * velocity,
        heading=state.heading + timestep * turn,
        velocity=velocity,
        turn=turn,
    )


def advance(
    state: PointState, action: jax.Array, *, timestep: float, substeps: int
) -> PointState:
    """Hold `action` [2] (thrust, turn; in [-1, 1]) for `substeps` time steps."""
    action = jnp.clip(action, -1.0, 1.0)

    def step(_: int, state: PointState) -> PointState:
        return substep(state, action, timestep)

    return lax.fori_loop(0, substeps, step, state, unroll=True)


def stop_at(
    state: PointState, pillars: jax.Array, radius: float
) -> tuple[PointState, jax.Array]:
    """Keep the robot out of solid, frictionless pillars [P, 2]; tell if it touched.

    A robot that overlaps a pillar is set back to its surface and loses its speed into
    it. Pillars must be so far apart that the robot touches one at a time.
    """
    offset = state.position[None] - pillars
    distance = jnp.sqrt(jnp.sum(offset**2, axis=1))
    overlap = jnp.maximum(0.0, radius + RADIUS - distance)
    normal = offset / jnp.maximum(distance, 1e-6)[:, None]
    inward = jnp.where(overlap > 0.0, jnp.minimum(0.0, normal @ state.velocity), 0.0)
    state = state._replace(
        position=state.position + overlap @ normal,
        velocity=state.velocity - inward @ normal,
    )
    return state, jnp.any(overlap > 0.0)


def advance_among(
    state: PointState,
    action: jax.Array,
    pillars: jax.Array,
    radius: float,
    *,
    timestep: float,
    substeps: int,
) -> tuple[PointState, jax.Array]:
    """As `advance`, among pillars [P, 2]; also whether the robot touched one.

    Contact is resolved in every substep: at top speed that is a move of a few percent
    of a pillar's width.
    """
    action = jnp.clip(action, -1.0, 1.0)

    def step(_: int, carry: tuple[PointState, jax.Array]) -> Any:
        state, touched = carry
        state, touches = stop_at(substep(state, action, timestep), pillars, radius)
        return state, touched | touches

    return lax.fori_loop(0, substeps, step, (state, jnp.zeros((), bool)), unroll=True)


def at_rest(position: jax.Array, heading: jax.Array) -> PointState:
    """The robot standing still."""
    zero = jnp.zeros((), jnp.float32)
    return PointState(position, heading, jnp.zeros(2, jnp.float32), zero)


def sensors(state: PointState, acceleration: jax.Array) -> jax.Array:
    """Safety-Gym's accelerometer, velocimeter, gyro and magnetometer, x y z each [12].

    `acceleration` [2] is in the world frame.
    """
    zero = jnp.zeros((), jnp.float32)
    north = jnp.array([0.0, -0.5], jnp.float32)
    return jnp.stack(
        [
            *in_body_frame(state.heading, acceleration),
            jnp.full((), GRAVITY, jnp.float32),
            *in_body_frame(state.heading, state.velocity),
            zero,
            zero,
            zero,
            state.turn,
            *in_body_frame(state.heading, north),
            zero,
        ]
    )


def pose(states: PointState) -> np.ndarray:
    """Position and heading [H, 3] of the states [H] of an episode."""
    return np.concatenate([states.position, states.heading[:, None]], axis=1)
