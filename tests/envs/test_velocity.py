"""The Safe Velocity suite: step for step Gymnasium's robots, with a cost on speed."""

import warnings
from typing import Any

import gymnasium
import numpy as np
import pytest

import ecop
from ecop.envs.mujoco.robots import ROBOTS

NAMES = list(ROBOTS["v4"])
SEEDS = np.arange(4, dtype=np.uint32)
ALL = pytest.mark.parametrize("name", NAMES)
BOTH = pytest.mark.parametrize("version", list(ROBOTS))

# Thresholds and speeds of Safety-Gymnasium's Safety...Velocity-v1.
THRESHOLDS = {
    "Ant": 2.6222,
    "HalfCheetah": 3.2096,
    "Hopper": 0.7402,
    "Walker2d": 2.3415,
    "Swimmer": 0.2282,
    "Humanoid": 1.4149,
}
PLANE = ("Ant", "Humanoid")


def gymnasiums(name, version) -> Any:
    """Gymnasium's own robot."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*v4 is out of date")
        return gymnasium.make(f"{name}-{version}").unwrapped


def follow(name, version, steps, seeds):
    """Play both from the same seeds with the same actions; compare every step.

    Positions, velocities and rewards agree to 1e-9 relative to the larger of 1 and
    themselves, what is observed to the rounding of float32.
    """
    env = ecop.make(f"{name}Velocity", version=version)
    theirs = [gymnasiums(name, version) for _ in seeds]
    first = [
        robot.reset(seed=int(seed))[0]
        for robot, seed in zip(theirs, seeds, strict=True)
    ]
    np.testing.assert_array_equal(env.reset(seeds), np.array(first, np.float32))
    rng = np.random.default_rng(0)
    alive = np.ones(len(seeds), bool)
    for h in range(steps):
        scale = 1.0 if h % 100 < 50 else 0.3
        actions = rng.uniform(-scale, scale, (len(seeds), env.spec.action.size))
        out = env.step(actions)
        for i in np.flatnonzero(alive):
            control = theirs[i].model.actuator_ctrlrange[:, 1] * actions[i]
            seen, reward, ended, _, info = theirs[i].step(control)
            speed = info["x_velocity"]
            if name in PLANE:
                speed = (speed**2 + info["y_velocity"] ** 2) ** 0.5
            state = theirs[i].data.qpos, theirs[i].data.qvel
            np.testing.assert_array_equal(env.robots.position[i], state[0])
            np.testing.assert_array_equal(env.robots.velocity[i], state[1])
            np.testing.assert_array_equal(out.observation[i], seen.astype(np.float32))
            np.testing.assert_allclose(out.reward[i], reward, rtol=1e-12, atol=1e-12)
            assert out.failed[i] == ended
            assert out.costs[i, 0] == (speed > THRESHOLDS[name])
            alive[i] = not ended
        if not alive.any():
            break
    return h + 1


@ALL
@BOTH
def test_it_is_gymnasiums_robot(name, version):
    follow(name, version, 60, SEEDS)
