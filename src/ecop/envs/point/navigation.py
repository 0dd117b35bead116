"""Navigation: from goal to goal past hazards and solid pillars, two costs at once.

    reward        = progress towards the goal in metres, + 1 on reaching it
    cost hazards  = 1 if the robot's centre is inside a hazard       (passable)
    cost pillars  = 1 if the robot touched a pillar in this step     (solid)

Reward, lidars and goal are those of Safety-Gymnasium's PointGoal. The paper gives
neither counts nor sizes of hazards and pillars; those below, and the control interval
of 0.2 s, are chosen such that ignoring either cost breaks its limit; see
docs/tasks/navigation.md.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ecop.drawing.scenes import Discs, Scene
from ecop.envs.lidar import BINS, lidar
from ecop.envs.point import dynamics, layout
from ecop.types import Box, Constraint, Played, Spec, Step

GOAL_RADIUS = 0.3  # m, PointGoal
GOAL_KEEPOUT = 0.305  # m, PointGoal
HAZARD_RADIUS = 0.33  # m
HAZARDS = 5
PILLAR_RADIUS = 0.25  # m
PILLARS = 15
START_KEEPOUT = 0.2  # m
SIDE, CELL = 5, 0.75  # cells of the arena, m
REACH = 3.0  # m, of the lidars; PointGoal
TIMESTEP = 0.02  # s
SUBSTEPS = 10
HORIZON = 200
LIMITS = (10.0, 25.0)  # hazards, pillars: the paper's Table 1


class Arena(NamedTuple):
    """What lies where in one episode."""

    hazards: jax.Array  # [HAZARDS, 2] m
    pillars: jax.Array  # [PILLARS, 2] m
    free: jax.Array  # [F, 2] m, middles of the cells that a goal may be drawn in


class State(NamedTuple):
    """The robot, its goal and the arena."""

    robot: dynamics.PointState
    goal: jax.Array  # [2] m
    cell: jax.Array  # [] int32, the goal's among the free ones
    arena: Arena


def draw_goal(
    key: jax.Array, free: jax.Array, cell: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """A goal [2] in any free cell but `cell`, and its cell."""
    cell_key, place_key = jax.random.split(key)
    hop = jax.random.randint(cell_key, (), 1, free.shape[0], jnp.int32)
    cell = (cell + hop) % free.shape[0]
    return layout.shifted(place_key, free[cell], CELL / 2 - GOAL_KEEPOUT), cell


def reward(
    before: jax.Array, after: jax.Array, goal: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Progress from position to position, + 1 on arrival; and whether it arrived."""
    distance = jnp.linalg.norm(after - goal)
    reached = distance <= GOAL_RADIUS
    progress = jnp.linalg.norm(before - goal) - distance
    return progress + reached.astype(jnp.float32), reached


def inside(position: jax.Array, hazards: jax.Array, radius: float) -> jax.Array:
    """1 inside one of the hazards [K, 2]."""
    distance = jnp.sqrt(jnp.sum((hazards - position[None]) ** 2, axis=1))
    return jnp.any(distance <= radius).astype(jnp.float32)


def observe(state: State, acceleration: jax.Array) -> jax.Array:
    """Sensors [12] and the lidars of goal, hazards and pillars [16 each]."""
    robot, arena = state.robot, state.arena
    kinds = (state.goal[None], arena.hazards, arena.pillars)
    here = robot.position[None]
    lidars = [lidar(robot.heading, objects - here, REACH) for objects in kinds]
    return jnp.concatenate([dynamics.sensors(robot, acceleration), *lidars])


class Navigation:
    """The task as pure functions."""

    def __init__(self, *, horizon: int = HORIZON) -> None:
        names = ("hazards", "pillars")
        self.spec = Spec(
            observation_size=12 + 3 * BINS,
            action=Box(2),
            horizon=horizon,
            constraints=tuple(map(Constraint, names, LIMITS, (horizon, horizon))),
        )

    def reset(self, key: jax.Array) -> tuple[State, jax.Array]:
        """Draw the arena; start at rest in a free cell, with any heading."""
        keys = jax.random.split(key, 6)
        cells = jax.random.permutation(keys[0], layout.centres(SIDE, CELL))
        pillars, hazards, free = jnp.split(cells, [PILLARS, PILLARS + HAZARDS])
        pillar_room = CELL / 2 - PILLAR_RADIUS - dynamics.RADIUS
        arena = Arena(
            hazards=layout.shifted(keys[1], hazards, CELL / 2 - HAZARD_RADIUS),
            pillars=layout.shifted(keys[2], pillars, pillar_room),
            free=free,
        )
        start = layout.shifted(keys[3], free[0], CELL / 2 - START_KEEPOUT)
        heading = jax.random.uniform(keys[4], (), jnp.float32, -jnp.pi, jnp.pi)
        goal, cell = draw_goal(keys[5], free, jnp.zeros((), jnp.int32))
        state = State(dynamics.at_rest(start, heading), goal, cell, arena)
        return state, observe(state, jnp.zeros(2, jnp.float32))

    def step(self, key: jax.Array, state: State, action: jax.Array) -> Step:
        """Drive for one control interval; on arrival draw the next goal."""
        robot, touched = dynamics.advance_among(
            state.robot,
            action,
            state.arena.pillars,
            PILLAR_RADIUS,
            timestep=TIMESTEP,
            substeps=SUBSTEPS,
        )
        gain, reached = reward(state.robot.position, robot.position, state.goal)
        goal, cell = draw_goal(key, state.arena.free, state.cell)
        following = State(
            robot=robot,
            goal=jnp.where(reached, goal, state.goal),
            cell=jnp.where(reached, cell, state.cell),
            arena=state.arena,
        )
        change = robot.velocity - state.robot.velocity
        hazards = inside(robot.position, state.arena.hazards, HAZARD_RADIUS)
        return Step(
            state=following,
            observation=observe(following, change / (TIMESTEP * SUBSTEPS)),
            reward=gain,
            costs=jnp.stack([hazards, touched.astype(jnp.float32)]),
            failed=jnp.zeros((), bool),
        )

    def film(self, episode: Played) -> Scene:
        """Hazards, pillars and the goal of each step."""
        states: State = episode.states
        half = SIDE * CELL / 2 + 0.5
        hazards, pillars = states.arena.hazards[0], states.arena.pillars[0]
        return Scene(
            window=(-half, -half, half, half),
            pose=dynamics.pose(states.robot),
            discs=(
                Discs("hazard", "#cdb4f0", HAZARD_RADIUS, np.asarray(hazards)),
                Discs("pillar", "#5b3a8c", PILLAR_RADIUS, np.asarray(pillars)),
            ),
            goal=Discs("goal", "#2e9e4f", GOAL_RADIUS, np.asarray(states.goal)),
        )
