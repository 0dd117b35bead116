"""Importance ratios, surrogates of reward and cost, and their common units.

Units. A surrogate is a mean over the living steps, so the mean length L of an episode
times the mean of `ratio cost_adv` is sum_h E[ratio A_C], the predicted change of the
episodic cost. A batch is in units of reward and cost and carries their scales
(training.py); `dimensionless` divides the cost advantage by its scale s, the violation
by L s. Then mean(ratio cost_adv) + violation is the predicted violation of the new
policy, in units of L s, and scaling a cost together with its limit changes nothing.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from ecop.learning.networks import Distribution, Policy
from ecop.types import Batch


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
    x: Float[Array, "N K *C"], alive: Float[Array, "N K"]
) -> Float[Array, "*C"]:
    """Mean over the living steps."""
    return jnp.tensordot(alive / jnp.maximum(jnp.sum(alive), 1.0), x, axes=2)


def centred(batch: Batch) -> Batch:
    """Subtract the mean over the living steps from all advantages.

    The expected advantage of a policy over itself is zero, so a mean that is not is the
    critic's error; without it the predicted violation of the old policy is exactly the
    measured one.
    """
    return batch._replace(
        adv=centred_steps(batch.adv, batch.alive),
        cost_adv=centred_steps(batch.cost_adv, batch.alive),
    )


def centred_steps(
    x: Float[Array, "N H *C"], alive: Float[Array, "N H"]
) -> Float[Array, "N H *C"]:
    """Subtract the mean over the living steps; 0 on the dead ones."""
    rows = x.reshape(*alive.shape, -1)
    mean, _ = moments(rows, alive)
    return (alive[..., None] * (rows - mean[None, None])).reshape(x.shape)


def dimensionless(batch: Batch) -> Batch:
    """Divide advantages by their scales, and the violation by L times the cost's."""
    whole = batch.cost_scale * jnp.sum(batch.alive) / len(batch.alive)
    return batch._replace(
        adv=batch.adv / batch.reward_scale,
        cost_adv=batch.cost_adv / batch.cost_scale[None, None],
        cost_error=batch.cost_error / whole,
        violation=batch.violation / whole,
    )


def or_one(scale: Array) -> Array:
    """A scale to divide by: 1 in place of 0."""
    return jnp.where(scale > 0.0, scale, 1.0)


def mixed_advantage(
    batch: Batch, multiplier: Float[Array, " C"]
) -> Float[Array, "N H"]:
    """(A - sum_i lambda_i A_Ci) / (1 + sum_i lambda_i): a Lagrangian's advantage.

    The divisor keeps the size of the step while a multiplier grows.
    """
    return (batch.adv - batch.cost_adv @ multiplier) / (1.0 + jnp.sum(multiplier))


def clipped_share(policy: Policy, params: Any, batch: Batch, clip: float) -> Array:
    """Share of the living steps whose ratio is outside of 1 +- clip []."""
    new = policy.over(params, batch.observation)
    change = ratio(new.log_prob(batch.action), batch.log_prob)
    outside = (jnp.abs(change - 1.0) > clip).astype(jnp.float32)
    return step_mean(outside, batch.alive)


def mean_kl(policy: Policy, old: Any, new: Any, batch: Batch) -> Array:
    """Mean of KL(old || new) over the living steps []."""
    before, after = (policy.over(p, batch.observation) for p in (old, new))
    return step_mean(before.kl(after), batch.alive)


def clipped_loss(distribution: Distribution, part: Batch, clip: float) -> Array:
    """-E[min(ratio A, clip(ratio) A)]: PPO's, of the reward."""
    change = ratio(distribution.log_prob(part.action), part.log_prob)
    return -step_mean(clipped_gain(change, part.adv, clip), part.alive)


def clipped_rise(
    distribution: Distribution, part: Batch, clip: float
) -> Float[Array, " C"]:
    """E[max(ratio A_C, clip(ratio) A_C) - A_C]: the pessimistic rise of each cost.

    The old policy's own surrogate, E[A_C] = 0, is subtracted on the same steps: few of
    them have a mean far from zero.
    """
    change = ratio(distribution.log_prob(part.action), part.log_prob)
    rise = clipped_cost(change, part.cost_adv, clip) - part.cost_adv
    return step_mean(rise, part.alive)
