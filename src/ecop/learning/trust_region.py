"""Natural gradients: surrogates, Fisher products, projection, line search.

Parameters are flat vectors [P] here; `localise` flattens and restores them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from ecop.errors import UserError, require
from ecop.learning.networks import Distribution, Policy
from ecop.learning.options import flat
from ecop.learning.surrogates import ratio, step_mean
from ecop.types import Batch

TINY = 1e-12  # a square norm below it counts as zero
CORRELATION_LOSS = 1e-4  # keeps the Gram matrix of dependent gradients invertible


@flat
@dataclass(frozen=True)
class TrustRegion:
    """A natural gradient step with a line search.

    Attributes:
        target_kl: size of the trust region, mean KL(old || new), before a schedule
        damping: added to the diagonal of the Fisher matrix
        cg_steps: steps of the conjugate gradient method
        line_search_tries: how often a step is shortened before it is given up
        line_search_decay: factor by which it is shortened
    """

    target_kl: float = 0.01
    damping: float = 0.1
    cg_steps: int = 10
    line_search_tries: int = 25
    line_search_decay: float = 0.8

    def __post_init__(self) -> None:
        require(self, "target_kl damping cg_steps line_search_tries")
        if not 0 < self.line_search_decay < 1:
            raise UserError(
                f"line_search_decay must lie in (0, 1), not {self.line_search_decay}."
            )


class Local(NamedTuple):
    """The problem around the old policy, as functions of flat parameters [P]."""

    point: Array  # [P] the old parameters
    restore: Callable[[Array], Any]  # to a pytree
    gain: Callable[[Array], Array]  # E[ratio A] []
    costs: Callable[[Array], Array]  # E[ratio A_C] [C]
    kl: Callable[[Array], Array]  # mean KL(old || new) over the living steps []
    size: Array  # [] of the trust region: the largest such KL


def localise(policy: Policy, params: Any, batch: Batch, region: TrustRegion) -> Local:
    """Surrogates and divergence of a batch around `params`, which collected it.

    A KL grows with the square of a step: that is how a schedule shortens it.
    """
    point, restore = ravel_pytree(params)
    old = policy.over(params, batch.observation)

    def distribution(flat: Array) -> Distribution:
        return policy.over(restore(flat), batch.observation)

    def change(flat: Array) -> Array:
        return ratio(distribution(flat).log_prob(batch.action), batch.log_prob)

    def gain(flat: Array) -> Array:
        return step_mean(change(flat) * batch.adv, batch.alive)

    def costs(flat: Array) -> Array:
        return step_mean(change(flat)[..., None] * batch.cost_adv, batch.alive)

    def kl(flat: Array) -> Array:
        return step_mean(old.kl(distribution(flat)), batch.alive)

    return Local(
        point, restore, gain, costs, kl, jnp.asarray(region.target_kl * batch.rate**2)
    )


def natural(
    local: Local, region: TrustRegion
) -> Callable[[Float[Array, " P"]], Float[Array, " P"]]:
    """Return v -> (F + damping I)^-1 v at the old policy."""
    product = fisher_product(local.kl, local.point, region.damping)
    return lambda v: conjugate_gradient(product, v, region.cg_steps)


def take_step(
    local: Local,
    step: Float[Array, " P"],
    accept: Callable[[Array], Array],
    region: TrustRegion,
) -> tuple[Any, dict[str, Array]]:
    """Shorten the step until its end [P] is in the region and accepted.

    Returns the new parameters and `loss` and `step_share`.
    """
    start = local.point

    def within(step: Array) -> Array:
        end = start + step
        return (local.kl(end) <= local.size) & accept(end)

    share = line_search(
        within, step, region.line_search_tries, region.line_search_decay
    )
    end = start + share * step
    return local.restore(end), {"loss": -local.gain(end), "step_share": share}


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


def gram(b: Float[Array, "C P"], back: Float[Array, "C P"]) -> Float[Array, "C C"]:
    """B L^-1 B^T of the gradients b and back = B L^-1, its correlations a little less.

    Conjugate gradients are not exact, so the product is made symmetric.
    """
    product = b @ back.T
    product = 0.5 * (product + product.T)
    return product - CORRELATION_LOSS * (product - jnp.diag(jnp.diag(product)))


def projection(
    s: Float[Array, "C C"],
) -> Callable[[Float[Array, " C"]], Float[Array, " C"]]:
    """Return a -> mu, the multipliers of a projection onto half spaces.

    The point nearest to y in the metric L with c + B x <= 0 is y - L^-1 B^T mu, where
    mu >= 0 minimises mu S mu / 2 - mu a with S = B L^-1 B^T and a = c + B y. Every set
    of constraints is tried as the active one, 2^C of them, and the best mu wins. A
    constraint without a gradient is never active: no step changes it.
    """
    count = len(s)
    sets = jnp.arange(2**count)[:, None] >> jnp.arange(count)[None] & 1
    active = (sets == 1) & (jnp.diag(s) > TINY)[None]  # [2^C, C]
    both = active[:, :, None] & active[:, None, :]
    inverse = jnp.linalg.inv(jnp.where(both, s[None], jnp.eye(count)[None]))
    inverse = jnp.where(both, inverse, 0.0)

    def multipliers(a: Array) -> Array:
        mu = jnp.maximum(0.0, inverse @ a)  # [2^C, C]
        value = 0.5 * jnp.sum(mu * (mu @ s), axis=1) - mu @ a
        return mu[jnp.nanargmin(value)]

    return multipliers


def safe_inverse(x: Float[Array, ""]) -> Float[Array, ""]:
    """1 / x for positive x, 0 elsewhere."""
    positive = x > TINY
    return jnp.where(positive, 1.0 / jnp.where(positive, x, 1.0), 0.0)
