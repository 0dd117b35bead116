"""The Point robot of Safety-Gym: one thruster and one turning servo on a plane.

A pure substep model of the robot's joint-space dynamics (x, y, heading): the centre of
mass lies ahead of the pivot, so turning and sliding are coupled. Damping and the
velocity servo are integrated implicitly, which keeps the servo quiet at any time step
(integrated explicitly it flips the yaw rate by 0.48 rad/s every 2 ms).

Constants: the robot's published model, masses and inertia measured from it.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

MASS = 0.00518879  # kg
INERTIA = 2.842e-5  # kg m^2 about the pivot
OFFSET = 0.0193  # m, centre of mass ahead of the pivot
SLIDE_DAMPING = 0.01
TURN_DAMPING = 0.005
GEAR = 0.3  # of both actuators
FORCE_RANGE = 0.05  # both actuators saturate here
TOP_SPEED = GEAR * FORCE_RANGE / SLIDE_DAMPING  # 1.5 m/s


class PointState(NamedTuple):
    """Pose and velocity of the pivot in the world frame."""

    position: jax.Array  # [2] m
    heading: jax.Array  # [] rad
    velocity: jax.Array  # [2] m/s
    turn: jax.Array  # [] rad/s


def in_body_frame(heading: jax.Array, vector: jax.Array) -> jax.Array:
    """Components [2] of a world vector along the robot's forward and left axes."""
    cos, sin = jnp.cos(heading), jnp.sin(heading)
    x, y = vector
    return jnp.stack([cos * x + sin * y, cos * y - sin * x])


def advance(
    state: PointState, action: jax.Array, *, timestep: float, substeps: int
) -> PointState:
    """Hold `action` [2] (thrust, turn; in [-1, 1]) for `substeps` time steps."""
    action = jnp.clip(action, -1.0, 1.0)
    thrust = GEAR * jnp.clip(action[0], -FORCE_RANGE, FORCE_RANGE)
    slide = MASS + timestep * SLIDE_DAMPING
    coupling = MASS * OFFSET
    turn_inertia = INERTIA + timestep * TURN_DAMPING
    servo_inertia = turn_inertia + timestep * GEAR**2

    def substep(_: int, state: PointState) -> PointState:
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

    return lax.fori_loop(0, substeps, substep, state, unroll=True)
