"""PointCircle: run fast along a circle that is wider than the safe strip.

    reward = v . [-y, x] / (1 + |sqrt(x^2 + y^2) - RADIUS|)        (appendix, "Circle")
    cost   = 1 if |x| > X_LIMIT else 0                             (SPEC erratum 6)

The circle has radius 1.5 m and the strip ends at 1.125 m, as in Safety-Gymnasium's
Circle1. The control interval is 0.1 s: at 1.5 m/s, 200 steps are three laps.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from ecop.drawing.scenes import Scene
from ecop.envs.frames import in_body_frame
from ecop.envs.point import dynamics
from ecop.types import Box, Constraint, Played, Spec, Step

RADIUS = 1.5  # m
X_LIMIT = 1.125  # m
START = 0.8  # m, half the side of the square in which episodes start
TIMESTEP = 0.01  # s
SUBSTEPS = 10
HORIZON = 200
LIMIT = 10.0


def reward(position: jax.Array, velocity: jax.Array) -> jax.Array:
    """Speed along the circle times its radius, less the farther from the circle."""
    x, y = position
    radius = jnp.sqrt(x**2 + y**2)
    along = x * velocity[1] - y * velocity[0]
    return along / (1.0 + jnp.abs(radius - RADIUS))


def cost(position: jax.Array) -> jax.Array:
    """1 outside the strip |x| <= X_LIMIT."""
    return (jnp.abs(position[0]) > X_LIMIT).astype(jnp.float32)


def observe(state: dynamics.PointState) -> jax.Array:
    """Position and velocity, distances from the circle and the strip's edge: [9].

    The position is given in the world's frame and in the robot's, whose forward and
    left axes its actions work along; the two together tell the heading.
    """
    x, y = state.position
    return jnp.stack(
        [
            x,
            y,
            *in_body_frame(state.heading, state.position),
            *in_body_frame(state.heading, state.velocity),
            state.turn,
            jnp.sqrt(x**2 + y**2) - RADIUS,
            X_LIMIT - jnp.abs(x),
        ]
    )


class PointCircle:
    """The task as pure functions; its state is the robot's."""

    def __init__(self, *, horizon: int = HORIZON) -> None:
        self.spec = Spec(
            observation_size=9,
            action=Box(2),
            horizon=horizon,
            constraints=(Constraint("boundary", LIMIT, bound=horizon),),
        )

    def reset(self, key: jax.Array) -> tuple[dynamics.PointState, jax.Array]:
        """Start at rest, anywhere in the start square, with any heading."""
        draw = jax.random.uniform(key, (3,), jnp.float32, -1.0, 1.0)
        state = dynamics.PointState(
            position=START * draw[:2],
            heading=jnp.pi * draw[2],
            velocity=jnp.zeros(2, jnp.float32),
            turn=jnp.zeros((), jnp.float32),
        )
        return state, observe(state)

    def step(
        self, key: jax.Array, state: dynamics.PointState, action: jax.Array
    ) -> Step:
        """Drive for one control interval; reward and cost of where that ends."""
        del key
        state = dynamics.advance(state, action, timestep=TIMESTEP, substeps=SUBSTEPS)
        return Step(
            state=state,
            observation=observe(state),
            reward=reward(state.position, state.velocity),
            costs=cost(state.position)[None],
            failed=jnp.zeros((), bool),
        )

    def film(self, episode: Played) -> Scene:
        """The circle and the two edges of the safe strip."""
        return Scene(
            window=(-2.7, -2.7, 2.7, 2.7),
            pose=dynamics.pose(episode.states),
            circles=((0.0, 0.0, RADIUS),),
            lines=tuple((x, -2.1, x, 2.1) for x in (-X_LIMIT, X_LIMIT)),
        )
