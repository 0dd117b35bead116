"""Penalties by their prices against the penalties themselves."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from ecop.algorithms.ipo import barrier_slope
from ecop.learning.damping import damped_penalty, price
from ecop.learning.minibatch import select_steps
from ecop.learning.penalties import penalised
from ecop.learning.surrogates import (
    centred,
    clipped_loss,
    clipped_rise,
    dimensionless,
)
from probes import random_problem

CLIP = 0.1
LAMBDA, BETA, KAPPA = jnp.asarray([0.3, 0.8]), jnp.float32(4.0), 5.0
T, SLOPE = 2.0, 3.0


def damped(form):
    return (
        lambda psi: price(psi, LAMBDA, BETA, form),
        lambda psi: damped_penalty(psi, LAMBDA, BETA, form),
    )


def barrier(psi):
    """-log(-psi) / t, and its tangent from where its slope is the largest."""
    edge = 1.0 / (T * SLOPE)
    inside = -jnp.log(jnp.maximum(-psi, edge)) / T
    return jnp.sum(inside + SLOPE * jnp.maximum(0.0, psi + edge))


def augmented(psi):
    """APPO's: lambda psi + sigma/2 psi^2 above -lambda / sigma, constant below."""
    bent = LAMBDA * psi + 0.5 * BETA * psi**2
    return jnp.sum(jnp.where(psi > -LAMBDA / BETA, bent, -0.5 * LAMBDA**2 / BETA))


PENALTIES = {
    "e-COP's square": damped("augmented"),
    "e-COP's, printed": damped("paper"),
    "P3O's hinge": (
        lambda psi: jnp.where(psi > 0.0, KAPPA, 0.0),
        lambda psi: KAPPA * jnp.sum(jnp.maximum(0.0, psi)),
    ),
    "IPO's barrier": (lambda psi: barrier_slope(psi, T, SLOPE), barrier),
    "APPO's": (lambda psi: jnp.maximum(0.0, LAMBDA + BETA * psi), augmented),
}
WHERE = {"broken": (0.4, 0.9), "kept": (-0.3, -0.6), "one of each": (0.2, -0.1)}
each = pytest.mark.parametrize("name", PENALTIES)


@each
def test_a_price_is_the_slope_of_its_penalty(name):
    slope, penalty = PENALTIES[name]
    for psi in np.linspace(-1.03, 1.07, 22):
        at = jnp.asarray([psi, 0.5 - psi], jnp.float32)
        np.testing.assert_allclose(slope(at), jax.grad(penalty)(at), rtol=1e-4)


def problem(violation):
    _, policy, params, batch = random_problem(count=2, shape=(5, 6))
    batch = dimensionless(centred(batch))._replace(
        violation=jnp.asarray(violation, jnp.float32)
    )
    flat, restore = ravel_pytree(jax.tree.map(lambda x: x + 0.1, params))
    return policy, flat, restore, batch


@each
@pytest.mark.parametrize("where", WHERE)
def test_the_gradient_on_the_whole_batch_is_that_of_loss_and_penalty(name, where):
    slope, penalty = PENALTIES[name]
    policy, flat, restore, batch = problem(WHERE[where])
    objective, refresh = penalised(batch, slope, CLIP)

    def over(flat):
        return policy.over(restore(flat), batch.observation)

    def literal(flat):
        psi = clipped_rise(over(flat), batch, CLIP) + batch.violation
        return clipped_loss(over(flat), batch, CLIP) + penalty(psi)

    prices = refresh(over(flat))
    ours = jax.grad(lambda f: objective(over(f), batch, prices))(flat)
    divisor = 1.0 + float(jnp.sum(prices))
    np.testing.assert_allclose(
        np.asarray(ours) * divisor, jax.grad(literal)(flat), rtol=1e-3, atol=1e-6
    )


def test_the_mean_over_minibatches_has_no_bias():
    """And the penalty of a minibatch's own psi, the obvious way, has."""
    slope, penalty = PENALTIES["e-COP's square"]
    policy, flat, restore, batch = problem((0.1, -0.2))
    objective, refresh = penalised(batch, slope, CLIP)

    def over(flat, part):
        return policy.over(restore(flat), part.observation)

    prices = refresh(over(flat, batch))
    living = np.nonzero(np.asarray(batch.alive).reshape(-1))[0]
    sets = np.random.default_rng(0).permuted(np.tile(living, (400, 1)), axis=1)
    minibatches = jnp.asarray(sets.reshape(-1, 4))  # each row as often as the others

    def obvious(flat, part):
        psi = clipped_rise(over(flat, part), part, CLIP) + part.violation
        return clipped_loss(over(flat, part), part, CLIP) + penalty(psi)

    def mean(loss):
        def gradient(rows):
            return jax.grad(loss)(flat, select_steps(batch, rows))

        return np.asarray(jax.jit(jax.vmap(gradient))(minibatches)).mean(axis=0)

    def ours(flat, part):
        return objective(over(flat, part), part, prices)

    whole = np.asarray(jax.grad(ours)(flat, batch))
    np.testing.assert_allclose(mean(ours), whole, rtol=1e-3, atol=1e-6)
    literal = np.asarray(jax.grad(obvious)(flat, batch))
    gap = np.linalg.norm(mean(obvious) - literal) / np.linalg.norm(literal)
    assert gap > 0.02
