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
multiplier each; finite-horizon advantages and minibatches of whole episodes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax.numpy as jnp
import optax
from jaxtyping import Array

from ecop.algorithms.ppo import clipped_loss
from ecop.errors import require
from ecop.learning.minibatch import Objective, minibatch_descent
from ecop.learning.multipliers import Multiplier, Rule, ascend, init_ascent
from ecop.learning.networks import Distribution, Policy
from ecop.learning.surrogates import dimensionless, mixed_advantage, policy_change
from ecop.types import Batch, Spec


class State(NamedTuple):
    """What PPO-Lagrangian carries from one iteration to the next."""

    multiplier: Multiplier
    cost_scale: Array  # [C] running std of the cost advantage
    optimiser: Any


@dataclass(frozen=True)
class PPOLagrangian:
    """Options of PPO-Lagrangian.

    Attributes:
        multiplier_rate: step size of the multiplier, per dimensionless violation
        multiplier_rule: "plain" ascent or "adam"
        clip: the ratio is clipped to 1 +- this
        epochs: passes over the batch per iteration
        episodes_per_step: episodes in each gradient step
        target_kl: epochs stop once the mean KL exceeds this; 0 never stops
        learning_rate: Adam's, of the policy
    """

    multiplier_rate: float = 5.0
    multiplier_rule: Rule = "plain"
    clip: float = 0.2
    epochs: int = 20
    episodes_per_step: int = 5
    target_kl: float = 0.0
    learning_rate: float = 1e-3

    def __post_init__(self) -> None:
        require(
            self,
            "multiplier_rate clip epochs episodes_per_step learning_rate",
            "target_kl",
        )

    def init(self, policy: Policy, params: Any, spec: Spec) -> State:
        """State before the first iteration; `params` are the policy's."""
        del policy
        count = len(spec.enforced)
        return State(
            multiplier=init_ascent(count, self.multiplier_rule, self.multiplier_rate),
            cost_scale=jnp.zeros(count, jnp.float32),
            optimiser=optax.adam(self.learning_rate).init(params),
        )

    def update(
        self, key: Array, policy: Policy, params: Any, state: State, batch: Batch
    ) -> tuple[Any, State, dict[str, Array]]:
        """One iteration: the multiplier, then PPO on the mixed advantage."""
        batch, scale = dimensionless(batch, state.cost_scale)
        multiplier = ascend(
            state.multiplier,
            batch.violation,
            self.multiplier_rule,
            self.multiplier_rate,
        )
        loss = lagrangian_loss(multiplier.value, self.clip)
        done = minibatch_descent(
            key, policy, params, state.optimiser, batch, loss, self
        )
        info = {
            "multipliers": multiplier.value,
            **done.info,
            **policy_change(policy, params, done.params, batch, self.clip),
        }
        return done.params, State(multiplier, scale, done.optimiser), info


def lagrangian_loss(multiplier: Array, clip: float) -> Objective:
    """PPO's clipped loss of the advantage (A - lambda A_C) / (1 + lambda)."""

    def loss(distribution: Distribution, part: Batch) -> Array:
        mixed = part._replace(adv=mixed_advantage(part, multiplier))
        return clipped_loss(distribution, mixed, clip)

    return loss
