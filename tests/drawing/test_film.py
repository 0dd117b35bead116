"""A film of an episode, whatever the kind of task; a sentence where there is none."""

from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image, ImageColor, ImageSequence

import ecop
from ecop.algorithms.ppo import PPO
from ecop.drawing import plane
from ecop.drawing.film import draw_episode
from ecop.drawing.scenes import Pictures
from ecop.errors import UserError
from ecop.evaluate import fresh_episode
from ecop.simulators.pool import SimulatorPool
from ecop.training import Learner, TrainConfig
from ecop.types import Box, Constraint, Spec, Step
from probes import NumpyWalk, Walk
from simulators import SPEC, Make, make_gym


def learner_of(env):
    return Learner(env, env.spec, PPO(), TrainConfig(hidden=(4,)))


def first_state(learner):
    return jax.jit(learner.init)(jnp.uint32(0))


@pytest.mark.parametrize("name", ["PointCircle", "PointReach", "Navigation"])
def test_the_animation_shows_the_episode(name, tmp_path):
    env = ecop.make(name, horizon=12)
    learner = learner_of(env)
    episode = fresh_episode(learner, first_state(learner))
    scene = env.film(episode)
    assert scene.pose.shape == (12, 3)
    file = tmp_path / "episode.gif"
    told = {"title": name, "constraints": env.spec.constraints}
    plane.animate(scene, episode.reward, episode.costs, **told, file=file)
    with Image.open(file) as image:
        frames = sum(1 for _ in ImageSequence.Iterator(image))
    assert frames == 7  # every second step and the last
    if scene.goal is not None:
        assert scene.goal.centres.shape == (12, 2)
        left, bottom, right, top = scene.window
        goal = scene.goal.centres
        assert (goal > [left, bottom]).all()
        assert (goal < [right, top]).all()


def test_a_clip_says_each_cost_with_its_limit():
    """Two costs as "42 / 18" would read as a cost and its limit."""
    costs = np.tile([[0.5, 2.0]], (10, 1))
    both = (Constraint("hazards", 10.0), Constraint("pillars", float("inf")))
    words = plane.progress(3, np.ones(10), costs, both)
    assert words == (
        "step 4/10   reward 4.0\nhazards: cost 2, limit 10   pillars: cost 8, no limit"
    )
    assert plane.progress(0, np.ones(10), costs[:, :0], ()) == "step 1/10   reward 1.0"


class Fuse:
    """Burns for 3 of 5 steps, the second at a cost, and gets brighter."""

    spec = Spec(1, Box(1), 5, (Constraint("heat", 1.0),))

    def reset(self, key):
        del key
        return jnp.zeros((), jnp.int32), jnp.zeros(1, jnp.float32)

    def step(self, key, state, action):
        del key, action
        heat = (state == 1).astype(jnp.float32)
        return Step(state + 1, jnp.zeros(1, jnp.float32), heat, heat[None], state == 2)

    def film(self, episode):
        pictures = (np.full((60, 480, 3), 80 * s, np.uint8) for s in episode.states)
        return Pictures(pictures, 1, 0.2)


def test_a_jax_task_with_pictures_of_its_own(tmp_path, monkeypatch):
    saved = []
    monkeypatch.setattr(plane, "save", lambda *x: saved.append(x))
    learner = learner_of(Fuse())
    state, file = first_state(learner), tmp_path / "fuse.gif"
    draw_episode(learner, state, "Fuse", file)
    ((frames, *rest),) = saved
    assert rest == [200, file]
    pixels = np.stack(frames)
    assert pixels[:, 50, 240, 0].tolist() == [0, 80, 160], "the steps taken"
    framed = pixels[:, 50, 2] == ImageColor.getrgb(plane.COSTLY)
    assert framed.all(axis=1).tolist() == [False, True, False]
    replay = tmp_path / "replay"
    with pytest.raises(UserError, match="--sumo is for tasks on SUMO, which Fuse"):
        draw_episode(learner, state, "Fuse", file, replay)
    assert not replay.exists()
    assert len(saved) == 1


@pytest.mark.parametrize(
    "env",
    [Walk(), NumpyWalk(), SimulatorPool(Make(), SPEC), ecop.make("Inventory")],
    ids=lambda env: type(env).__name__,
)
def test_a_task_without_pictures_is_said(env, tmp_path):
    unused: Any = None
    with pytest.raises(UserError, match="Mine has no picture: a task needs a method"):
        draw_episode(learner_of(env), unused, "Mine", tmp_path / "episode.gif")
    assert not list(tmp_path.iterdir())


def unmoved(obs, action, next_obs, info, t):
    return 0.0


def gym_run(env):
    tiny = {"seeds": 1, "episodes": 2, "hidden": (4,), "critic_epochs": 1}
    return ecop.train(env, "ppo", iterations=1, watch=None, **tiny)


@pytest.mark.parametrize("task", ["CartPole-v1", "Pendulum-v1"])
def test_a_gymnasium_environment_draws_itself(task, tmp_path):
    """The pictures are of the very episode: its steps, its observations."""
    env: Any = ecop.from_gymnasium(task, horizon=9, costs=unmoved, limits=[1.0])
    run = gym_run(env)
    clip = run.render(tmp_path / "episode.gif")
    assert (tmp_path / "episode.gif").read_bytes() == clip.data
    assert clip._repr_html_().startswith('<img src="data:image/gif;base64,R0lGOD')
    episode = fresh_episode(run.learner, run.states[0])
    frames = list(env.film(episode).frames)
    assert len(frames) == len(episode.reward)
    again = gymnasium.make(task, render_mode="rgb_array")
    again.reset(seed=episode.seed)
    for action, frame in zip(env.forms.action(episode.action), frames, strict=True):
        again.step(action)
        np.testing.assert_array_equal(frame, again.render())
    again.close()
    assert run.render().file is None
    with pytest.raises(UserError, match=r"must end in \.gif or \.mp4"):
        run.render(tmp_path / "episode.png")
    env.close()


def test_an_environment_without_pictures_is_said():
    env = ecop.from_gymnasium(make_gym, horizon=6, costs=unmoved, limits=[3.0])
    with pytest.raises(UserError, match="has no pictures"):
        gym_run(env).render()
    env.close()


def test_a_long_film_skips_steps():
    long = {"horizon": 310, "costs": unmoved, "limits": [1.0]}
    env: Any = ecop.from_gymnasium("Pendulum-v1", **long)
    run = gym_run(env)
    film = env.film(fresh_episode(run.learner, run.states[0]))
    assert (film.stride, len(list(film.frames))) == (3, 104)
    env.close()
