"""Navigation: layouts, solid pillars, goals, costs."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ecop.envs.point import dynamics, layout, navigation

TASK = navigation.Navigation()
PILLAR = jnp.zeros((1, 2), jnp.float32)
SURFACE = navigation.PILLAR_RADIUS + dynamics.RADIUS


def gaps(a, b):
    return np.linalg.norm(a[:, :, None] - b[:, None], axis=-1)


def test_layouts_of_thousands_of_seeds():
    keys = jax.random.split(jax.random.key(0), 3000)
    state, observation = jax.jit(jax.vmap(TASK.reset))(keys)
    pillars, hazards = np.asarray(state.arena.pillars), np.asarray(state.arena.hazards)
    start = np.asarray(state.robot.position)[:, None]
    goal = np.asarray(state.goal)[:, None]
    between = gaps(pillars, pillars) + 9.0 * np.eye(navigation.PILLARS)[None]
    assert between.min() >= 2 * SURFACE - 1e-5
    between = gaps(hazards, hazards) + 9.0 * np.eye(navigation.HAZARDS)[None]
    assert between.min() >= 2 * navigation.HAZARD_RADIUS - 1e-5
    assert gaps(pillars, hazards).min() > SURFACE + navigation.HAZARD_RADIUS - 1e-5
    assert gaps(start, pillars).min() > SURFACE
    assert gaps(start, hazards).min() > navigation.HAZARD_RADIUS
    assert gaps(start, goal).min() > navigation.GOAL_RADIUS
    assert gaps(goal, pillars).min() > SURFACE
    assert np.isfinite(observation).all()
    assert observation.shape == (3000, 60)
    # Every cell is used: no place of the arena is always empty.
    cells = np.round(pillars.reshape(-1, 2) / navigation.CELL + navigation.SIDE / 2)
    assert len(np.unique(cells, axis=0)) >= navigation.SIDE**2


def test_the_first_step_at_rest_costs_nothing():
    @jax.jit
    @jax.vmap
    def first(key):
        return TASK.step(key, TASK.reset(key)[0], jnp.zeros(2)).costs

    assert float(first(jax.random.split(jax.random.key(1), 2000)).max()) == 0.0


def test_a_goal_stays_until_reached_and_the_next_lies_elsewhere():
    @jax.jit
    @jax.vmap
    def arrive(key):
        state, _ = TASK.reset(key)
        robot = state.robot._replace(position=state.goal)
        both = jax.tree.map(lambda *x: jnp.stack(x), state.robot, robot)
        step = jax.vmap(lambda r: TASK.step(key, state._replace(robot=r), jnp.zeros(2)))
        return state, step(both)

    before, out = arrive(jax.random.split(jax.random.key(2), 2000))
    away, out = (jax.tree.map(lambda x, i=i: x[:, i], out) for i in range(2))
    np.testing.assert_array_equal(away.state.goal, before.goal)
    gap = np.linalg.norm(out.state.goal - before.goal, axis=1)
    assert gap.min() >= 2 * navigation.GOAL_KEEPOUT - 1e-5
    assert float(out.reward.min()) == pytest.approx(1.0)
    assert bool((out.state.cell != before.cell).all())


def collide(angle, aside, heading, action, speed=dynamics.TOP_SPEED):
    """Fly at a pillar from 1 m, `aside` of its centre; distances and contact [40]."""
    cos, sin = jnp.cos(angle), jnp.sin(angle)
    away, across = jnp.stack([cos, sin]), jnp.stack([-sin, cos])
    robot = dynamics.at_rest(away + aside * across, heading)
    robot = robot._replace(velocity=-speed * away)

    def step(robot, _):
        robot, touched = dynamics.advance_among(
            robot,
            action,
            PILLAR,
            navigation.PILLAR_RADIUS,
            timestep=navigation.TIMESTEP,
            substeps=navigation.SUBSTEPS,
        )
        return robot, (robot.position, touched)

    return jax.lax.scan(step, robot, None, length=40)[1]


def test_pillars_are_solid_at_top_speed():
    keys = jax.random.split(jax.random.key(4), 4)
    angle = jax.random.uniform(keys[0], (4000,), jnp.float32, -jnp.pi, jnp.pi)
    aside = jax.random.uniform(keys[1], (4000,), jnp.float32, -0.4, 0.4)
    heading = jax.random.uniform(keys[2], (4000,), jnp.float32, -jnp.pi, jnp.pi)
    action = jax.random.uniform(keys[3], (4000, 2), jnp.float32, -1.0, 1.0)
    position, touched = jax.jit(jax.vmap(collide))(angle, aside, heading, action)
    distance = np.linalg.norm(position, axis=-1)
    assert distance.min() > SURFACE - 1e-4
    assert touched.any(axis=1).mean() > 0.5
    # Nothing comes within reach of the surface without contact.
    far = np.asarray(~touched.any(axis=1))
    assert distance[far].min() >= SURFACE


def test_pushing_straight_at_a_pillar_stops_the_robot():
    zero = jnp.float32(0.0)
    position, touched = jax.jit(collide)(
        zero, zero, jnp.float32(jnp.pi), jnp.array([1.0, 0.0])
    )
    # Later it slides off: the balance is unstable.
    np.testing.assert_allclose(position[4], [SURFACE, 0.0], atol=1e-2)
    assert bool(touched[3:6].all())


def test_contact_takes_the_speed_into_the_pillar_only():
    robot = dynamics.at_rest(jnp.array([SURFACE - 0.01, 0.0]), jnp.float32(0.0))
    robot = robot._replace(velocity=jnp.array([-1.0, 0.5]))
    radius = navigation.PILLAR_RADIUS
    stopped, touched = dynamics.stop_at(robot, PILLAR, radius)
    assert bool(touched)
    np.testing.assert_allclose(stopped.position, [SURFACE, 0.0], atol=1e-6)
    np.testing.assert_allclose(stopped.velocity, [0.0, 0.5], atol=1e-6)
    leaving = robot._replace(velocity=jnp.array([1.0, 0.5]))
    stopped, _ = dynamics.stop_at(leaving, PILLAR, radius)
    np.testing.assert_allclose(stopped.velocity, [1.0, 0.5], atol=1e-6)


def test_costs_are_separate():
    state, _ = TASK.reset(jax.random.key(5))
    step = jax.jit(TASK.step)

    def costs(place):
        robot = dynamics.at_rest(place, jnp.float32(0.0))
        action = jnp.zeros(2, jnp.float32)
        return step(jax.random.key(0), state._replace(robot=robot), action).costs

    np.testing.assert_array_equal(costs(state.arena.hazards[0]), [1.0, 0.0])
    beside = state.arena.pillars[0] + jnp.array([SURFACE - 0.01, 0.0])
    np.testing.assert_array_equal(costs(beside)[1], 1.0)
    np.testing.assert_array_equal(costs(state.arena.free[0]), [0.0, 0.0])


def test_staggered_columns_keep_their_distance():
    cells = layout.centres(6, 1.0)
    moved = layout.staggered(jax.random.key(0), cells, 1.0)
    assert len(set(np.round(np.asarray(moved[:, 0]), 4).tolist())) == 6
    distance = np.abs(np.asarray(moved)[:, None] - np.asarray(moved)[None]).max(-1)
    assert (distance + 9.0 * np.eye(36)).min() >= 1.0 - 1e-5
