"""Natural gradients: surrogates around a policy, Fisher products, line search.

Parameters are flat vectors [P] here; `localise` flattens and restores them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from ecop.learning.networks import Distribution, Policy
from ecop.learning.surrogates import ratio, step_mean
from ecop.types import Batch


class Local(NamedTuple):
    """The problem around the old policy, as functions of flat parameters [P]."""

    point: Array  # [P] the old parameters
    restore: Callable[[Array], Any]  # to a pytree
    gain: Callable[[Array], Array]  # E[ratio A] []
    costs: Callable[[Array], Array]  # E[ratio A_C] [C]
    kl: Callable[[Array], Array]  # mean KL(old || new) over the living steps []


def localise(policy: Policy, params: Any, batch: Batch) -> Local:
    """Surrogates and divergence of a batch around `params`, which collected it."""
    point, restore = ravel_pytree(params)
    old = policy.over(params, batch.observation)
    weight = batch.alive / jnp.maximum(jnp.sum(batch.alive), 1.0)

    def distribution(flat: Array) -> Distribution:
        return policy.over(restore(flat), batch.observation)

    def change(flat: Array) -> Array:
        return ratio(distribution(flat).log_prob(batch.action), batch.log_prob)

    def gain(flat: Array) -> Array:
        return step_mean(change(flat) * batch.adv, batch.alive)

    def costs(flat: Array) -> Array:
        return step_mean(change(flat)[..., None] * batch.cost_adv, batch.alive)

    def kl(flat: Array) -> Array:
        return jnp.sum(weight * old.kl(distribution(flat)))

    return Local(point, restore, gain, costs, kl)


def fisher_product(
    kl: Callable[[Array], Array], point: Float[Array, " P"], damping: float
) -> Callable[[Array], Array]:
    """Return v -> (F + damping I) v, F being the Hessian of the KL at `point`."""
    _, product = jax.linearize(jax.grad(kl), point)
    return lambda v: product(v) + damping * v


def conjugate_gradient(
    product: Callable[[Array], Array], b: Float[Array, " P"], steps: int
) -> Float[Array, " P"]:
    """Solve product(x) = b from x = 0; stops moving once the residual is tiny."""
    start = jnp.dot(b, b)

    def body(_: Array, carry: Any) -> Any:
        x, residual, direction, square = carry
        image = product(direction)
        curvature = jnp.dot(direction, image)
        alive = (square > 1e-10 * start) & (curvature > 0.0)
        # The divisors are made safe because both branches of a where are computed.
        length = jnp.where(alive, square / jnp.where(alive, curvature, 1.0), 0.0)
        x = x + length * direction
        residual = residual - length * image
        after = jnp.where(alive, jnp.dot(residual, residual), square)
        turn = jnp.where(alive, after / jnp.where(alive, square, 1.0), 0.0)
        direction = jnp.where(alive, residual + turn * direction, direction)
        return x, residual, direction, after

    carry = (jnp.zeros_like(b), b, b, start)
    return lax.fori_loop(0, steps, body, carry)[0]


def line_search(
    accept: Callable[[Array], Array],
    step: Float[Array, " P"],
    tries: int,
    decay: float,
) -> Float[Array, ""]:
    """Return the first of 1, decay, decay^2, ... whose step is accepted, else 0."""

    def go_on(carry: Any) -> Array:
        tried, _, accepted = carry
        return ~accepted & (tried < tries)

    def body(carry: Any) -> Any:
        tried, _, _ = carry
        share = jnp.float32(decay) ** tried.astype(jnp.float32)
        return tried + 1, share, accept(share * step)

    carry = (jnp.int32(0), jnp.float32(0.0), jnp.zeros((), bool))
    _, share, accepted = lax.while_loop(go_on, body, carry)
    return jnp.where(accepted, share, 0.0)


def safe_inverse(x: Float[Array, ""]) -> Float[Array, ""]:
    """1 / x for positive x, 0 elsewhere."""
    positive = x > 1e-12
    return jnp.where(positive, 1.0 / jnp.where(positive, x, 1.0), 0.0)
