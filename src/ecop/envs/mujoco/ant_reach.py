"""AntReach: PointReach for the Ant.

    reward = progress towards the goal in metres
    cost   = 1 if the torso is over an obstacle

The goal is farther away than the robot can travel in an episode. Obstacles are flat and
passable, in an endless field, as in PointReach; the lengths fit the Ant. The field
begins a little way from the start: a robot that cannot walk yet has no cost.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ecop.drawing.scenes import Pictures
from ecop.envs import field
from ecop.envs.lidar import BINS, lidar
from ecop.envs.mujoco import ant, camera, torso
from ecop.envs.mujoco.physics import PhysicsOptions
from ecop.types import Box, Constraint, HostStep, Played, Spec

GOAL = np.array([60.0, 0.0])  # m
OBSTACLE_RADIUS = 0.7  # m
OBSTACLES = 18  # per tile
SIDE, CELL = 6, 2.0  # cells of a tile, m
TILE = SIDE * CELL  # m, twice the lidar's reach: no obstacle is seen twice
GOAL_REACH = 80.0  # m, of the lidar that sees the goal
REACH = 6.0  # m, of the lidar that sees obstacles
FIELD = 2.5  # m, where the field begins, along the way to the goal
NOWHERE = 1e3  # m, offset of what is not there
HORIZON = 200
LIMIT = 25.0


def draw_tile(rng: np.random.Generator) -> np.ndarray:
    """Obstacles [OBSTACLES, 2] around a start in a free cell.

    Every obstacle has a cell to itself; columns of cells are shifted along each other,
    so that there is no straight lane.
    """
    line = CELL * np.arange(SIDE)
    cells = np.stack(np.meshgrid(line, line, indexing="ij"), axis=-1)
    cells[..., 1] += rng.uniform(0.0, CELL, (SIDE, 1))
    cells = rng.permutation(cells.reshape(-1, 2))
    room = CELL / 2 - OBSTACLE_RADIUS - ant.RADIUS
    middles = cells[1 : 1 + OBSTACLES] - cells[0]
    return middles + rng.uniform(-room, room, middles.shape)


class AntReach:
    """The task, for a batch of episodes."""

    def __init__(self, *, horizon: int = HORIZON, **options: Any) -> None:
        self.robots = ant.physics(PhysicsOptions(**options))
        self.spec = Spec(
            observation_size=ant.SENSORS + 2 * BINS,
            action=Box(ant.JOINTS),
            horizon=horizon,
            constraints=(Constraint("obstacles", LIMIT, bound=horizon),),
        )

    def reset(self, seeds: np.ndarray) -> np.ndarray:
        """Draw the tiles; start in a cell without obstacle, facing the goal."""
        states, tiles = [], []
        for seed in seeds:
            rng = np.random.default_rng(seed)
            tiles.append(draw_tile(rng))
            states.append(ant.first_state(self.robots, rng, np.zeros(2)))
        self.obstacles = np.stack(tiles)
        self.robots.start(*zip(*states, strict=True))
        return self.observe(self.near())

    def step(self, actions: np.ndarray) -> HostStep:
        """Walk for one control interval; progress and contact of where that ends."""
        robots = self.robots
        before = self.distance_to_goal()
        robots.step(np.clip(actions, -1.0, 1.0))
        near = self.near()
        contact = field.contact(near, OBSTACLE_RADIUS + ant.RADIUS)
        return robots.outcome(
            self.observe(near),
            before - self.distance_to_goal(),
            contact[:, None],
            ant.fallen(robots),
        )

    def distance_to_goal(self) -> np.ndarray:
        """In metres [B]."""
        return np.hypot(*(GOAL - self.robots.position[:, :2]).T)

    def near(self) -> np.ndarray:
        """From the torso to the nearest copy of each obstacle [B, K, 2]."""
        position = self.robots.position[:, None, :2]
        near = field.offsets(position[:, 0], self.obstacles, TILE)
        before = position[..., 0] + near[..., 0] < FIELD
        return np.where(before[..., None], NOWHERE, near)

    def observe(self, near: np.ndarray) -> np.ndarray:
        """Sensors and the lidars of goal and obstacles [B, 60]."""
        position = self.robots.position
        heading = torso.heading(position)
        return np.concatenate(
            [
                torso.sensors(self.robots, heading),
                lidar(heading, (GOAL - position[:, :2])[:, None], GOAL_REACH),
                lidar(heading, near, REACH),
            ],
            axis=1,
        ).astype(np.float32)

    def film(self, episode: Played) -> Pictures:
        """The robot and the obstacles around its path."""
        poses = camera.poses(self, episode, ant.STRIDE)
        path = poses[:, :2]
        copies = np.arange(-1 - np.max(np.abs(path)) // TILE, 10) * TILE
        shifts = np.stack(np.meshgrid(copies, copies), axis=-1).reshape(-1, 1, 2)
        centres = (self.obstacles[0] + shifts).reshape(-1, 2)
        margin = 8.0
        low, high = path.min(axis=0) - margin, path.max(axis=0) + margin
        seen = np.all((centres > low) & (centres < high), axis=1)
        seen &= centres[:, 0] >= FIELD
        props = tuple(
            camera.Disc((x, y), OBSTACLE_RADIUS, camera.VIOLET)
            for x, y in centres[seen]
        )
        view = camera.View(distance=9.0, elevation=-40.0, azimuth=60.0)
        frames = camera.frames(self.robots.model, poses, props, view)
        return Pictures(frames, ant.STRIDE, ant.INTERVAL)

    def close(self) -> None:
        """Let go of the simulations."""
        self.robots.close()
