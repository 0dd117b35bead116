"""The Safe Velocity suite: step for step Gymnasium's robots, with a cost on speed."""

import warnings
from dataclasses import replace
from typing import Any

import gymnasium
import numpy as np
import pytest

import ecop
from ecop.envs.mujoco import camera, physics, robots
from ecop.envs.mujoco.robots import ROBOTS
from ecop.errors import UserError
from ecop.types import Filmed, HostEnv, Played

# Thresholds of Safety-Gymnasium's Safety...Velocity-v1.
THRESHOLDS = {
    "Ant": 2.6222,
    "HalfCheetah": 3.2096,
    "Hopper": 0.7402,
    "Walker2d": 2.3415,
    "Swimmer": 0.2282,
    "Humanoid": 1.4149,
}
PLANE = ("Ant", "Humanoid")  # speed to the side counts
ALL = pytest.mark.parametrize("name", list(THRESHOLDS))
BOTH = pytest.mark.parametrize("version", ["v4", "v5"])
SEEDS = np.arange(4, dtype=np.uint32)


def gymnasiums(name, version) -> Any:
    """Gymnasium's own robot."""
    with warnings.catch_warnings(), physics.Quiet(physics.library()):
        warnings.filterwarnings("ignore", ".*v4 is out of date")
        return gymnasium.make(f"{name}-{version}").unwrapped


def follow(name, version, seeds, steps, scale, *, falls=True):
    """Play ours and theirs side by side; every step is compared.

    Now and then both are pushed, so that they are too fast. States and observations
    agree to the bit, rewards to 1e-12. Returns the steps that were compared, the costs
    and the falls. Without `falls`, neither ends there.
    """
    env = ecop.make(f"{name}Velocity", version=version)
    if not falls:
        env.robot = replace(env.robot, healthy=robots.always)
    theirs = [gymnasiums(name, version) for _ in seeds]
    pairs = list(zip(theirs, seeds, strict=True))
    first = [robot.reset(seed=int(seed))[0] for robot, seed in pairs]
    np.testing.assert_array_equal(env.reset(seeds), np.array(first, np.float32))
    rng = np.random.default_rng(0)
    alive = np.ones(len(seeds), bool)
    compared = costs = fallen = 0
    for h in range(steps):
        if h % 50 == 5:
            env.robots.velocity[alive, 0] = push = 2.0 * THRESHOLDS[name]
            for i in np.flatnonzero(alive):
                theirs[i].data.qvel[0] = push
        actions = rng.uniform(-scale, scale, (len(seeds), env.spec.action.size))
        out = env.step(actions)
        for i in np.flatnonzero(alive):
            full = theirs[i].model.actuator_ctrlrange[:, 1]
            control = full * np.clip(actions[i], -1.0, 1.0)
            seen, reward, ended, _, info = theirs[i].step(control)
            if not falls and ended and version == "v5":
                reward += env.robot.standing
            np.testing.assert_array_equal(env.robots.position[i], theirs[i].data.qpos)
            np.testing.assert_array_equal(env.robots.velocity[i], theirs[i].data.qvel)
            np.testing.assert_array_equal(out.observation[i], seen.astype(np.float32))
            np.testing.assert_allclose(out.reward[i], reward, rtol=1e-12, atol=1e-12)
            speed = info["x_velocity"]
            if name in PLANE:
                speed = np.sqrt(speed**2 + info["y_velocity"] ** 2)
            assert out.costs[i, 0] == (speed > THRESHOLDS[name])
            assert out.failed[i] == (ended and falls)
            costs += out.costs[i, 0]
            compared += 1
            fallen += out.failed[i]
        alive = ~out.failed
    env.close()
    return compared, costs, fallen


@ALL
@BOTH
def test_it_is_gymnasiums_robot(name, version):
    compared, costs, fallen = follow(name, version, SEEDS[:2], 60, 1.2)
    assert compared > 30
    assert 0 < costs < compared
    if name == "Humanoid":
        assert fallen == 2


@pytest.mark.slow
@ALL
@BOTH
def test_it_is_gymnasiums_robot_for_hundreds_of_steps(name, version):
    """To the end of episodes, and through falls."""
    compared, _, fallen = follow(name, version, SEEDS, 1000, 0.3)
    assert fallen == 4 if name in ("Hopper", "Walker2d", "Humanoid") else compared > 999
    compared, costs, _ = follow(name, version, SEEDS, 500, 1.0, falls=False)
    assert compared == 2000
    assert 0 < costs < 2000


@ALL
@BOTH
def test_the_spec_is_true(name, version):
    env: Any = ecop.make(f"{name}Velocity", version=version)
    assert all(isinstance(env, protocol) for protocol in (HostEnv, Filmed))
    assert env.spec.horizon == 1000
    assert env.spec.limits == (25.0,)
    first = env.reset(SEEDS)
    actions = np.zeros((4, env.spec.action.size), np.float32)
    for step in (env.step(actions), env.step(actions)):
        assert step.observation.shape == first.shape == (4, env.spec.observation_size)
        assert step.observation.dtype == first.dtype == np.float32
        assert step.reward.shape == step.failed.shape == (4,)
        assert step.costs.shape == (4, 1)
    low, high = env.robots.model.actuator_ctrlrange.T
    np.testing.assert_array_equal(low, -high)


