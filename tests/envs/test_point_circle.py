"""The Point robot against recorded traces of the reference simulator."""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ecop.envs.point import circle, dynamics

GOLDEN = json.loads(
    (Path(__file__).parents[1] / "golden" / "point_circle.json").read_text()
)


def at_rest(x=0.0, y=0.0, heading=0.0):
    zero = jnp.zeros((), jnp.float32)
    return dynamics.PointState(
        jnp.array([x, y], jnp.float32), jnp.float32(heading), jnp.zeros(2), zero
    )


def drive(state, actions, timestep, substeps):
    def step(state, action):
        state = dynamics.advance(state, action, timestep=timestep, substeps=substeps)
        return state, state

    return jax.jit(lambda s, a: jax.lax.scan(step, s, a))(
        state, jnp.asarray(actions, jnp.float32)
    )[1]


def test_trace_of_the_reference_simulator():
    mx, my = GOLDEN["magnetometer"]  # the world's (0, -0.5) in the robot's frame
    x, y = GOLDEN["start"]
    start = at_rest(x, y, np.arctan2(-mx, -my))
    states = drive(start, GOLDEN["action"], 0.002, 10)
    position, velocity = np.array(GOLDEN["position"]), np.array(GOLDEN["velocity"])
    error = np.linalg.norm(states.position - position, axis=1)
    assert error[:20].max() < 0.002
    assert error.max() < 0.01
    assert np.abs(states.velocity - velocity).max() < 0.03
    # The reference divides by the radius and scales by 0.1.
    ours = jax.vmap(circle.reward)(states.position, states.velocity)
    radius = np.linalg.norm(states.position, axis=1)
    np.testing.assert_allclose(0.1 * ours / radius, GOLDEN["reward"], atol=0.002)
    ours = jax.vmap(circle.cost)(states.position)
    np.testing.assert_array_equal(ours, GOLDEN["cost"])


@pytest.mark.parametrize("thrust", [0.05, 1.0])
def test_speed_under_full_thrust(thrust):
    states = drive(at_rest(), np.tile([thrust, 0.0], (100, 1)), 0.002, 10)
    speed = np.linalg.norm(states.velocity, axis=1)[[0, 4, 9, 19, 49, 99]]
    np.testing.assert_allclose(
        speed, [0.0566, 0.2626, 0.4791, 0.8051, 1.2809, 1.468], atol=1.5e-4
    )
    slow, expected = 0.0, []
    for _ in range(1000):
        slow += 0.002 * (0.3 * 0.05 - 0.01 * slow) / (0.00518879 + 0.002 * 0.01)
        expected.append(slow)
    np.testing.assert_allclose(
        np.linalg.norm(states.velocity, axis=1), expected[9::10], rtol=1e-5
    )


def test_turning_rates():
    states = drive(at_rest(), np.tile([0.0, 1.0], (40, 1)), 0.002, 10)
    assert float(states.turn[-1]) == pytest.approx(3.0, abs=0.01)


def test_the_tasks_coarser_substeps_follow_the_fine_ones():
    actions = np.tile(np.array([[1.0, 0.3], [1.0, -0.2]]), (25, 1)).repeat(4, 0)[:100]
    coarse = drive(at_rest(), actions, circle.TIMESTEP, circle.SUBSTEPS)
    fine = drive(at_rest(), actions, 0.002, 50)
    gap = np.linalg.norm(coarse.position - fine.position, axis=1)
    assert gap[:50].max() < 0.1
    assert np.linalg.norm(fine.position[-1]) > 3.0


def test_reward_and_cost_of_the_paper():
    position, velocity = jnp.array([1.2, -0.9]), jnp.array([0.3, 0.4])
    slow = (0.3 * 0.9 + 0.4 * 1.2) / (1 + abs(1.5 - 1.5))
    assert float(circle.reward(position, velocity)) == pytest.approx(slow)
    assert float(circle.cost(position)) == 1.0
    assert float(circle.cost(-position)) == 1.0
    assert float(circle.cost(jnp.array([1.1, 3.0]))) == 0.0
