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
from jaxtyping import Array

from ecop.errors import UserError, require
from ecop.learning.minibatch import Descent, minibatch_descent
from ecop.learning.networks import Policy
from ecop.learning.options import flat
from ecop.learning.penalties import penalised
from ecop.learning.surrogates import (
    centred,
    clipped_share,
    dimensionless,
)
from ecop.types import Batch, Spec


class State(NamedTuple):
    """What P3O carries from one iteration to the next."""

    weight: Array  # [C] kappa
    optimiser: Any


@flat
@dataclass(frozen=True)
class P3O:
    """Options of P3O.

    Attributes:
        weight: kappa of the first iteration; exact if above the optimal multiplier
        growth: rho, factor of kappa after a violation; 1 keeps it fixed
        weight_max: where kappa stops growing
        clip: the ratio is clipped to 1 +- this
        descent: how the loss is descended
    """

    weight: float = 5.0
    growth: float = 1.0
    weight_max: float = 100.0
    clip: float = 0.2
    descent: Descent = Descent()

    def __post_init__(self) -> None:
        require(self, "weight weight_max clip")
        if not self.growth >= 1:
            raise UserError(f"growth must be 1 or more, not {self.growth}.")

    def init(self, policy: Policy, params: Any, spec: Spec) -> State:
        """State before the first iteration; `params` are the policy's."""
        del policy
        weight = jnp.full(len(spec.enforced), self.weight, jnp.float32)
        return State(weight, self.descent.init(params))

    def update(
        self, key: Array, policy: Policy, params: Any, state: State, batch: Batch
    ) -> tuple[Any, State, dict[str, Array]]:
        """One iteration: kappa, then descent on the penalised surrogate."""
        batch = dimensionless(centred(batch))
        grown = jnp.minimum(self.weight_max, self.growth * state.weight)
        weight = jnp.where(batch.violation > 0.0, grown, state.weight)

        def price(psi: Array) -> Array:
            return jnp.where(psi > 0.0, weight, 0.0)  # of sum_i kappa max(0, psi_i)

        objective, refresh = penalised(batch, price, self.clip)
        done = minibatch_descent(
            key,
            policy,
            params,
            state.optimiser,
            batch,
            objective,
            self.descent,
            refresh,
        )
        info = {
            "multipliers": weight,
            "clipped": clipped_share(policy, done.params, batch, self.clip),
            **done.info,
        }
        return done.params, State(weight, done.optimiser), info
