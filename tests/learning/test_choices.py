"""Several choices at once: formulas, NumPy, Gymnasium, a probe task."""

import itertools
from functools import partial

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ecop
from ecop.interop.check import random_actions
from ecop.interop.gymnasium_out import spaces_of
from ecop.learning import normaliser
from ecop.learning.networks import Categorical, Choices, Policy
from ecop.rollout import Actor, distribution, exporter
from ecop.simulators.acting import Company, act_together
from ecop.simulators.worker import flat, unflat
from ecop.types import MultiDiscrete
from probes import TwoChoices
from simulators import Screen

SMALL = {"seeds": 1, "hidden": (8,), "episodes": 4, "critic_epochs": 1}


def drawn(seed):
    rng = np.random.default_rng(seed)
    parts = [jnp.asarray(rng.normal(size=(2, n)), jnp.float32) for n in (3, 4)]
    return Choices(tuple(Categorical(jax.nn.log_softmax(x)) for x in parts))


def test_formulas_are_those_of_all_combinations():
    ours, other = drawn(0), drawn(1)
    pairs = list(itertools.product(range(3), range(4)))
    logs, others = (
        np.stack([np.asarray(d.log_prob(jnp.array([p, p]))) for p in pairs], axis=1)
        for d in (ours, other)
    )
    np.testing.assert_allclose(np.exp(logs).sum(axis=1), 1.0, rtol=1e-5)
    entropy, kl = -(np.exp(logs) * logs).sum(1), (np.exp(logs) * (logs - others)).sum(1)
    np.testing.assert_allclose(ours.entropy(), entropy, rtol=1e-4)
    np.testing.assert_allclose(ours.kl(other), kl, rtol=1e-4)
    best = [pairs[i] for i in logs.argmax(axis=1)]
    np.testing.assert_array_equal(ours.mode(), best)
    np.testing.assert_array_equal(ours.sample(jnp.zeros((2, 7))), best)


def test_draws_have_their_probabilities():
    found = jax.tree.map(
        lambda x: jnp.broadcast_to(x[:1], (20_000, x.shape[1])), drawn(0)
    )
    noise = jax.random.gumbel(jax.random.key(0), (20_000, 7), jnp.float32)
    actions = np.asarray(found.sample(noise))
    for i, part in enumerate(found.parts):
        shares = np.bincount(actions[:, i], minlength=len(part.log_probs[0])) / 20_000
        np.testing.assert_allclose(shares, np.exp(part.log_probs[0]), atol=0.015)


def test_numpy_chooses_as_jax_does_in_any_company():
    spec = TwoChoices().spec
    policy = Policy(spec, hidden=(8,))
    assert policy.network.outputs == 7
    params = jax.tree.map(lambda x: 3.0 * x, policy.init(jax.random.key(0)))
    actor = Actor(params, normaliser.init(7))
    plain, _ = exporter(policy)(actor)
    (sent,) = unflat(*flat([plain]))
    rng = np.random.default_rng(0)
    seen = rng.normal(size=(50, 7)).astype(np.float32)
    noise = rng.gumbel(size=(50, 4, 7)).astype(np.float32)
    found = act_together(sent, seen, 2, noise[:, 2])
    jaxed = distribution(policy, actor, jnp.asarray(seen), jnp.int32(2))
    np.testing.assert_array_equal(found, jaxed.sample(jnp.asarray(noise[:, 2])))
    assert found.dtype == np.int32
    company = Company(2, sent, noise[0])
    for i in range(2):
        company.join(i, sent, noise[i])
        company.observation[i] = seen[i]
    together = act_together(plain, seen[:2], 0, noise[:2, 0])
    assert company.act(2).tobytes() == together.tobytes()


def test_spaces_and_random_actions():
    spec = TwoChoices().spec
    assert spec.action.freedom == 5
    _, space = spaces_of(spec)
    assert space == gymnasium.spaces.MultiDiscrete([3, 4])
    actions = random_actions(spec, 5)
    assert actions.shape == (4, 5, 2)
    assert (actions.max(axis=(0, 1)) <= [2, 3]).all()


class Panel(Screen):
    """A vector for an observation; many switches."""

    observation_space = gymnasium.spaces.Box(0, 255, (3,), np.uint8)
    action_space = gymnasium.spaces.MultiDiscrete([40, 40, 40])

    def look(self):
        return self.np_random.integers(0, 256, 3, np.uint8)

    def step(self, action):
        assert self.action_space.contains(action), action
        return self.look(), float(action[0]), False, False, {"cost": float(action[1])}


def test_many_combinations_of_gymnasium():
    env = ecop.from_gymnasium(partial(Panel), costs="cost", limits=[60.0])
    assert env.spec.action == MultiDiscrete((40, 40, 40))
    assert ecop.check_cmdp(env).healthy
    run = ecop.train(env, "pdo", iterations=1, **SMALL)
    assert run.policy(np.zeros(3), 0).shape == (3,)
    assert np.isfinite(run.evaluate(3).summary()["reward"]["mean"])
    env.close()


@pytest.mark.slow
def test_both_choices_are_learned():
    env = TwoChoices()
    run = ecop.train(env, seeds=2, iterations=150)
    summary = run.evaluate(1000).summary()
    assert summary["reward"]["mean"] > 0.95 * env.optimum()
    assert summary["constraints"][0]["mean"] < 1.15 * env.spec.limits[0]
