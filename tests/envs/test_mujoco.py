"""AntCircle, AntReach and Humanoid: physics, guarantees, formulas."""

from typing import Any

import gymnasium
import jax
import numpy as np
import pytest
from PIL import Image, ImageSequence

import ecop
from ecop import cli
from ecop.envs.mujoco import (
    ant,
    ant_circle,
    ant_reach,
    camera,
    humanoid,
    physics,
    torso,
)
from ecop.errors import UserError
from ecop.learning import normaliser
from ecop.learning.networks import Policy
from ecop.rollout import Actor, collect_host
from ecop.types import Filmed, HostEnv, Played

mujoco = physics.library()
TASKS = ("AntCircle", "AntReach", "Humanoid")
SEEDS = np.arange(6, dtype=np.uint32)


def draw_actions(env, seeds, steps, scale):
    """Random actions [steps, B, A] that depend on the seed alone."""
    size = (steps, env.spec.action.size)
    rows = [np.random.default_rng(s).uniform(-scale, scale, size) for s in seeds]
    return np.stack(rows, axis=1).astype(np.float32)


def play(env, seeds, steps, scale=0.5):
    """The first observations, and what followed on random actions."""
    actions = draw_actions(env, seeds, steps, scale)
    return env.reset(seeds), [env.step(action) for action in actions]


def same(a, b):
    jax.tree.map(np.testing.assert_array_equal, a, b)


@pytest.mark.parametrize("name", TASKS)
def test_the_spec_is_true(name):
    env = ecop.make(name)
    assert isinstance(env, HostEnv)
    assert isinstance(env, Filmed)
    first, steps = play(env, SEEDS, 3)
    assert first.shape == (6, env.spec.observation_size)
    assert first.dtype == np.float32
    for step in steps:
        assert step.observation.shape == first.shape
        assert step.observation.dtype == np.float32
        assert step.reward.shape == step.failed.shape == (6,)
        assert step.costs.shape == (6, 1)
    env.close()


@pytest.mark.parametrize("name", TASKS)
def test_an_episode_has_the_same_bits_in_any_company_and_with_any_threads(name):
    alone = play(ecop.make(name, threads=1), SEEDS[4:5], 30, 1.0)
    env = ecop.make(name, threads=3)
    for _ in range(2):
        among = play(env, SEEDS, 30, 1.0)
        same(alone, jax.tree.map(lambda x: x[4:5], among))


@pytest.mark.parametrize("integrator", ["rk4", "euler"])
def test_the_ant_is_gymnasiums(integrator):
    """With RK4, step for step to the bit; Euler at 5 ms soon goes its own way."""
    made = gymnasium.make("Ant-v5", include_cfrc_ext_in_observation=False)
    theirs: Any = made.unwrapped
    theirs.reset(seed=3)
    ours = ant.physics(physics.PhysicsOptions(integrator=integrator))
    ours.start([theirs.data.qpos], [theirs.data.qvel])
    ours.position[:] = theirs.data.qpos  # not normalised, as theirs
    ours.velocity[:] = theirs.data.qvel
    rng = np.random.default_rng(0)
    gaps = []
    for _ in range(50):
        action = rng.uniform(-1.0, 1.0, 8)
        seen, *_ = theirs.step(action)
        ours.step(action[None])
        state = np.concatenate([ours.position[0, 2:], ours.velocity[0]])
        gaps.append(np.abs(seen - state).max())
    if integrator == "rk4":
        assert max(gaps) == 0.0
    else:
        assert gaps[0] < 0.5
        assert max(gaps) > 1e-3


def test_the_humanoid_earns_what_gymnasiums_does():
    theirs: Any = gymnasium.make("Humanoid-v5", contact_cost_weight=0.0).unwrapped
    theirs.reset(seed=1)
    env = humanoid.Humanoid(integrator="rk4")
    env.robots.start([theirs.data.qpos], [theirs.data.qvel])
    action = np.full(17, 0.3, np.float32)
    for _ in range(8):
        _, reward, *_ = theirs.step(0.4 * action)
        out = env.step(action[None])
        np.testing.assert_allclose(env.robots.position[0], theirs.data.qpos, atol=1e-9)
        assert out.reward[0] == pytest.approx(reward, rel=1e-6)


