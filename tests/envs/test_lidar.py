"""Lidars, sensors, reward and hazard cost against recorded PointGoal traces."""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ecop.envs.lidar import lidar
from ecop.envs.point import dynamics, navigation

GOLDEN = json.loads(
    (Path(__file__).parents[1] / "golden" / "point_goal.json").read_text()
)


def recorded(name):
    trace = {k: jnp.array(v, jnp.float32) for k, v in GOLDEN[name].items()}
    north = trace["observation"][:, 9:11]  # the world's (0, -0.5) in the robot's frame
    trace["heading"] = jnp.arctan2(-north[:, 0], -north[:, 1])
    return trace


@pytest.mark.parametrize("name", GOLDEN)
def test_observation_of_the_recorded_pose(name):
    trace = recorded(name)
    arena = navigation.Arena(trace["hazards"], trace["vases"], jnp.zeros((1, 2)))

    @jax.jit
    @jax.vmap
    def observe(position, velocity, heading, turn):
        robot = dynamics.PointState(position, heading, velocity, turn)
        state = navigation.State(robot, trace["goal"], jnp.int32(0), arena)
        return navigation.observe(state, jnp.zeros(2))

    expected = trace["observation"]
    ours = observe(
        trace["position"], trace["velocity"], trace["heading"], expected[:, 8]
    )
    # The accelerometer's x and y need the simulator's last 2 ms, not only the pose.
    np.testing.assert_allclose(ours[:, 2:], expected[:, 2:], atol=1e-3)


@pytest.mark.parametrize("name", GOLDEN)
def test_reward_and_hazard_cost(name):
    trace = recorded(name)
    before = jnp.concatenate([trace["start"][None], trace["position"][:-1]])
    goal = trace["goal"]
    score = jax.jit(jax.vmap(lambda a, b: navigation.reward(a, b, goal)))
    reward, reached = score(before, trace["position"])
    assert not bool(reached.any())
    np.testing.assert_allclose(reward, trace["reward"], atol=1e-5)
    # Hazards of the recorded task have a radius of 0.2 m.
    cost = jax.jit(jax.vmap(lambda p: navigation.inside(p, trace["hazards"], 0.2)))
    np.testing.assert_array_equal(cost(trace["position"]), trace["cost"])


def slow_lidar(heading, offsets, reach):
    readings = np.zeros(16)
    for x, y in offsets:
        angle = (np.arctan2(y, x) - heading) % (2 * np.pi)
        bin, alias = divmod(angle / (2 * np.pi / 16), 1.0)
        near = max(0.0, reach - np.hypot(x, y)) / reach
        for i, share in ((0, 1.0), (1, alias), (-1, 1.0 - alias)):
            place = int(bin + i) % 16
            readings[place] = max(readings[place], share * near)
    return readings


def test_lidar_is_the_slow_one():
    draw = np.random.default_rng(0)
    headings = draw.uniform(-7, 7, 200).astype(np.float32)
    offsets = draw.uniform(-3, 3, (200, 5, 2)).astype(np.float32)
    fast = jax.jit(jax.vmap(lambda h, o: lidar(h, o, 3.0)))(headings, offsets)
    slow = [slow_lidar(h, o, 3.0) for h, o in zip(headings, offsets, strict=True)]
    np.testing.assert_allclose(fast, np.array(slow), atol=1e-5)


def test_lidar_is_continuous_in_the_angle():
    angles = jnp.linspace(-jnp.pi, jnp.pi, 4001)
    turning = jnp.stack([jnp.cos(angles), jnp.sin(angles)], axis=1)
    ahead = jnp.float32(0.0)
    readings = jax.jit(jax.vmap(lambda o: lidar(ahead, o[None], 3.0)))(turning)
    assert np.abs(np.diff(readings, axis=0)).max() < 0.005
    assert float(readings.max(axis=1).min()) == pytest.approx(2 / 3, abs=1e-5)
