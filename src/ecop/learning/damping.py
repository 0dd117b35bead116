"""e-COP's damped penalty on the predicted violation, its price, and the adaptive beta.

| here       | paper      | meaning                                        |
|------------|------------|------------------------------------------------|
| psi        | Psi_Ci,t   | predicted violation of the new policy          |
| violation  | J_Ci - d_i | measured, of the policy that made the batch    |
| multiplier | lambda_t,i | the same for all t                             |
| beta       | beta       | damping factor                                 |
| growth     | p          | factor of the adaptive beta                    |
"""

from __future__ import annotations

from typing import Literal

import jax.numpy as jnp
from jaxtyping import Array, Float


def price(
    psi: Float[Array, " C"],
    multiplier: Float[Array, " C"],
    beta: Float[Array, ""],
    form: Literal["augmented", "paper"],
) -> Float[Array, " C"]:
    """The slope of `damped_penalty` in psi."""
    square = jnp.maximum(0.0, multiplier + beta * psi)
    linear = jnp.where(psi > 0.0, multiplier, 0.0)
    return square + linear if form == "paper" else square


def damped_penalty(
    psi: Float[Array, " C"],
    multiplier: Float[Array, " C"],
    beta: Float[Array, ""],
    form: Literal["augmented", "paper"],
) -> Float[Array, ""]:
    """Penalty terms of the final loss (8); "augmented" is the square of (6) alone."""
    shift = multiplier / beta
    square = 0.5 * beta * (jnp.maximum(0.0, psi + shift) ** 2 - shift**2)
    linear = multiplier * jnp.maximum(0.0, psi)
    return jnp.sum(square + linear if form == "paper" else square)


def adapt_beta(
    beta: Float[Array, ""],
    multiplier: Float[Array, " C"],
    violation: Float[Array, " C"],
    horizon: int,
    growth: float,
    bounds: tuple[float, float],
    relax: float = 1.0,
) -> Float[Array, ""]:
    """Beta <- min(beta_max, p beta) if C(pi_k) > c_k, else max(beta_min, beta / relax).

    C(pi_k) = sum_{t=1..H} sum_i max(J_Ci(pi_k) - d_i, -lambda_t,i / beta) and
    c_k = sqrt(m) / beta * max_t max_i lambda_t,i, with lambda the same for all t.
    """
    count = violation.shape[0]
    secondary = horizon * jnp.sum(jnp.maximum(violation, -multiplier / beta))
    threshold = count**0.5 / beta * jnp.max(multiplier, initial=0.0)
    least, most = bounds
    grown, relaxed = jnp.minimum(most, growth * beta), jnp.maximum(least, beta / relax)
    return jnp.where(secondary > threshold, grown, relaxed)
