"""APPO: Augmented Proximal Policy Optimization for Safe RL (Dai et al. 2023).

| here       | paper  | meaning                                                   |
|------------|--------|-----------------------------------------------------------|
| loss       | L^CLIP | -E[min(ratio A, clip(ratio) A)]                           |
| multiplier | lambda | max(0, lambda + rate (J_C - d)), before the policy        |
| penalty    | sigma  | weight of the quadratic deviation term                    |
| prices     |        | max(0, lambda + sigma (J_C - d)), through an iteration    |
| growth     |        | sigma <- min(sigma_max, growth sigma), see below          |

The prices are the slope of sigma/2 max(0, violation + lambda/sigma)^2, the square with
the slack of the inequality eliminated, at the old policy. The adaptive sigma grows
while the violation is positive and has not shrunk to `progress` times that of the
iteration before.

Deviations: everything is dimensionless (learning/surrogates.py), so sigma and the rate
do not depend on the unit of the cost; finite-horizon advantages and minibatches of
whole episodes; the test for growth is that of augmented Lagrangian methods in general.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array

from ecop.errors import UserError, require
from ecop.learning.minibatch import Descent, minibatch_descent
from ecop.learning.multipliers import Ascent, Multiplier
from ecop.learning.networks import Policy
from ecop.learning.options import flat
from ecop.learning.penalties import priced
from ecop.learning.surrogates import (
    centred,
    clipped_share,
    dimensionless,
)
from ecop.types import Batch, Spec


class State(NamedTuple):
    """What APPO carries from one iteration to the next."""

    multiplier: Multiplier
    penalty: Array  # [] sigma
    excess: Array  # [] sum of the violations above zero, of the iteration before
    optimiser: Any


@flat
@dataclass(frozen=True)
class APPO:
    """Options of APPO.

    Attributes:
        penalty: sigma of the quadratic term, in the first iteration
        growth: factor of sigma while violations persist; 1 keeps it fixed
        progress: share of the last violation below which sigma does not grow
        penalty_max: where sigma stops growing
        clip: the ratio is clipped to 1 +- this
        ascent: how the multiplier follows the violation
        descent: how the loss is descended
    """

    penalty: float = 2.0
    growth: float = 1.0
    progress: float = 0.9
    penalty_max: float = 100.0
    clip: float = 0.1
    ascent: Ascent = Ascent()
    descent: Descent = Descent()

    def __post_init__(self) -> None:
        require(self, "penalty penalty_max clip", "progress")
        if not self.growth >= 1:
            raise UserError(f"growth must be 1 or more, not {self.growth}.")

    def init(self, policy: Policy, params: Any, spec: Spec) -> State:
        """State before the first iteration; `params` are the policy's."""
        del policy
        return State(
            multiplier=self.ascent.init(len(spec.enforced)),
            penalty=jnp.asarray(self.penalty, jnp.float32),
            excess=jnp.zeros((), jnp.float32),
            optimiser=self.descent.init(params),
        )

    def update(
        self, key: Array, policy: Policy, params: Any, state: State, batch: Batch
    ) -> tuple[Any, State, dict[str, Array]]:
        """One iteration: sigma and lambda, then descent on the augmented Lagrangian."""
        batch = dimensionless(centred(batch))
        multiplier = self.ascent.step(state.multiplier, batch.violation)
        excess = jnp.sum(jnp.maximum(0.0, batch.violation))
        persists = (state.excess > 0.0) & (excess > self.progress * state.excess)
        grown = jnp.minimum(self.penalty_max, self.growth * state.penalty)
        penalty = jnp.where(persists, grown, state.penalty)

        prices = jnp.maximum(0.0, multiplier.value + penalty * batch.violation)
        done = minibatch_descent(
            key,
            policy,
            params,
            state.optimiser,
            batch,
            priced(self.clip),
            self.descent,
            lambda _: prices,
        )
        info = {
            "multipliers": multiplier.value,
            "penalty": penalty,
            "clipped": clipped_share(policy, done.params, batch, self.clip),
            **done.info,
        }
        return done.params, State(multiplier, penalty, excess, done.optimiser), info