def test_heading_and_tilt_against_the_rotation_matrix():
    env = ecop.make("AntReach")
    play(env, SEEDS, 25, 1.0)
    position = env.robots.position
    for i, quaternion in enumerate(position[:, 3:7]):
        matrix = np.zeros(9)
        mujoco.mju_quat2Mat(matrix, quaternion)
        matrix = matrix.reshape(3, 3)
        np.testing.assert_allclose(torso.upward(position)[i], matrix[2], atol=1e-12)
        angle = np.arctan2(matrix[1, 0], matrix[0, 0])
        np.testing.assert_allclose(torso.heading(position)[i], angle, atol=1e-12)


def test_circle_formulas():
    env = ant_circle.AntCircle()
    env.reset(SEEDS)
    before = env.robots.position[:, :2].copy()
    out = env.step(np.zeros((6, 8), np.float32))
    for i, (x, y) in enumerate(env.robots.position[:, :2]):
        vx, vy = ((x, y) - before[i]) / 0.05
        away = abs((x**2 + y**2) ** 0.5 - ant_circle.RADIUS)
        assert out.reward[i] == pytest.approx((-y * vx + x * vy) / (1 + away))
    env.robots.position[:3, 0] = [-4.0, 4.0, 0.0]
    out = env.step(np.zeros((6, 8), np.float32))
    assert out.costs[:3, 0].tolist() == [1.0, 1.0, 0.0]


def test_reach_progress_and_contact():
    env = ant_reach.AntReach()
    env.reset(SEEDS)
    assert (np.linalg.norm(env.near(), axis=-1).min(axis=1) > 0.8).all()
    shifted = env.obstacles[0, 0] + [3 * ant_reach.TILE, -2 * ant_reach.TILE]
    env.robots.position[0, :2] = shifted
    env.robots.position[1, :2] = env.obstacles[1, 0] - [ant_reach.TILE, 0.0]
    before = np.linalg.norm(ant_reach.GOAL - shifted)
    out = env.step(np.zeros((6, 8), np.float32))
    after = np.linalg.norm(ant_reach.GOAL - env.robots.position[0, :2])
    assert out.costs[:, 0].tolist() == [1.0, 0.0, 0.0, 0.0, 0.0, 0.0]
    assert out.reward[0] == pytest.approx(before - after)


def test_fields_of_many_seeds_do_not_overlap():
    for seed in range(300):
        obstacles = ant_reach.draw_tile(np.random.default_rng(seed))
        gap = obstacles[:, None] - obstacles[None]
        gap -= ant_reach.TILE * np.round(gap / ant_reach.TILE)
        gap = np.linalg.norm(gap, axis=-1) + 99 * np.eye(len(obstacles))
        assert gap.min() >= 2 * ant_reach.OBSTACLE_RADIUS


def test_speed_costs():
    for cost in ("indicator", "speed"):
        env = humanoid.Humanoid(cost=cost)
        env.reset(SEEDS)
        env.robots.velocity[:3, 0] = 3.0
        before = env.robots.centre[:, :2].copy()
        out = env.step(np.zeros((6, 17), np.float32))
        speed = (
            np.linalg.norm(env.robots.centre[:, :2] - before, axis=1)
            / env.robots.interval
        )
        if cost == "speed":
            np.testing.assert_allclose(out.costs[:, 0], speed)
        else:
            assert out.costs[:, 0].tolist() == [1.0, 1.0, 1.0, 0.0, 0.0, 0.0]


def test_a_fallen_robot_stands_still():
    env = ecop.make("Humanoid")
    env.reset(SEEDS)
    env.robots.position[1, 2] = 0.9
    out = env.step(np.zeros((6, 17), np.float32))
    assert out.failed.tolist() == [False, True, False, False, False, False]
    lying = env.robots.position[1].copy()
    out = env.step(np.ones((6, 17), np.float32))
    np.testing.assert_array_equal(env.robots.position[1], lying)
    assert out.failed[1]


