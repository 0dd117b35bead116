"""The Safe Velocity suite: run, but not faster than the threshold.

    reward = forward x velocity + standing - control |control|^2 - contact |forces|^2
    cost   = 1 if speed > threshold else 0

Weights, thresholds and rules are in robots.py. With `version="v4"` a task is that of
Safety-Gymnasium, with `version="v5"` and an infinite limit Gymnasium's own robot, both
step for step (tests/envs/test_velocity.py). First states are those that Gymnasium draws
from the same seed.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, prod
from typing import Any

import numpy as np

from ecop.drawing.scenes import Pictures
from ecop.envs.mujoco import camera
from ecop.envs.mujoco.physics import FORCES, Physics, ThreadOptions, read
from ecop.envs.mujoco.robots import ROBOTS, Version
from ecop.errors import UserError, unknown
from ecop.types import Box, Constraint, HostStep, Played, Spec

HORIZON = 1000
LIMIT = 25.0
PLACES = {"joints": (), "torso": ("xpos",), "centre": ("subtree_com",)}
FRAME = 0.04  # s, at least, from one picture to the next


@dataclass(frozen=True)
class VelocityOptions(ThreadOptions):
    """Options of the Safe Velocity tasks."""

    version: Version = "v4"
    """"v4": the robots as Safety-Gymnasium has them; "v5": Gymnasium's latest"""

    def __post_init__(self) -> None:
        ThreadOptions.__post_init__(self)
        if self.version not in ROBOTS:
            raise UserError(unknown("version", self.version, ROBOTS))


class Velocity:
    """One of the tasks, for a batch of episodes."""

    def __init__(self, name: str, *, horizon: int = HORIZON, **options: Any) -> None:
        chosen = VelocityOptions(**options)
        self.robot = robot = ROBOTS[chosen.version][name]
        model = read(robot.model)
        derived = [*PLACES[robot.place], *(field for field, _ in robot.derived)]
        interval = robot.substeps * model.opt.timestep
        self.robots = Physics(model, interval, chosen, derived=derived)
        self.full = model.actuator_ctrlrange[:, 1]  # ranges are symmetric
        sizes = [model.nq - robot.hidden + model.nv]
        for field, first in robot.derived:
            rows, *entries = self.robots.shape(field)
            sizes.append((rows - first) * prod(entries))
        self.ends = np.cumsum(sizes).tolist()
        self.spec = Spec(
            observation_size=self.ends[-1],
            action=Box(model.nu),
            horizon=horizon,
            constraints=(Constraint("speed", LIMIT, bound=horizon),),
        )

    def reset(self, seeds: np.ndarray) -> np.ndarray:
        """Start near the model's pose, as Gymnasium does from the same seed."""
        model, robot, states = self.robots.model, self.robot, []
        for seed in seeds:
            rng = np.random.default_rng(seed)
            position = model.qpos0 + rng.uniform(-robot.noise, robot.noise, model.nq)
            if robot.noise_of_velocity == "normal":
                velocity = robot.noise * rng.standard_normal(model.nv)
            else:
                velocity = rng.uniform(-robot.noise, robot.noise, model.nv)
            states.append((position, velocity))
        self.robots.start_as_gymnasium(*zip(*states, strict=True))
        return self.observe()

    def step(self, actions: np.ndarray) -> HostStep:
        """Run for one control interval."""
        robot, robots = self.robot, self.robots
        control = self.full * np.minimum(np.maximum(actions, -1.0), 1.0)
        before = self.place().copy()
        robots.step(control)
        vx, vy = (self.place() - before).T / robots.interval
        speed = np.hypot(vx, vy) if robot.plane else vx
        healthy = robot.healthy(robots.state)
        paid = robot.standing if robot.pay_fall else robot.standing * healthy
        effort = (control * control).sum(axis=1)
        reward = robot.forward * vx + paid - robot.control * effort
        if robot.contact:
            force = (self.forces() ** 2).sum(axis=(1, 2))
            reward = reward - np.minimum(robot.contact * force, robot.contact_bound)
        costs = (speed > robot.threshold)[:, None]
        return robots.outcome(self.observe(), reward, costs, ~healthy)

    def place(self) -> np.ndarray:
        """What the speed is of, a live view [B, 2]."""
        robots = self.robots
        if self.robot.place == "torso":
            return robots.derived["xpos"][:, 1, :2]
        if self.robot.place == "centre":
            return robots.centre[:, :2]
        return robots.position[:, :2]

    def forces(self) -> np.ndarray:
        """Contact forces on the bodies, within their bound [B, bodies, 6]."""
        return bounded(self.robots.derived[FORCES], self.robot.force_bound)

    def observe(self) -> np.ndarray:
        """Pose, velocity and what the robot has beside them [B, O]."""
        robot, robots = self.robot, self.robots
        count = len(robots.state)
        parts = [robots.state[:, robot.hidden :]]
        for field, first in robot.derived:
            rows = self.forces() if field == FORCES else robots.derived[field]
            parts.append(rows[:, first:].reshape(count, -1))
        seen = np.empty((count, self.spec.observation_size), np.float32)
        for part, end in zip(parts, self.ends, strict=True):
            seen[:, end - part.shape[1] : end] = part
        if robot.velocity_bound < inf:
            pace = seen[:, robots.model.nq - robot.hidden : self.ends[0]]
            np.clip(pace, -robot.velocity_bound, robot.velocity_bound, out=pace)
        return seen

    def film(self, episode: Played) -> Pictures:
        """The robot from the side."""
        stride = max(1, round(FRAME / self.robots.interval))
        view = camera.View(4.0, -12.0, sideways=self.robot.hidden == 2)
        poses = camera.poses(self, episode, stride)
        frames = camera.frames(self.robots.model, poses, (), view)
        return Pictures(frames, stride, self.robots.interval)

    def close(self) -> None:
        """Let go of the simulations."""
        self.robots.close()


def bounded(values: np.ndarray, bound: float) -> np.ndarray:
    """The values from -bound to bound."""
    return values if bound == inf else np.clip(values, -bound, bound)


def ant(**options: Any) -> Velocity:
    """AntVelocity."""
    return Velocity("Ant", **options)


def half_cheetah(**options: Any) -> Velocity:
    """HalfCheetahVelocity."""
    return Velocity("HalfCheetah", **options)


def hopper(**options: Any) -> Velocity:
    """HopperVelocity."""
    return Velocity("Hopper", **options)


def walker2d(**options: Any) -> Velocity:
    """Walker2dVelocity."""
    return Velocity("Walker2d", **options)


def swimmer(**options: Any) -> Velocity:
    """SwimmerVelocity."""
    return Velocity("Swimmer", **options)


def humanoid(**options: Any) -> Velocity:
    """HumanoidVelocity."""
    return Velocity("Humanoid", **options)
