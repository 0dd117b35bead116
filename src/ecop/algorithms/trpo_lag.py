"""TRPO-Lagrangian (Ray et al. 2019; TRPO: Schulman et al. 2015).

| here       | paper  | meaning                                                   |
|------------|--------|-----------------------------------------------------------|
| mixed      |        | (A - lambda A_C) / (1 + lambda)                           |
| gain       | L      | E[ratio mixed]                                            |
| target_kl  | delta  | bound of the mean KL(old || new)                          |
| step       |        | sqrt(2 delta / g F^-1 g) F^-1 g, shortened by line search |
| multiplier | lambda | max(0, lambda + rate (J_C - d)), before the policy        |

A step is accepted if the mean KL is within the region and the gain has grown.

Deviations: everything is dimensionless (learning/surrogates.py), so the rate of the
multiplier does not depend on the unit of the cost or on the horizon; finite-horizon
advantages.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array

from ecop.learning.multipliers import Ascent, Multiplier
from ecop.learning.networks import Policy
from ecop.learning.options import flat
from ecop.learning.surrogates import centred, dimensionless, mixed_advantage
from ecop.learning.trust_region import (
    TrustRegion,
    localise,
    natural,
    safe_inverse,
    take_step,
)
from ecop.types import Batch, Spec


class State(NamedTuple):
    """What TRPO-Lagrangian carries from one iteration to the next."""

    multiplier: Multiplier


@flat
@dataclass(frozen=True)
class TRPOLagrangian:
    """Options of TRPO-Lagrangian.

    Attributes:
        ascent: how the multiplier follows the violation
        region: how far a step may go
    """

    ascent: Ascent = Ascent()
    region: TrustRegion = TrustRegion()

    def init(self, policy: Policy, params: Any, spec: Spec) -> State:
        """State before the first iteration; `params` are the policy's."""
        del policy, params
        return State(self.ascent.init(len(spec.enforced)))

    def update(
        self, key: Array, policy: Policy, params: Any, state: State, batch: Batch
    ) -> tuple[Any, State, dict[str, Array]]:
        """One iteration: the multiplier, then one natural gradient step."""
        del key
        batch = dimensionless(centred(batch))
        multiplier = self.ascent.step(state.multiplier, batch.violation)
        batch = batch._replace(adv=mixed_advantage(batch, multiplier.value))
        local = localise(policy, params, batch, self.region)
        before, gradient = jax.value_and_grad(local.gain)(local.point)
        direction = natural(local, self.region)(gradient)
        curvature = jnp.dot(gradient, direction)
        length = jnp.sqrt(2.0 * local.size * safe_inverse(curvature))

        new, info = take_step(
            local, length * direction, lambda end: local.gain(end) > before, self.region
        )
        info |= {
            "multipliers": multiplier.value,
            "gradient_norm": optax.tree.norm(gradient),
        }
        return new, State(multiplier), info
