"""The minibatch loop: order, KL stop, and the units of its surrogates."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from ecop.algorithms.ppo import clipped_loss
from ecop.learning.critics import episode_draws
from ecop.learning.descent import descend
from ecop.learning.minibatch import Descent, minibatch_descent, select_episodes
from ecop.learning.surrogates import (
    centred,
    dimensionless,
    mixed_advantage,
    predicted_violation,
    step_mean,
)
from probes import random_problem

LOOP = Descent(epochs=6, episodes_per_step=3, learning_rate=0.01)


def objective(distribution, part):
    return clipped_loss(distribution, part, 0.2)


def run(options, problem, key=0):
    _, policy, params, batch = problem
    state = optax.adam(options.learning_rate).init(params)
    loop = jax.jit(
        lambda k, p, s, b: minibatch_descent(k, policy, p, s, b, objective, options)
    )
    return loop(jax.random.key(key), params, state, batch)


def literal(options, problem, epochs):
    """The same, step by step; returns the parameters and the KL after each epoch."""
    _, policy, params, batch = problem
    adam = optax.adam(options.learning_rate)
    state, old = adam.init(params), policy.over(params, batch.observation)

    @jax.jit
    def step(params, state, draw):
        part = select_episodes(batch, draw)
        gradient = jax.grad(lambda p: objective(policy.over(p, part.observation), part))
        return descend(adam, gradient(params), params, state)

    @jax.jit
    def divergence(params):
        kl = old.kl(policy.over(params, batch.observation))
        return jnp.sum(batch.alive * kl) / jnp.sum(batch.alive)

    kls, history = [], []
    for key in jax.random.split(jax.random.key(0), options.epochs)[:epochs]:
        for draw in episode_draws(key, 4, 2, options.episodes_per_step):
            params, state = step(params, state, draw)
        kls.append(float(divergence(params)))
        history.append(params)
    return history, kls


def test_descent_is_the_obvious_loop_and_stops_at_the_target():
    problem = random_problem()
    history, kls = literal(LOOP, problem, 6)
    assert kls == sorted(kls)
    free = run(LOOP, problem)
    assert float(free.info["epochs"]) == 6.0
    target = 0.5 * (kls[1] + kls[2])  # crossed in the third epoch
    stopped = run(dataclasses.replace(LOOP, target_kl=target), problem)
    assert float(stopped.info["epochs"]) == 3.0
    for ours, slow in ((free, history[5]), (stopped, history[2])):
        jax.tree.map(
            lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-5),
            ours.params,
            slow,
        )


def test_dimensionless_units():
    _, _, _, batch = random_problem(count=2)
    alive = np.asarray(batch.alive) > 0
    scale = np.array([0.5, 5.0], np.float32)
    batch = batch._replace(cost_scale=jnp.asarray(scale))
    ours = dimensionless(centred(batch))
    adv = np.asarray(ours.adv)
    assert adv[alive].mean() == pytest.approx(0.0, abs=1e-5)
    assert adv[alive].std() == pytest.approx(1.0, rel=1e-4)
    assert (adv[~alive] == 0.0).all()
    cost_adv = np.asarray(batch.cost_adv)
    slow = (cost_adv - cost_adv[alive].mean(axis=0)) / scale
    np.testing.assert_allclose(
        np.asarray(ours.cost_adv)[alive], slow[alive], rtol=1e-3, atol=1e-5
    )
    np.testing.assert_allclose(
        ours.violation, np.asarray(batch.violation) / (6 * scale), rtol=1e-4
    )
    np.testing.assert_allclose(
        ours.cost_error, np.asarray(batch.cost_error) / (6 * scale), rtol=1e-4
    )


def test_predicted_violation():
    _, policy, params, batch = random_problem(count=2)
    shifted = jax.tree.map(lambda x: x + 0.2, params)
    new = policy.over(shifted, batch.observation)
    ours = predicted_violation(new, batch, 0.1)
    ratio = np.exp(np.asarray(new.log_prob(batch.action) - batch.log_prob))
    alive, cost_adv = np.asarray(batch.alive), np.asarray(batch.cost_adv)
    for i in range(2):
        a = cost_adv[..., i]
        rise = np.maximum(ratio * a, np.clip(ratio, 0.9, 1.1) * a) - a
        slow = (alive * rise).sum() / alive.size + float(batch.violation[i])
        assert float(ours[i]) == pytest.approx(slow, rel=1e-4)
    # Of the old policy itself it is the violation, on any few episodes.
    part = select_episodes(batch, jnp.asarray([2, 0]))
    old = policy.over(params, part.observation)
    np.testing.assert_allclose(
        predicted_violation(old, part, 0.1), batch.violation, rtol=1e-5
    )


def test_mixed_advantage():
    _, _, _, batch = random_problem(count=2)
    ours = mixed_advantage(batch, jnp.asarray([0.5, 2.0], jnp.float32))
    cost = np.asarray(batch.cost_adv)
    slow = (np.asarray(batch.adv) - 0.5 * cost[..., 0] - 2.0 * cost[..., 1]) / 3.5
    np.testing.assert_allclose(ours, slow, rtol=1e-5, atol=1e-6)


def test_step_mean_counts_dead_steps_as_zero():
    x = jnp.asarray([[1.0, 2.0], [3.0, 100.0]], jnp.float32)
    alive = jnp.asarray([[1.0, 1.0], [1.0, 0.0]], jnp.float32)
    assert float(step_mean(x, alive)) == pytest.approx(1.5)