def test_an_unstable_simulation_fails_alone(caplog, capfd, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    env = ecop.make("AntCircle")
    calm = play(env, SEEDS, 6)[1][-1]
    env.reset(SEEDS)
    steps = []
    for h, action in enumerate(draw_actions(env, SEEDS, 6, 0.5)):
        if h == 2:
            env.robots.velocity[3, 7] = np.nan
            env.robots.velocity[5, 7] = 1e12
        steps.append(env.step(action))
    broken = steps[2]
    assert broken.failed.tolist() == [False, False, False, True, False, True]
    assert broken.reward[[3, 5]].tolist() == [0.0, 0.0]
    assert broken.costs[[3, 5], 0].tolist() == [0.0, 0.0]
    assert env.robots.unstable == 2
    assert "unstable" in caplog.text
    for step in steps:
        assert np.isfinite(step.observation).all()
        assert np.isfinite(step.reward).all()
    others = [0, 1, 2, 4]
    same(steps[-1].observation[others], calm.observation[others])
    assert "WARNING" not in capfd.readouterr().err  # MuJoCo's own, and its log file
    assert not list(tmp_path.iterdir())
    env.reset(SEEDS)
    assert env.robots.alive.all()


@pytest.mark.parametrize("name", TASKS)
def test_a_killed_run_resumes_to_the_same_bits(name, tmp_path):
    options = {
        "seeds": 2,
        "episodes": 3,
        "horizon": 10,
        "hidden": (8,),
        "critic_epochs": 1,
    }
    whole = ecop.train(name, "ppo", iterations=4, **options)
    ecop.train(name, "ppo", iterations=2, out=tmp_path / "run", **options)
    resumed = ecop.resume(tmp_path / "run", iterations=4)
    same(whole.states[1].policy, resumed.states[1].policy)
    if name == "AntReach":
        film(tmp_path / "run")


def film(run):
    with pytest.raises(UserError, match=r"\.gif or \.mp4"):
        cli.render_command([str(run), "--out", str(run / "episode.png")])
    try:
        cli.render_command([str(run), "--out", str(run / "episode.mp4")])
    except UserError as error:
        pytest.skip(str(error))
    assert (run / "episode.mp4").read_bytes()[4:8] == b"ftyp"
    cli.render_command([str(run)])
    with Image.open(run / "episode.gif") as image:
        frames = sum(1 for _ in ImageSequence.Iterator(image))
    assert frames == 5  # every second of 10 steps


def test_pictures():
    env = ant_reach.AntReach(horizon=4)
    still = np.zeros((4, 8), np.float32)
    film = env.film(Played(0, still, np.zeros(4), np.zeros((4, 1)), None))
    try:
        pictures = list(film.frames)
    except UserError as error:
        pytest.skip(str(error))
    assert [p.shape for p in pictures] == [(camera.HEIGHT, camera.WIDTH, 3)] * 2
    assert np.std(pictures[0]) > 10
    assert (pictures[0] != pictures[1]).any()


def test_no_way_to_draw_is_said(monkeypatch):
    monkeypatch.setattr(camera, "LIBRARIES", {"egl": "libnone.so", "osmesa": "no.so"})
    with pytest.raises(UserError, match="apt-get install libosmesa6"):
        camera.context()


def test_a_missing_simulator_is_said(monkeypatch):
    find = physics.importlib.util.find_spec

    def without(name):
        return None if name == "mujoco" else find(name)

    monkeypatch.setattr(physics.importlib.util, "find_spec", without)
    with pytest.raises(UserError, match=r"pip install 'ecop\[mujoco\]'"):
        ecop.make("Humanoid")


def test_bad_options():
    with pytest.raises(UserError, match="threads"):
        ecop.make("AntCircle", threads=-1)


def test_an_episode_has_the_same_bits_in_any_company():
    """With the policy: whatever the number of episodes and the other seeds."""
    env = ecop.make("AntCircle", horizon=6)
    policy = Policy(env.spec, hidden=(64, 64))
    start = normaliser.init(env.spec.observation_size)
    actors = [Actor(policy.init(jax.random.key(s)), start) for s in range(2)]
    keys = [jax.random.key(10 + s) for s in range(2)]
    collect = collect_host(env, policy)
    both = collect(actors, keys, [5, 3])
    alone = collect(actors[1:], keys[1:], [2])[0]
    for a, b in zip(both[1], alone, strict=True):
        np.testing.assert_array_equal(a[:2], b)
    env.close()
