"""Encoders: shapes, what is refused, the same in NumPy, bits, and probe tasks."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ecop
from ecop.algorithms import ALGORITHMS
from ecop.learning import normaliser
from ecop.learning.encoders import CNN, GRU, UNITS, encoder
from ecop.learning.networks import Policy
from ecop.rollout import Actor, collector, distribution, exporter, recall
from ecop.simulators.acting import Company, act_together, convolve, forgotten
from ecop.simulators.worker import flat, unflat
from ecop.types import Box, Constraint, Spec
from probes import BrightCorner, NumpyWalk, Recall
from simulators import make_gym, make_screen

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


def memory_by_hand(params, history):
    """Unit by unit, from the formulas."""
    w, u, b = (np.asarray(params[name], float) for name in "wub")
    memory = np.zeros(UNITS)

    def sigmoid(x):
        return 1.0 / (1.0 + np.exp(-x))

    for x in history:
        keep, reset, new = (slice(i * UNITS, (i + 1) * UNITS) for i in range(3))
        drive = x @ w + b
        kept = sigmoid(drive[keep] + memory @ u[:, keep])
        opened = sigmoid(drive[reset] + memory @ u[:, reset])
        fresh = np.tanh(drive[new] + (opened * memory) @ u[:, new])
        memory = kept * memory + (1.0 - kept) * fresh
    return memory


def test_a_memory_over_episodes_is_that_of_steps_and_of_the_formulas():
    gru = GRU(3)
    params = gru.init(jax.random.key(0))
    x = np.random.default_rng(0).normal(size=(2, 5, 3)).astype(np.float32)
    whole = np.asarray(gru.apply(params, jnp.asarray(x)))
    memory = gru.start(2)
    for k in range(5):
        features, memory = gru.step(params, memory, jnp.asarray(x[:, k]))
        np.testing.assert_allclose(features, whole[:, k], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(
        whole[1, 4, 3:], memory_by_hand(params, x[1]), rtol=1e-4, atol=1e-5
    )
    np.testing.assert_array_equal(whole[..., :3], x)


def test_a_memory_acts_as_it_is_learned_from():
    """What is collected step by step has the probabilities of whole episodes."""
    run = ecop.train(Recall(), "ppo", network="gru", iterations=1, **SMALL)
    policy, state = run.learner.policy, run.states[0]
    actor = Actor(state.policy, state.normaliser)
    actors = jax.tree.map(lambda x: x[None], actor)
    found = collector(Recall(), policy, 3, deterministic=True)(
        actors, jax.random.key(0)[None]
    )
    for n in range(3):
        history = np.asarray(found.observation[0, n])
        for h in range(5):
            action = run.policy(history[: h + 1], h)
            assert action == found.action[0, n, h]
    assert run.policy(history[:1], 0, key=jax.random.key(1)).shape == ()
    with pytest.raises(ecop.UserError, match=r"steps 0 \.\. 2"):
        run.policy(history[0], 2)


def memory_policy():
    spec = Spec(3, Box(2), 5, (Constraint("c", 1.0),))
    policy = Policy(spec, hidden=(8,), encoder=GRU(3))
    params = policy.init(jax.random.key(1))
    params = jax.tree.map(lambda x: x + 0.05, params)
    seen = np.random.default_rng(2).normal(size=(6, 5, 3)).astype(np.float32)
    statistics = normaliser.update(
        normaliser.init(3), jnp.asarray(seen), jnp.ones((6, 5), jnp.float32)
    )
    return policy, Actor(params, statistics), seen


def test_numpy_remembers_as_jax_does_with_the_same_bits_in_any_company():
    policy, actor, seen = memory_policy()
    plain, _ = exporter(policy)(actor)
    (sent,) = unflat(*flat([plain]))
    noise = np.zeros((6, 5, 2), np.float32)
    memory, alone = forgotten(plain, 6), [forgotten(plain, 1) for _ in range(6)]
    company = Company(3, sent, noise[0])
    for i in range(3):
        company.join(i, sent, noise[i])
    for h in range(5):
        together = act_together(plain, seen[:, h], h, noise[:, h], memory)
        if h < 4:
            company.observation[:] = seen[:3, h]
            assert company.act(3).tobytes() == together[:3].tobytes()
        for n in range(6):
            single = act_together(plain, seen[[n], h], h, noise[[n], h], alone[n])
            assert single.tobytes() == together[[n]].tobytes()
            whole = recall(policy, actor, jnp.asarray(seen[n, : h + 1])).mode()
            np.testing.assert_allclose(single[0], whole[0, h], rtol=1e-3, atol=1e-5)
    # Episodes that end make room: the last one moves, another one begins.
    company.move(0, 2)
    company.join(1, sent, noise[4])
    company.observation[:2] = seen[2, 4], seen[4, 0]
    moved, fresh = company.act(2)
    first = act_together(plain, seen[[4], 0], 0, noise[[4], 0])
    assert fresh.tobytes() == first.tobytes()
    assert moved.tobytes() == together[2].tobytes()


@pytest.mark.parametrize("kind", ["batches", "here", "a worker"])
def test_a_memory_on_simulators(kind):
    env = NumpyWalk()
    if kind != "batches":
        workers = int(kind == "a worker")
        options = {"horizon": 3, "costs": "cost", "limits": [9.0], "workers": workers}
        env = ecop.from_gymnasium(make_gym, **options)
    try:
        run = ecop.train(env, "pdo", network="gru", iterations=2, watch=None, **SMALL)
        state = run.states[0]
        actors = jax.tree.map(lambda x: x[None], Actor(state.policy, state.normaliser))
        play = collector(env, run.learner.policy, 3, deterministic=True)
        found = play(actors, jax.random.key(0)[None])
        for n in range(3):
            for h in range(int(found.alive[0, n].sum())):
                history = np.asarray(found.observation[0, n, : h + 1])
                np.testing.assert_allclose(
                    run.policy(history, h), found.action[0, n, h], atol=1e-5
                )
    finally:
        env.close()


def test_memories_that_do_not_fit_are_refused(tmp_path):
    for algorithm in (ecop.ECOP(backward_steps=0), ecop.ECOP(backward_steps=5)):
        options = {"network": "gru", "out": tmp_path / "run", **SMALL}
        with pytest.raises(ecop.UserError, match="backward_steps=1"):
            ecop.train(Recall(), algorithm, **options)
    assert not list(tmp_path.iterdir())
    with pytest.raises(ecop.UserError, match="images"):
        ecop.train(BrightCorner(), network="gru", **SMALL)


@pytest.mark.slow
@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_algorithm_takes_a_memory(name):
    run = ecop.train(Recall(), name, network="gru", iterations=1, **SMALL)
    assert np.isfinite(run.metrics[-1]["kl"])


@pytest.mark.parametrize(("env", "kind"), [(BrightCorner(), "cnn"), (Recall(), "gru")])
def test_resumed_to_the_bit(env, kind, tmp_path):
    def train(iterations, out=None):
        return ecop.train(
            env, "ppo", network=kind, iterations=iterations, out=out, **SMALL
        )

    whole = train(4)
    train(2, tmp_path / "run")
    again = ecop.resume(tmp_path / "run", iterations=4, env=env)
    for a, b in zip(
        jax.tree.leaves(whole.states[0].policy),
        jax.tree.leaves(again.states[0].policy),
        strict=True,
    ):
        np.testing.assert_array_equal(a, b)


def test_a_policy_takes_images_in_their_shape():
    run = ecop.train(BrightCorner(), "pdo", network="cnn", iterations=1, **SMALL)
    picture = np.random.default_rng(0).random((3, 8, 8, 1))
    flat = picture.reshape(3, -1)
    np.testing.assert_array_equal(run.policy(picture, 0), run.policy(flat, 0))
    assert run.policy(picture[0], 1) == run.policy(flat[0], 1)


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


@pytest.mark.slow
def test_the_cue_is_recalled():
    env = Recall()
    run = ecop.train(env, network="gru", seeds=2, iterations=200)
    summary = run.evaluate(1000).summary()
    assert summary["reward"]["mean"] > 0.93 * env.optimum()
    assert summary["constraints"][0]["mean"] < 1.15 * env.spec.limits[0]
