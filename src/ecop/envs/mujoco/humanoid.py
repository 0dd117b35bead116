"""Humanoid: run as fast as the speed limit allows.

    reward = 1.25 v_x + 5 (while standing) - 0.1 |control|^2        (Gymnasium's)
    cost   = 1 if speed > speed limit else 0                       (SPEC erratum 5)

Speed is the displacement of the centre of mass from step to step, divided by the
control interval; as in Gymnasium, the centre is that of one substep before.
`cost="speed"` has the paper's printed cost, the speed itself, in its place.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from ecop.drawing.scenes import Pictures
from ecop.envs.mujoco import camera, torso
from ecop.envs.mujoco.physics import Physics, PhysicsOptions, load
from ecop.types import Box, Constraint, HostStep, Played, Spec

EULER_STEP = 0.005  # s
INTERVAL = 0.015  # s, between two actions; Gymnasium's
FORWARD, STANDING, CONTROL = 1.25, 5.0, 0.1  # weights of the reward
HEALTHY = (1.0, 2.0)  # m, height of the torso; outside it has fallen
STRIDE = 3  # steps from one picture to the next
NOISE = 0.01  # of the first pose and velocity
FULL = 0.4  # control at action 1, as in the model
JOINTS = 17
HORIZON = 200
LIMIT = 20.0


@dataclass(frozen=True)
class HumanoidOptions(PhysicsOptions):
    """Options of Humanoid."""

    cost: Literal["indicator", "speed"] = "indicator"
    """1 per step above the speed limit, or the speed itself in m/s"""
    speed_limit: float = 1.4149
    """m/s; Safety-Gymnasium's second version, its first had 2.3475"""


class Humanoid:
    """The task, for a batch of episodes."""

    def __init__(self, *, horizon: int = HORIZON, **options: Any) -> None:
        self.options = chosen = HumanoidOptions(**options)
        model = load("humanoid", EULER_STEP, chosen)
        self.robots = Physics(model, INTERVAL, chosen, derived=["subtree_com"])
        bound = horizon if chosen.cost == "indicator" else math.inf
        self.spec = Spec(
            observation_size=torso.size(JOINTS),
            action=Box(JOINTS),
            horizon=horizon,
            constraints=(Constraint("speed", LIMIT, bound),),
        )

    def reset(self, seeds: np.ndarray) -> np.ndarray:
        """Start near the model's pose, upright."""
        model, states = self.robots.model, []
        for seed in seeds:
            rng = np.random.default_rng(seed)
            states.append(
                (
                    model.qpos0 + rng.uniform(-NOISE, NOISE, model.nq),
                    rng.uniform(-NOISE, NOISE, model.nv),
                )
            )
        self.robots.start(*zip(*states, strict=True))
        return self.observe()

    def step(self, actions: np.ndarray) -> HostStep:
        """Run for one control interval."""
        robots = self.robots
        control = FULL * np.clip(actions, -1.0, 1.0)
        before = robots.centre[:, :2].copy()
        robots.step(control)
        vx, vy = (robots.centre[:, :2] - before).T / robots.interval
        speed = np.hypot(vx, vy)
        standing = torso.healthy(robots, *HEALTHY)
        effort = np.sum(control**2, axis=1)
        reward = FORWARD * vx + STANDING * standing - CONTROL * effort
        if self.options.cost == "indicator":
            costs = (speed > self.options.speed_limit)[:, None]
        else:
            costs = speed[:, None]
        return robots.outcome(self.observe(), reward, costs, ~standing)

    def observe(self) -> np.ndarray:
        """Sensors [B, 46]."""
        heading = torso.heading(self.robots.position)
        return torso.sensors(self.robots, heading).astype(np.float32)

    def film(self, episode: Played) -> Pictures:
        """The robot from the side."""
        view = camera.View(distance=4.5, elevation=-12.0)
        poses = camera.poses(self, episode, STRIDE)
        frames = camera.frames(self.robots.model, poses, (), view)
        return Pictures(frames, STRIDE, INTERVAL)

    def close(self) -> None:
        """Let go of the simulations."""
        self.robots.close()