@ALL
def test_an_episode_has_the_same_bits_in_any_company_and_with_any_threads(name):
    def play(seeds, threads):
        env = ecop.make(f"{name}Velocity", threads=threads, version="v5")
        env.reset(seeds)
        shape = 30, env.spec.action.size
        rows = [np.random.default_rng(s).uniform(-1.0, 1.0, shape) for s in seeds]
        return [env.step(actions) for actions in np.stack(rows, axis=1)]

    alone, among = play(SEEDS[2:3], 1), play(SEEDS, 3)
    for one, all_of_them in zip(alone, among, strict=True):
        for mine, theirs in zip(one, all_of_them, strict=True):
            np.testing.assert_array_equal(mine[0], theirs[2])


def test_contact_forces_are_those_of_the_robots_own_step():
    """A robot that lost contact feels nothing; one that fell feels nothing new."""
    env = ecop.make("AntVelocity", version="v5")
    env.reset(SEEDS)
    forces = env.robots.derived[physics.FORCES]
    still = np.zeros((4, 8), np.float32)
    for _ in range(20):
        env.step(still)
    assert (np.abs(forces).max(axis=(1, 2)) > 0).all()
    env.robots.position[1, 2] = 0.95
    env.step(still)
    assert not forces[1].any()
    assert forces[0].any()


def test_a_fallen_robot_stands_still():
    env = ecop.make("HopperVelocity", version="v5")
    env.reset(SEEDS)
    env.robots.position[1, 2] = 0.5
    out = env.step(np.zeros((4, 3), np.float32))
    assert out.failed.tolist() == [False, True, False, False]
    assert out.reward[0] > 0.5 > out.reward[1]
    lying = env.robots.position[1].copy()
    out = env.step(np.ones((4, 3), np.float32))
    np.testing.assert_array_equal(env.robots.position[1], lying)
    assert out.failed.tolist() == [False, True, False, False]


def test_an_unstable_simulation_fails_alone():
    env = ecop.make("HalfCheetahVelocity")
    env.reset(SEEDS)
    env.robots.velocity[2, 4] = np.nan
    for h in range(3):
        out = env.step(np.full((4, 6), 0.1, np.float32))
        assert out.failed.tolist() == [False, False, True, False]
        assert np.isfinite(out.observation).all()
        assert np.isfinite(out.reward).all()
        assert h or out.reward[2] == out.costs[2, 0] == 0.0
    assert env.robots.unstable == 1


def test_rules_of_health():
    state = np.zeros((4, 18))
    state[:, 1:3] = [[1.2, 0.0], [1.2, 1.1], [0.8, 0.0], [2.0, 0.0]]
    assert robots.walker_stands(state).tolist() == [True, False, False, False]
    state[:, 1:3] = [[0.71, 0.19], [0.7, 0.0], [1.0, -0.2], [np.nan, 0.0]]
    assert robots.hopper_stands(state).tolist() == [True, False, False, False]
    state[:, 1:3] = [1.0, 0.0]
    state[:, 9] = [99.0, -100.0, np.inf, np.nan]
    assert robots.hopper_stands(state).tolist() == [True, False, False, False]
    state[:, 2] = 0.5
    assert robots.ant_stands(state).tolist() == [True, True, False, False]
    state[:, 9] = 0.0
    state[:, 2] = [0.2, 1.0, 1.01, 0.19]
    assert robots.ant_stands(state).tolist() == [True, True, False, False]
    state[:, 2] = [1.0, 1.01, 1.99, 2.0]
    assert robots.humanoid_stands(state).tolist() == [False, True, True, False]


def test_contact_takes_at_most_its_bound():
    env = ecop.make("HumanoidVelocity", version="v5")
    env.reset(SEEDS)
    paid = [env.step(np.zeros((4, 17), np.float32)).reward]
    env.reset(SEEDS)
    env.robot = replace(env.robot, contact=1e9, contact_bound=0.25)
    env.robots.position[0, 2] -= 0.15
    felt = env.step(np.zeros((4, 17), np.float32))
    assert felt.reward[1] == paid[0][1]
    env.robot = replace(env.robot, contact=0.0)
    env.reset(SEEDS)
    env.robots.position[0, 2] -= 0.15
    free = env.step(np.zeros((4, 17), np.float32))
    assert free.reward[0] - felt.reward[0] == pytest.approx(0.25)


@ALL
def test_pictures(name):
    env = ecop.make(f"{name}Velocity", horizon=11)
    still = np.zeros((11, env.spec.action.size), np.float32)
    film = env.film(Played(0, still, np.zeros(11), np.zeros((11, 1)), None))
    assert film.stride * film.seconds == pytest.approx(0.045, abs=0.006)
    try:
        pictures = list(film.frames)
    except UserError as error:
        pytest.skip(str(error))
    assert len(pictures) == -(-11 // film.stride)
    assert pictures[0].shape == (camera.HEIGHT, camera.WIDTH, 3)
    assert np.std(pictures[0]) > 10


def test_bad_options():
    with pytest.raises(UserError, match="v5"):
        ecop.make("AntVelocity", version="v6")
    with pytest.raises(UserError, match="threads"):
        ecop.make("AntVelocity", threads=-1)
    assert set(ROBOTS["v4"]) == set(ROBOTS["v5"]) == set(THRESHOLDS)
