"""PointReach: the endless field, contact, progress."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ecop.envs import field
from ecop.envs.point import dynamics, reach

TASK = reach.PointReach()
CONTACT = reach.OBSTACLE_RADIUS + dynamics.RADIUS


def test_fields_of_thousands_of_seeds():
    @jax.jit
    @jax.vmap
    def draw(key):
        state, observation = TASK.reset(key)
        between = jax.vmap(lambda o: field.offsets(o, state.obstacles, reach.TILE))
        first = TASK.step(key, state, jnp.zeros(2)).costs
        return state, observation, between(state.obstacles), first

    keys = jax.random.split(jax.random.key(0), 3000)
    state, observation, between, costs = draw(keys)
    gap = np.linalg.norm(between, axis=-1) + 9.0 * np.eye(reach.OBSTACLES)[None]
    assert gap.min() >= 2 * CONTACT - 1e-5
    assert float(costs.max()) == 0.0
    assert observation.shape == (3000, 44)
    assert np.isfinite(observation).all()
    assert np.linalg.norm(state.obstacles, axis=-1).min() > CONTACT


def test_the_field_repeats_in_all_directions():
    state, _ = TASK.reset(jax.random.key(1))
    here = state.obstacles[0] + jnp.array([0.1, 0.1])
    far = here + jnp.array([5.0, -3.0]) * reach.TILE
    ours = field.offsets(here, state.obstacles, reach.TILE)
    np.testing.assert_allclose(
        field.offsets(far, state.obstacles, reach.TILE), ours, atol=1e-4
    )
    assert float(reach.cost(far, state.obstacles)) == 1.0
    beside = state.obstacles[0] + jnp.array([CONTACT + 0.01, 0.0])
    assert float(reach.cost(beside, state.obstacles)) == 0.0


def test_the_goal_is_out_of_reach():
    interval = reach.TIMESTEP * reach.SUBSTEPS
    farthest = dynamics.TOP_SPEED * interval * reach.HORIZON
    assert farthest < reach.GOAL[0]
    state, _ = TASK.reset(jax.random.key(2))
    robot = dynamics.at_rest(jnp.zeros(2), jnp.float32(0.0))

    def step(state, _):
        out = TASK.step(jax.random.key(0), state, jnp.array([1.0, 0.0]))
        return out.state, out.reward

    last, reward = jax.jit(lambda s: jax.lax.scan(step, s, None, length=reach.HORIZON))(
        state._replace(robot=robot)
    )
    travelled = float(last.robot.position[0])
    assert float(reward.sum()) == pytest.approx(travelled, abs=1e-3)
    assert 28.0 < travelled < 30.0
