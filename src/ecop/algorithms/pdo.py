"""PDO: Primal-Dual Optimization (Chow et al. 2017), without the risk measure.

| here       | paper  | meaning                                              |
|------------|--------|------------------------------------------------------|
| mixed      |        | (A - lambda A_C) / (1 + lambda)                      |
| loss       |        | -E[log pi_theta(a|s,h) mixed]: plain policy gradient |
| multiplier | lambda | max(0, lambda + rate (J_C - d)), on the same samples |

The default is one gradient step per iteration on all its episodes, the plain policy
gradient: there is no ratio, no clip and no trust region that would allow more.

Deviations: the expected cost is constrained, as in the comparison, not its conditional
value at risk, which needs the cost of each episode; everything is dimensionless
(learning/surrogates.py); a critic is the baseline; Adam scales the policy's step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax.numpy as jnp
import optax
from jaxtyping import Array

from ecop.errors import require
from ecop.learning.minibatch import minibatch_descent
from ecop.learning.multipliers import Multiplier, Rule, ascend, init_ascent
from ecop.learning.networks import Distribution, Policy
from ecop.learning.surrogates import (
    dimensionless,
    mixed_advantage,
    policy_change,
    step_mean,
)
from ecop.types import Batch, Spec


class State(NamedTuple):
    """What PDO carries from one iteration to the next."""

    multiplier: Multiplier
    cost_scale: Array  # [C] running std of the cost advantage
    optimiser: Any


@dataclass(frozen=True)
class PDO:
    """Options of PDO.

    Attributes:
        multiplier_rate: step size of the multiplier, per dimensionless violation
        multiplier_rule: "plain" ascent or "adam"
        epochs: passes over the batch per iteration; 1 is the plain policy gradient
        episodes_per_step: episodes in each gradient step
        target_kl: epochs stop once the mean KL exceeds this; 0 never stops
        learning_rate: Adam's, of the policy
    """

    multiplier_rate: float = 2.0
    multiplier_rule: Rule = "plain"
    epochs: int = 1
    episodes_per_step: int = 20
    target_kl: float = 0.0
    learning_rate: float = 5e-3

    def __post_init__(self) -> None:
        require(
            self, "multiplier_rate epochs episodes_per_step learning_rate", "target_kl"
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
        """One iteration: the multiplier, then policy gradient steps."""
        batch, scale = dimensionless(batch, state.cost_scale)
        multiplier = ascend(
            state.multiplier,
            batch.violation,
            self.multiplier_rule,
            self.multiplier_rate,
        )
        batch = batch._replace(adv=mixed_advantage(batch, multiplier.value))
        done = minibatch_descent(
            key, policy, params, state.optimiser, batch, policy_gradient_loss, self
        )
        info = {
            "multipliers": multiplier.value,
            **done.info,
            **policy_change(policy, params, done.params, batch),
        }
        return done.params, State(multiplier, scale, done.optimiser), info


def policy_gradient_loss(distribution: Distribution, part: Batch) -> Array:
    """-E[log pi A], whose gradient is the policy gradient."""
    return -step_mean(distribution.log_prob(part.action) * part.adv, part.alive)
