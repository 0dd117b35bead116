"""P3O: Penalized Proximal Policy Optimization (Zhang et al. 2022).

| here   | paper    | meaning                                              |
|--------|----------|------------------------------------------------------|
| loss   | L_R^CLIP | -E[min(ratio A, clip(ratio) A)]                      |
| cost   | L_C^CLIP | E[max(ratio A_C, clip(ratio) A_C)]                   |
| psi    |          | cost + violation; the paper's (1 - gamma)(J_C - d)   |
| weight | kappa    | of the exact penalty sum_i kappa max(0, psi_i)       |
| growth | rho      | kappa <- min(kappa_max, rho kappa) after a violation |

Deviations: the paper's factor (1 - gamma) turns a discounted sum into a mean per step;
here the mean over the horizon is violation / H, and both terms are divided by the scale
of the cost advantage (learning/surrogates.py), so kappa does not depend on the unit of
the cost. kappa grows only in iterations that measured a violation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax.numpy as jnp
import optax
from jaxtyping import Array

from ecop.algorithms.ppo import clipped_loss
from ecop.errors import UserError, require
from ecop.learning.minibatch import minibatch_descent
from ecop.learning.networks import Distribution, Policy
from ecop.learning.surrogates import dimensionless, policy_change, predicted_violation
from ecop.types import Batch, Spec


class State(NamedTuple):
    """What P3O carries from one iteration to the next."""

    weight: Array  # [C] kappa
    cost_scale: Array  # [C] running std of the cost advantage
    optimiser: Any


@dataclass(frozen=True)
class P3O:
    """Options of P3O.

    Attributes:
        weight: kappa of the first iteration; exact if above the optimal multiplier
        growth: rho, factor of kappa after a violation; 1 keeps it fixed
        weight_max: where kappa stops growing
        clip: the ratio is clipped to 1 +- this
        epochs: passes over the batch per iteration
        episodes_per_step: episodes in each gradient step
        target_kl: epochs stop once the mean KL exceeds this; 0 never stops
        learning_rate: Adam's, of the policy
    """

    weight: float = 5.0
    growth: float = 1.0
    weight_max: float = 100.0
    clip: float = 0.2
    epochs: int = 20
    episodes_per_step: int = 5
    target_kl: float = 0.0
    learning_rate: float = 1e-3

    def __post_init__(self) -> None:
        require(
            self,
            "weight weight_max clip epochs episodes_per_step learning_rate",
            "target_kl",
        )
        if not self.growth >= 1:
            raise UserError(f"growth must be 1 or more, not {self.growth}.")

    def init(self, policy: Policy, params: Any, spec: Spec) -> State:
        """State before the first iteration; `params` are the policy's."""
        del policy
        count = len(spec.enforced)
        return State(
            weight=jnp.full(count, self.weight, jnp.float32),
            cost_scale=jnp.zeros(count, jnp.float32),
            optimiser=optax.adam(self.learning_rate).init(params),
        )

    def update(
        self, key: Array, policy: Policy, params: Any, state: State, batch: Batch
    ) -> tuple[Any, State, dict[str, Array]]:
        """One iteration: kappa, then descent on the penalised surrogate."""
        batch, scale = dimensionless(batch, state.cost_scale)
        grown = jnp.minimum(self.weight_max, self.growth * state.weight)
        weight = jnp.where(batch.violation > 0.0, grown, state.weight)

        def objective(distribution: Distribution, part: Batch) -> Array:
            psi = predicted_violation(distribution, part, self.clip)
            penalty = jnp.sum(weight * jnp.maximum(0.0, psi))
            return clipped_loss(distribution, part, self.clip) + penalty

        done = minibatch_descent(
            key, policy, params, state.optimiser, batch, objective, self
        )
        info = {
            "multipliers": weight,
            **done.info,
            **policy_change(policy, params, done.params, batch, self.clip),
        }
        return done.params, State(weight, scale, done.optimiser), info
