"""APPO: Augmented Proximal Policy Optimization for Safe RL (Dai et al. 2023).

| here       | paper  | meaning                                                   |
|------------|--------|-----------------------------------------------------------|
| loss       | L^CLIP | -E[min(ratio A, clip(ratio) A)]                           |
| psi        |        | clipped cost surrogate + violation of pi_old              |
| multiplier | lambda | max(0, lambda + rate (J_C - d)), before the policy        |
| penalty    | sigma  | weight of the quadratic deviation term                    |
| augmented  |        | sigma/2 (max(0, psi + lambda/sigma)^2 - (lambda/sigma)^2) |
| growth     |        | sigma <- min(sigma_max, growth sigma), see below          |

The augmented term equals lambda psi + sigma/2 psi^2 where psi > -lambda/sigma and is
constant elsewhere: the slack of an inequality is eliminated, as in e-COP's Problem 6,
whose function `damped_penalty` it is. The adaptive sigma grows while the violation is
positive and has not shrunk to `progress` times that of the iteration before.

Deviations: everything is dimensionless (learning/surrogates.py), so sigma and the rate
do not depend on the unit of the cost; finite-horizon advantages and minibatches of
whole episodes; the test for growth is that of augmented Lagrangian methods in general.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax.numpy as jnp
import optax
from jaxtyping import Array

from ecop.algorithms.ecop import damped_penalty
from ecop.algorithms.ppo import clipped_loss
from ecop.errors import UserError, require
from ecop.learning.minibatch import minibatch_descent
from ecop.learning.multipliers import Multiplier, ascend, init_ascent
from ecop.learning.networks import Distribution, Policy
from ecop.learning.surrogates import dimensionless, policy_change, predicted_violation
from ecop.types import Batch, Spec


class State(NamedTuple):
    """What APPO carries from one iteration to the next."""

    multiplier: Multiplier
    penalty: Array  # [] sigma
    excess: Array  # [] sum of the violations above zero, of the iteration before
    cost_scale: Array  # [C] running std of the cost advantage
    optimiser: Any


@dataclass(frozen=True)
class APPO:
    """Options of APPO.

    Attributes:
        penalty: sigma of the quadratic term, in the first iteration
        growth: factor of sigma while violations persist; 1 keeps it fixed
        progress: share of the last violation below which sigma does not grow
        penalty_max: where sigma stops growing
        multiplier_rate: step size of the multiplier, per dimensionless violation
        clip: the ratio is clipped to 1 +- this
        epochs: passes over the batch per iteration
        episodes_per_step: episodes in each gradient step
        target_kl: epochs stop once the mean KL exceeds this; 0 never stops
        learning_rate: Adam's, of the policy
    """

    penalty: float = 10.0
    growth: float = 1.0
    progress: float = 0.9
    penalty_max: float = 100.0
    multiplier_rate: float = 5.0
    clip: float = 0.2
    epochs: int = 20
    episodes_per_step: int = 5
    target_kl: float = 0.0
    learning_rate: float = 1e-3

    def __post_init__(self) -> None:
        require(
            self,
            "penalty penalty_max multiplier_rate clip epochs episodes_per_step "
            "learning_rate",
            "progress target_kl",
        )
        if not self.growth >= 1:
            raise UserError(f"growth must be 1 or more, not {self.growth}.")

    def init(self, policy: Policy, params: Any, spec: Spec) -> State:
        """State before the first iteration; `params` are the policy's."""
        del policy
        count = len(spec.enforced)
        return State(
            multiplier=init_ascent(count, "plain", self.multiplier_rate),
            penalty=jnp.asarray(self.penalty, jnp.float32),
            excess=jnp.zeros((), jnp.float32),
            cost_scale=jnp.zeros(count, jnp.float32),
            optimiser=optax.adam(self.learning_rate).init(params),
        )

    def update(
        self, key: Array, policy: Policy, params: Any, state: State, batch: Batch
    ) -> tuple[Any, State, dict[str, Array]]:
        """One iteration: sigma and lambda, then descent on the augmented Lagrangian."""
        batch, scale = dimensionless(batch, state.cost_scale)
        multiplier = ascend(
            state.multiplier, batch.violation, "plain", self.multiplier_rate
        )
        excess = jnp.sum(jnp.maximum(0.0, batch.violation))
        persists = (state.excess > 0.0) & (excess > self.progress * state.excess)
        grown = jnp.minimum(self.penalty_max, self.growth * state.penalty)
        penalty = jnp.where(persists, grown, state.penalty)

        def objective(distribution: Distribution, part: Batch) -> Array:
            psi = predicted_violation(distribution, part, self.clip)
            augmented = damped_penalty(psi, multiplier.value, penalty, "augmented")
            return clipped_loss(distribution, part, self.clip) + augmented

        done = minibatch_descent(
            key, policy, params, state.optimiser, batch, objective, self
        )
        info = {
            "multipliers": multiplier.value,
            "penalty": penalty,
            **done.info,
            **policy_change(policy, params, done.params, batch, self.clip),
        }
        state = State(multiplier, penalty, excess, scale, done.optimiser)
        return done.params, state, info
