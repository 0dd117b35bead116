"""Encoders: shapes, what is refused, the same in NumPy, bits, and probe tasks."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ecop
from ecop.learning import normaliser
from ecop.learning.encoders import CNN, encoder
from ecop.learning.networks import Policy
from ecop.rollout import Actor, collector, distribution, exporter
from ecop.simulators.acting import Company, act_together, convolve
from ecop.simulators.worker import flat, unflat
from ecop.types import Box, Constraint, Spec
from probes import BrightCorner
from simulators import make_screen

SMALL = {"seeds": 1, "hidden": (8,), "episodes": 4, "critic_epochs": 1}


@pytest.mark.parametrize(
    ("image", "last"),
    [
        ((64, 64, 3), (8, 8, 32)),
        ((84, 84, 4), (11, 11, 32)),
        ((8, 8, 1), (4, 4, 16)),
        ((7, 9, 3), (4, 5, 16)),
        ((4, 20, 2), (4, 20, 2)),
    ],
)
def test_shapes(image, last):
    cnn = CNN(image)
    assert cnn.shapes[-1] == last
    x = jnp.ones((2, 3, int(np.prod(image))), jnp.float32)
    assert cnn.apply(cnn.init(jax.random.key(0)), x).shape == (2, 3, np.prod(last))


def test_what_does_not_fit_is_refused():
    picture = Spec(64, Box(1), 4, (), (8, 8, 1))
    with pytest.raises(ecop.UserError, match=r"8 x 8 x 1.*--network cnn"):
        encoder("mlp", picture, "time")
    with pytest.raises(ecop.UserError, match="per_step"):
        encoder("cnn", picture, "per_step")
    with pytest.raises(ecop.UserError, match="vectors of 3"):
        encoder("cnn", Spec(3, Box(1), 4), "time")
    with pytest.raises(ecop.UserError, match="64 entries, not 65"):
        Spec(65, Box(1), 4, (), (8, 8, 1))


def test_nothing_is_left_behind_of_a_network_that_does_not_fit(tmp_path):
    with pytest.raises(ecop.UserError, match="images"):
        ecop.train(BrightCorner(), "pdo", out=tmp_path / "run", **SMALL)
    assert not list(tmp_path.iterdir())


def test_convolution_is_the_obvious_sum():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2, 5, 6, 3)).astype(np.float32)
    weight, bias = rng.normal(size=(3, 3, 3, 4)), rng.normal(size=4)
    expected = np.zeros((2, 3, 3, 4))
    for n, i, j in np.ndindex(2, 3, 3):
        total = bias.copy()
        for a, b in np.ndindex(3, 3):
            y, z = 2 * i + a - 1, 2 * j + b - 1
            if 0 <= y < 5 and 0 <= z < 6:
                total += x[n, y, z] @ weight[a, b]
        expected[n, i, j] = np.maximum(total, 0.0)
    matrix = np.concatenate([weight.reshape(27, 4), bias[None]]).astype(np.float32)
    np.testing.assert_allclose(convolve(x, matrix), expected, rtol=1e-5, atol=1e-5)


def picture_policy(image=(20, 16, 3)):
    spec = Spec(int(np.prod(image)), Box(2), 5, (Constraint("c", 1.0),), image)
    policy = Policy(spec, hidden=(8,), encoder=CNN(image))
    params = policy.init(jax.random.key(1))
    params = jax.tree.map(lambda x: x + 0.05, params)
    rng = np.random.default_rng(2)
    seen = rng.uniform(0.0, 255.0, (6, spec.observation_size)).astype(np.float32)
    statistics = normaliser.update(
        normaliser.init(spec.observation_size),
        jnp.asarray(seen)[None],
        jnp.ones((1, 6), jnp.float32),
    )
    return policy, Actor(params, statistics), seen


def test_numpy_sees_images_as_jax_does():
    policy, actor, seen = picture_policy()
    plain, _ = exporter(policy)(actor)
    noise = np.zeros((6, 2), np.float32)
    for h in range(5):
        found = act_together(plain, seen, h, noise)
        expected = distribution(policy, actor, jnp.asarray(seen), jnp.int32(h)).mode()
        assert np.abs(found).max() > 1e-3
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4)


def test_numpy_gives_the_same_bits_in_any_company_and_after_the_way():
    policy, actor, seen = picture_policy((64, 64, 3))
    plain, _ = exporter(policy)(actor)
    (sent,) = unflat(*flat([plain]))
    noise = np.zeros((6, 5, 2), np.float32)
    together = act_together(plain, seen, 0, noise[:, 0])
    company = Company(3, sent, noise[0])
    for i in range(3):
        company.join(i, sent, noise[i])
        company.observation[i] = seen[i]
    assert company.act(3).tobytes() == together[:3].tobytes()
    for n in range(6):
        alone = act_together(plain, seen[[n]], 0, noise[[n], 0])
        assert alone.tobytes() == together[[n]].tobytes()


def test_resumed_to_the_bit(tmp_path):
    def train(iterations, out=None):
        return ecop.train(
            BrightCorner(),
            "ppo",
            network="cnn",
            iterations=iterations,
            out=out,
            **SMALL,
        )

    whole = train(4)
    train(2, tmp_path / "run")
    again = ecop.resume(tmp_path / "run", iterations=4, env=BrightCorner())
    for a, b in zip(
        jax.tree.leaves(whole.states[0].policy),
        jax.tree.leaves(again.states[0].policy),
        strict=True,
    ):
        np.testing.assert_array_equal(a, b)
    picture = np.zeros((8, 8, 1))
    assert again.policy(picture, 0) == again.policy(picture.reshape(-1), 0)


@pytest.mark.parametrize("workers", [0, 1])
def test_images_of_gymnasium(workers):
    env = ecop.from_gymnasium(make_screen, costs="cost", limits=[1.0], workers=workers)
    try:
        assert env.spec.image == (12, 10, 3)
        with pytest.raises(ecop.UserError, match="12 x 10 x 3"):
            ecop.train(env, "pdo", **SMALL)
        run = ecop.train(env, "pdo", network="cnn", iterations=1, **SMALL)
        batch = collector(env, run.learner.policy, 2)
        state = run.states[0]
        actors = jax.tree.map(lambda x: x[None], Actor(state.policy, state.normaliser))
        found = batch(actors, jax.random.key(0)[None])
        assert found.observation.shape[2:] == (3, 360)
    finally:
        env.close()


@pytest.mark.slow
def test_the_bright_corner_is_found():
    env = BrightCorner()
    run = ecop.train(env, network="cnn", seeds=2, iterations=150)
    summary = run.evaluate(500).summary()
    assert summary["reward"]["mean"] > 0.95 * env.optimum()
    assert summary["constraints"][0]["mean"] < 1.15 * env.spec.limits[0]
