"""PointReach: towards a goal out of reach, through a field of obstacles.

    reward = progress towards the goal in metres
    cost   = 1 if the robot's body overlaps an obstacle

The goal is farther away than the robot can travel in an episode, as the paper asks; it
says nothing else, so the rest is our own. Obstacles are passable, like the hazards of
Safety-Gym. The field has no end: a square tile of random obstacles is repeated in all
directions, so that there is no way around it.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ecop.drawing.scenes import Discs, Scene
from ecop.envs import field
from ecop.envs.lidar import BINS, lidar
from ecop.envs.point import dynamics, layout
from ecop.types import Box, Constraint, Played, Spec, Step

GOAL = (32.0, 0.0)  # m; 200 steps of 0.1 s at 1.5 m/s are 30 m
OBSTACLE_RADIUS = 0.3  # m
OBSTACLES = 18  # per tile
SIDE, CELL = 6, 1.0  # cells of a tile, m
TILE = SIDE * CELL  # m, twice the lidar's reach: no obstacle is seen twice
GOAL_REACH = 40.0  # m, of the lidar that sees the goal
REACH = 3.0  # m, of the lidar that sees obstacles
TIMESTEP = 0.01  # s
SUBSTEPS = 10
HORIZON = 200
LIMIT = 25.0


class State(NamedTuple):
    """The robot and its tile."""

    robot: dynamics.PointState
    obstacles: jax.Array  # [OBSTACLES, 2] m


def cost(position: jax.Array, obstacles: jax.Array) -> jax.Array:
    """1 in contact with an obstacle."""
    near = field.offsets(position, obstacles, TILE)
    return field.contact(near, OBSTACLE_RADIUS + dynamics.RADIUS).astype(jnp.float32)


def distance_to_goal(position: jax.Array) -> jax.Array:
    """In metres."""
    return jnp.linalg.norm(jnp.array(GOAL, jnp.float32) - position)


def observe(state: State, acceleration: jax.Array) -> jax.Array:
    """Sensors [12] and the lidars of goal and obstacles [16 each]."""
    robot = state.robot
    goal = jnp.array(GOAL, jnp.float32) - robot.position
    near = field.offsets(robot.position, state.obstacles, TILE)
    return jnp.concatenate(
        [
            dynamics.sensors(robot, acceleration),
            lidar(robot.heading, goal[None], GOAL_REACH),
            lidar(robot.heading, near, REACH),
        ]
    )


class PointReach:
    """The task as pure functions."""

    def __init__(self, *, horizon: int = HORIZON) -> None:
        self.spec = Spec(
            observation_size=12 + 2 * BINS,
            action=Box(2),
            horizon=horizon,
            constraints=(Constraint("obstacles", LIMIT, bound=horizon),),
        )

    def reset(self, key: jax.Array) -> tuple[State, jax.Array]:
        """Draw the tile; start at rest in a cell without obstacle, any heading."""
        cell_key, column_key, shift_key, heading_key = jax.random.split(key, 4)
        cells = layout.staggered(column_key, layout.centres(SIDE, CELL), CELL)
        cells = jax.random.permutation(cell_key, cells)
        middles = cells[1 : 1 + OBSTACLES] - cells[0][None]
        room = CELL / 2 - OBSTACLE_RADIUS - dynamics.RADIUS
        heading = jax.random.uniform(heading_key, (), jnp.float32, -jnp.pi, jnp.pi)
        state = State(
            robot=dynamics.at_rest(jnp.zeros(2, jnp.float32), heading),
            obstacles=layout.shifted(shift_key, middles, room),
        )
        return state, observe(state, jnp.zeros(2, jnp.float32))

    def step(self, key: jax.Array, state: State, action: jax.Array) -> Step:
        """Drive for one control interval; progress and contact of where that ends."""
        del key
        before = state.robot
        robot = dynamics.advance(before, action, timestep=TIMESTEP, substeps=SUBSTEPS)
        state = state._replace(robot=robot)
        change = robot.velocity - before.velocity
        progress = distance_to_goal(before.position) - distance_to_goal(robot.position)
        return Step(
            state=state,
            observation=observe(state, change / (TIMESTEP * SUBSTEPS)),
            reward=progress,
            costs=cost(robot.position, state.obstacles)[None],
            failed=jnp.zeros((), bool),
        )

    def film(self, episode: Played) -> Scene:
        """The strip the robot passed through, with all copies of the tile in it."""
        states: State = episode.states
        pose = dynamics.pose(states.robot)
        left, bottom = pose[:, :2].min(axis=0) - 1.5
        right, top = GOAL[0] + 1.0, pose[:, 1].max() + 1.5
        copies = np.arange(-10, 11, dtype=np.float32) * TILE
        shifts = np.stack(np.meshgrid(copies, copies), axis=-1).reshape(-1, 1, 2)
        centres = (np.asarray(states.obstacles)[:1] + shifts).reshape(-1, 2)
        inside = (centres > [left - 1, bottom - 1]) & (centres < [right + 1, top + 1])
        return Scene(
            window=(left, bottom, right, top),
            pose=pose,
            discs=(
                Discs(
                    "obstacle", "#cdb4f0", OBSTACLE_RADIUS, centres[inside.all(axis=1)]
                ),
            ),
            goal=Discs("goal", "#2e9e4f", 0.5, np.tile(GOAL, (len(pose), 1))),
        )
