"""Importance ratios, surrogates of reward and cost, and their common units.

Units. A surrogate is a mean over all N H steps, dead ones counting zero, so H times the
mean of `ratio cost_adv` is sum_h E[ratio A_C], the predicted change of the episodic
cost. `dimensionless` divides the cost advantage by its scale s, the violation by H s;
then mean(ratio cost_adv) + violation is the predicted violation of the new policy, in
units of H s, and scaling a cost together with its limit changes nothing.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from ecop.learning.networks import Distribution, Policy
from ecop.types import Batch

SCALE_MEMORY = 0.9  # of the running cost scale, per iteration


def ratio(
    log_prob: Float[Array, "N K"], old_log_prob: Float[Array, "N K"]
) -> Float[Array, "N K"]:
    """pi_theta(a|s,h) / pi_old(a|s,h)."""
    return jnp.exp(log_prob - old_log_prob)


def clipped_gain(
    ratio: Float[Array, "N K"], adv: Float[Array, "N K"], clip: float
) -> Float[Array, "N K"]:
    """min(ratio A, clip(ratio) A): the pessimistic value of a gain."""
    bounded = jnp.clip(ratio, 1.0 - clip, 1.0 + clip)
    return jnp.minimum(ratio * adv, bounded * adv)


def clipped_cost(
    ratio: Float[Array, "N K"], cost_adv: Float[Array, "N K C"], clip: float
) -> Float[Array, "N K C"]:
    """max(ratio A_C, clip(ratio) A_C): the pessimistic value of a cost (erratum 1)."""
    bounded = jnp.clip(ratio, 1.0 - clip, 1.0 + clip)
    return jnp.maximum(ratio[..., None] * cost_adv, bounded[..., None] * cost_adv)


def moments(
    x: Float[Array, "N H C"], alive: Float[Array, "N H"]
) -> tuple[Float[Array, " C"], Float[Array, " C"]]:
    """Mean and standard deviation over the living steps."""
    weight = alive[..., None] / jnp.maximum(jnp.sum(alive), 1.0)
    mean = jnp.sum(weight * x, axis=(0, 1))
    variance = jnp.sum(weight * (x - mean[None, None]) ** 2, axis=(0, 1))
    return mean, jnp.sqrt(variance)


def step_mean(
    x: Float[Array, "N H *C"], alive: Float[Array, "N H"]
) -> Float[Array, "*C"]:
    """Mean over all N H steps; dead steps count as zero."""
    weight = alive / alive.size
    return jnp.tensordot(weight, x, axes=2)


def dimensionless(
    batch: Batch, running: Float[Array, " C"]
) -> tuple[Batch, Float[Array, " C"]]:
    """Return the batch without units, and the running cost scale (0 before the first).

    Advantages are centred: the expected advantage of a policy over itself is zero, so
    a mean that is not is the critic's error, and the predicted violation of the old
    policy is then exactly the measured one.
    """
    centre, std = moments(batch.cost_adv, batch.alive)
    scale, divisor = cost_scale(std, running)
    alive = batch.alive
    cost_adv = (batch.cost_adv - centre[None, None]) / divisor[None, None]
    batch = batch._replace(
        adv=standardised(batch.adv, alive),
        cost_adv=alive[..., None] * cost_adv,
        violation=batch.violation / (divisor * alive.shape[1]),
    )
    return batch, scale


def cost_scale(
    std: Float[Array, " C"], running: Float[Array, " C"]
) -> tuple[Float[Array, " C"], Float[Array, " C"]]:
    """The running mean of a standard deviation, and the same with 1 in place of 0."""
    scale = SCALE_MEMORY * running + (1.0 - SCALE_MEMORY) * std
    scale = jnp.where(running == 0.0, std, scale)
    return scale, jnp.where(scale > 0.0, scale, 1.0)


def standardised(
    adv: Float[Array, "N H"], alive: Float[Array, "N H"]
) -> Float[Array, "N H"]:
    """Mean 0 and standard deviation 1 over the living steps, 0 on the dead ones."""
    (mean,), (std,) = moments(adv[..., None], alive)
    return alive * (adv - mean) / jnp.where(std > 0.0, std, 1.0)


def mixed_advantage(
    batch: Batch, multiplier: Float[Array, " C"]
) -> Float[Array, "N H"]:
    """(A - sum_i lambda_i A_Ci) / (1 + sum_i lambda_i): a Lagrangian's advantage.

    The divisor keeps the size of the step while a multiplier grows.
    """
    return (batch.adv - batch.cost_adv @ multiplier) / (1.0 + jnp.sum(multiplier))


def policy_change(
    policy: Policy, before: Any, after: Any, batch: Batch, clip: float | None = None
) -> dict[str, Array]:
    """Means over the living steps: `kl`, `entropy` and, with a clip, `clipped`."""
    old, new = (policy.over(p, batch.observation) for p in (before, after))
    weight = batch.alive / jnp.maximum(jnp.sum(batch.alive), 1.0)
    info = {
        "kl": jnp.sum(weight * old.kl(new)),
        "entropy": jnp.sum(weight * new.entropy()),
    }
    if clip is not None:
        change = ratio(new.log_prob(batch.action), batch.log_prob)
        outside = (jnp.abs(change - 1.0) > clip).astype(jnp.float32)
        info["clipped"] = jnp.sum(weight * outside)
    return info


def predicted_violation(
    distribution: Distribution, part: Batch, clip: float
) -> Float[Array, " C"]:
    """Psi: the clipped, pessimistic cost surrogate plus the violation of the batch.

    The old policy's own surrogate, E[A_C] = 0, is subtracted on the same episodes: few
    of them have a mean far from zero, and a penalty that is not linear in psi would
    take that noise for a violation.
    """
    change = ratio(distribution.log_prob(part.action), part.log_prob)
    rise = clipped_cost(change, part.cost_adv, clip) - part.cost_adv
    return step_mean(rise, part.alive) + part.violation
