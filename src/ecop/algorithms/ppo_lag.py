"""PPO-Lagrangian (Ray, Achiam, Amodei 2019): PPO on a mixed advantage.

| here            | paper     | meaning                                            |
|-----------------|-----------|----------------------------------------------------|
| adv, cost_adv   | A, A_C    | advantages under pi_old                            |
| violation       | J_C - d   | of pi_old, measured on the batch                   |
| multiplier      | lambda    | max(0, lambda + rate (J_C - d)), before the policy |
| mixed           |           | (A - lambda A_C) / (1 + lambda)                    |
| loss            | -L^CLIP   | -E[min(ratio mixed, clip(ratio) mixed)]            |

Deviations: everything is dimensionless (learning/surrogates.py), so the multiplier
weighs standardised advantages and its rate does not depend on the unit of the cost or
on the horizon; projection at zero instead of a softplus; several constraints have one
multiplier each; finite-horizon advantages.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from jaxtyping import Array

from ecop.errors import require
from ecop.learning.minibatch import Descent, Objective, minibatch_descent
from ecop.learning.multipliers import Ascent, Multiplier
from ecop.learning.networks import Distribution, Policy
from ecop.learning.options import flat
from ecop.learning.surrogates import (
    centred,
    clipped_loss,
    clipped_share,
    dimensionless,
    mixed_advantage,
)
from ecop.types import Batch, Spec


class State(NamedTuple):
    """What PPO-Lagrangian carries from one iteration to the next."""

    multiplier: Multiplier
    optimiser: Any


@flat
@dataclass(frozen=True)
class PPOLagrangian:
    """Options of PPO-Lagrangian.

    Attributes:
        clip: the ratio is clipped to 1 +- this
        ascent: how the multiplier follows the violation
        descent: how the loss is descended
    """

    clip: float = 0.1
    ascent: Ascent = Ascent()
    descent: Descent = Descent()

    def __post_init__(self) -> None:
        require(self, "clip")

    def init(self, policy: Policy, params: Any, spec: Spec) -> State:
        """State before the first iteration; `params` are the policy's."""
        del policy
        return State(self.ascent.init(len(spec.enforced)), self.descent.init(params))

    def update(
        self, key: Array, policy: Policy, params: Any, state: State, batch: Batch
    ) -> tuple[Any, State, dict[str, Array]]:
        """One iteration: the multiplier, then PPO on the mixed advantage."""
        batch = dimensionless(centred(batch))
        multiplier = self.ascent.step(state.multiplier, batch.violation)
        loss = lagrangian_loss(multiplier.value, self.clip)
        done = minibatch_descent(
            key, policy, params, state.optimiser, batch, loss, self.descent
        )
        info = {
            "multipliers": multiplier.value,
            "clipped": clipped_share(policy, done.params, batch, self.clip),
            **done.info,
        }
        return done.params, State(multiplier, done.optimiser), info


def lagrangian_loss(multiplier: Array, clip: float) -> Objective:
    """PPO's clipped loss of the advantage (A - lambda A_C) / (1 + lambda)."""

    def loss(distribution: Distribution, part: Batch, _: Any) -> Array:
        mixed = part._replace(adv=mixed_advantage(part, multiplier))
        return clipped_loss(distribution, mixed, clip)

    return loss
