"""Penalties on the predicted violation, by their prices.

Psi, the predicted violation of the new policy, is an expectation. A penalty that is not
linear in it must not see the psi of a minibatch: with phi(psi) = beta/2 psi^2 the mean
over minibatches is beta/2 (Psi^2 + Var psi), a price on noise. So a penalty is given by
its slope, the price of each cost, at the Psi of the whole batch: a number, taken anew
before every epoch, times the gradient of the minibatch's cost. That is the gradient of
the penalty, without bias, whatever the minibatch.
"""

from __future__ import annotations

from collections.abc import Callable

import jax.numpy as jnp
from jaxtyping import Array, Float

from ecop.learning.minibatch import Objective, Refresh
from ecop.learning.networks import Distribution
from ecop.learning.surrogates import clipped_loss, clipped_rise
from ecop.types import Batch

Price = Callable[[Float[Array, " C"]], Float[Array, " C"]]


def penalised(batch: Batch, price: Price, clip: float) -> tuple[Objective, Refresh]:
    """The clipped loss plus sum_i price_i cost_i, over 1 + sum_i price_i.

    The divisor keeps the size of the gradient while a price grows; the direction, all
    that Adam sees, stays.
    """

    def refresh(distribution: Distribution) -> Array:
        return price(clipped_rise(distribution, batch, clip) + batch.violation)

    return priced(clip), refresh


def priced(clip: float) -> Objective:
    """(L + sum_i price_i L_Ci) / (1 + sum_i price_i) at the prices of `refresh`."""

    def objective(distribution: Distribution, part: Batch, prices: Array) -> Array:
        costs = jnp.dot(prices, clipped_rise(distribution, part, clip))
        loss = clipped_loss(distribution, part, clip) + costs
        return loss / (1.0 + jnp.sum(prices))

    return objective
