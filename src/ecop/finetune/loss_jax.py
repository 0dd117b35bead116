"""e-COP's loss in JAX: the same numbers as `loss_torch`, for those who train in JAX."""

from __future__ import annotations

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from ecop.finetune.prices import Damping
from ecop.learning.surrogates import clipped_cost, clipped_gain, ratio


def ecop_loss(
    logp: Float[Array, "N T"],
    logp_old: Float[Array, "N T"],
    adv: Float[Array, "N T"],
    cost_adv: Float[Array, "N T C"],
    mask: Float[Array, "N T"],
    violation: Float[Array, " C"],
    prices: Damping,
    clip: float = 0.2,
    *,
    psi: Float[Array, " C"] | None = None,
    total: float | None = None,
) -> tuple[Float[Array, ""], Float[Array, " C"]]:
    """Return the loss [] and psi [C] (without a gradient); see `loss_torch`.

    `prices` is a pytree: pass it as an argument of a compiled function, or the
    multipliers of the first call are compiled in.
    """
    total = float(mask.size if total is None else total)
    gain = clipped_gain(ratio(logp, logp_old), adv, clip)
    rise = cost_rise(logp, logp_old, cost_adv, mask, clip, total=total)
    if psi is None:
        psi = rise + violation
    psi = lax.stop_gradient(psi)
    multiplier = jnp.asarray(prices.multiplier, psi.dtype)
    price = Damping(multiplier, prices.beta, prices.bound).price(psi)
    return -jnp.sum(mask * gain) / total + price @ rise, psi


def cost_rise(
    logp: Float[Array, "N T"],
    logp_old: Float[Array, "N T"],
    cost_adv: Float[Array, "N T C"],
    mask: Float[Array, "N T"],
    clip: float = 0.2,
    *,
    total: float | None = None,
) -> Float[Array, " C"]:
    """Pessimistic change of the costs; parts with the same `total` add up."""
    total = float(mask.size if total is None else total)
    cost = clipped_cost(ratio(logp, logp_old), cost_adv, clip) - cost_adv
    return jnp.sum(mask[..., None] * cost, axis=(0, 1)) / total
