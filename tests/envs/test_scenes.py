"""Replayed episodes and their animation."""

import jax
import numpy as np
import pytest
from PIL import Image, ImageSequence

import ecop
from ecop.drawing.plane import animate
from ecop.learning import normaliser
from ecop.learning.networks import Policy
from ecop.rollout import Actor, collect_jax, draws, replay


@pytest.mark.parametrize("name", ["PointCircle", "PointReach", "Navigation"])
def test_the_animation_shows_the_episode(name, tmp_path):
    env = ecop.make(name, horizon=12)
    policy = Policy(env.spec, hidden=(4,))
    key = jax.random.key(0)
    actor = Actor(policy.init(key), normaliser.init(env.spec.observation_size))

    @jax.jit
    def film(key):
        episodes = collect_jax(env, policy, 1)(actor, key)
        seeds, _ = draws(policy, key, 1)
        states = replay(env, seeds[0], episodes.action[0])
        return episodes, states

    episodes, states = film(key)
    scene = env.scene(jax.tree.map(np.asarray, states))
    assert scene.pose.shape == (12, 3)
    file = tmp_path / "episode.gif"
    reward, costs = np.asarray(episodes.reward[0]), np.asarray(episodes.costs[0])
    animate(scene, reward, costs, title=name, file=file)
    with Image.open(file) as image:
        frames = sum(1 for _ in ImageSequence.Iterator(image))
    assert frames == 7  # every second step and the last
    if scene.goal is not None:
        assert scene.goal.centres.shape == (12, 2)
        left, bottom, right, top = scene.window
        goal = scene.goal.centres
        assert (goal > [left, bottom]).all()
        assert (goal < [right, top]).all()
