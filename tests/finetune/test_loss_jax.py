"""e-COP's loss in JAX against loops, and against the library's own objective."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from batches import (
    BETA,
    CLIP,
    MULTIPLIER,
    C,
    N,
    T,
    batch,
    slow_gain_and_psi,
    slow_gradient,
)

from ecop.algorithms.ecop import ECOP
from ecop.finetune.loss_jax import cost_rise, ecop_loss
from ecop.finetune.prices import Damping
from ecop.learning.damping import damped_penalty
from ecop.learning.networks import Categorical
from ecop.types import Batch

DAMPING = Damping(np.array(MULTIPLIER), BETA, np.inf)


def arrays(**changes) -> dict[str, Any]:
    return {k: jnp.asarray(v) for k, v in (batch() | changes).items()}


def gradient_of(b):
    rest: dict[str, Any] = {k: v for k, v in b.items() if k != "logp"}

    def loss(logp):
        return ecop_loss(logp, **rest, prices=DAMPING, clip=CLIP)[0]

    return jax.grad(loss)(b["logp"])


def test_value_and_gradient_against_loops():
    b = arrays()
    loss, psi = ecop_loss(**b, prices=DAMPING, clip=CLIP)
    gain, slow = slow_gain_and_psi(batch())
    price = np.maximum(0, np.array(MULTIPLIER) + BETA * slow)
    np.testing.assert_allclose(psi, slow, atol=1e-6)
    expected = -gain + price @ (slow - batch()["violation"])
    assert float(loss) == pytest.approx(expected, abs=1e-6)
    np.testing.assert_allclose(gradient_of(b), slow_gradient(batch()), atol=1e-6)


def test_gradient_is_that_of_the_librarys_objective():
    b = arrays()
    whole = Batch(
        observation=jnp.zeros((N, T, 1)),
        action=jnp.zeros((N, T), jnp.int32),
        log_prob=b["logp_old"],
        alive=b["mask"],
        adv=b["adv"],
        cost_adv=b["cost_adv"],
        cost_error=jnp.zeros(C),
        violation=b["violation"],
        reward_scale=jnp.ones(()),
        cost_scale=jnp.ones(C),
    )
    algorithm = ECOP(clip=CLIP)

    def library(logp):
        table = jnp.stack([logp, jnp.zeros((N, T))], axis=-1)
        distribution = Categorical(table)  # action 0 has the log probability logp
        loss, cost = algorithm.terms(distribution, whole, jnp.ones(T), jnp.float32(T))
        psi = cost + whole.violation
        multiplier = jnp.asarray(MULTIPLIER, jnp.float32)
        return loss + damped_penalty(psi, multiplier, jnp.float32(BETA), "augmented")

    ours, theirs = gradient_of(b), jax.grad(library)(b["logp"])
    np.testing.assert_allclose(ours, theirs, atol=1e-6)
    assert float(jnp.abs(theirs).max()) > 0.01


def test_parts_add_up():
    b = arrays()
    total = N * T
    halves = [
        {k: v if k == "violation" else v[rows] for k, v in b.items()}
        for rows in (slice(0, 2), slice(2, N))
    ]
    rise = sum(
        cost_rise(h["logp"], h["logp_old"], h["cost_adv"], h["mask"], CLIP, total=total)
        for h in halves
    )
    psi = rise + b["violation"]

    def part(logp, h):
        rest: dict[str, Any] = {k: v for k, v in h.items() if k != "logp"}
        return ecop_loss(logp, **rest, prices=DAMPING, psi=psi, total=total)[0]

    parts = [jax.grad(part)(h["logp"], h) for h in halves]
    np.testing.assert_allclose(jnp.concatenate(parts), gradient_of(b), atol=1e-7)


def test_prices_are_an_argument_of_a_compiled_loss():
    b = arrays()
    compiled = jax.jit(lambda prices: ecop_loss(**b, prices=prices)[0])
    small = compiled(Damping(jnp.zeros(C), 1.0, 100.0))
    large = compiled(Damping(jnp.full(C, 2.0), 1.0, 100.0))
    assert abs(float(small - large)) > 1e-3
