"""AntCircle: PointCircle for the Ant.

    reward = v . [-y, x] / (1 + |sqrt(x^2 + y^2) - RADIUS|)        (appendix, "Circle")
    cost   = 1 if |x| > X_LIMIT else 0                             (SPEC erratum 6)

v is the torso's displacement in the step, divided by the control interval.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ecop.drawing.scenes import Pictures
from ecop.envs.frames import in_body_frame
from ecop.envs.mujoco import ant, camera, torso
from ecop.envs.mujoco.physics import PhysicsOptions
from ecop.types import Box, Constraint, HostStep, Played, Spec

RADIUS = 3.0  # m
X_LIMIT = 6.0 / 7.0 * RADIUS  # m; the ratio of Bullet-Safety-Gym
START = 1.0  # m, half the side of the square in which episodes start
END = 1.5 * RADIUS  # m, of the drawn edges
HORIZON = 200
LIMIT = 10.0


class AntCircle:
    """The task, for a batch of episodes."""

    def __init__(self, *, horizon: int = HORIZON, **options: Any) -> None:
        self.robots = ant.physics(PhysicsOptions(**options))
        self.spec = Spec(
            observation_size=ant.SENSORS + 6,
            action=Box(ant.JOINTS),
            horizon=horizon,
            constraints=(Constraint("boundary", LIMIT, bound=horizon),),
        )

    def reset(self, seeds: np.ndarray) -> np.ndarray:
        """Start anywhere in the start square."""
        states = []
        for seed in seeds:
            rng = np.random.default_rng(seed)
            place = rng.uniform(-START, START, 2)
            states.append(ant.first_state(self.robots, rng, place))
        self.robots.start(*zip(*states, strict=True))
        return self.observe()

    def step(self, actions: np.ndarray) -> HostStep:
        """Walk for one control interval; reward and cost of where that ends."""
        robots = self.robots
        before = robots.position[:, :2].copy()
        robots.step(np.clip(actions, -1.0, 1.0))
        x, y = robots.position[:, :2].T
        vx, vy = (robots.position[:, :2] - before).T / robots.interval
        reward = (x * vy - y * vx) / (1.0 + np.abs(np.hypot(x, y) - RADIUS))
        costs = (np.abs(x) > X_LIMIT)[:, None]
        return robots.outcome(self.observe(), reward, costs, ant.fallen(robots))

    def observe(self) -> np.ndarray:
        """Sensors, place in the world's and the robot's frame, distances [B, 34]."""
        position = self.robots.position
        x, y = place = position[:, :2].T
        heading = torso.heading(position)
        return np.concatenate(
            [
                torso.sensors(self.robots, heading),
                place.T,
                in_body_frame(heading, place).T,
                np.hypot(x, y)[:, None] - RADIUS,
                X_LIMIT - np.abs(x)[:, None],
            ],
            axis=1,
        ).astype(np.float32)

    def film(self, episode: Played) -> Pictures:
        """The robot, the circle and the two edges of the safe strip."""
        edges = [np.array([[x, -END], [x, END]]) for x in (-X_LIMIT, X_LIMIT)]
        props = (
            camera.Path(camera.circle(RADIUS), camera.GREEN),
            *(camera.Path(edge, camera.RED) for edge in edges),
        )
        view = camera.View(distance=3.5 * RADIUS, elevation=-60.0, centre=(0, 0, 0))
        poses = camera.poses(self, episode, ant.STRIDE)
        frames = camera.frames(self.robots.model, poses, props, view)
        return Pictures(frames, ant.STRIDE, ant.INTERVAL)

    def close(self) -> None:
        """Let go of the simulations."""
        self.robots.close()
