"""PPO: Proximal Policy Optimization (Schulman et al. 2017); ignores all costs.

| here     | paper   | meaning                                 |
|----------|---------|-----------------------------------------|
| ratio    | r_t     | pi_theta(a|s,h) / pi_old(a|s,h)         |
| adv      | A_t     | advantage under pi_old                  |
| clip     | epsilon | the ratio is clipped to 1 +- this       |
| loss     | -L^CLIP | -E[min(ratio A, clip(ratio) A)]         |

Deviations: advantages are of the finite horizon (no bootstrap after step H) and
standardised over the batch; minibatches are whole episodes; the critics are fitted by
the training loop, so the loss has no value term; no entropy bonus.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax.numpy as jnp
import optax
from jaxtyping import Array

from ecop.errors import require
from ecop.learning.minibatch import minibatch_descent
from ecop.learning.networks import Distribution, Policy
from ecop.learning.surrogates import (
    clipped_gain,
    policy_change,
    ratio,
    standardised,
    step_mean,
)
from ecop.types import Batch, Spec


class State(NamedTuple):
    """What PPO carries from one iteration to the next."""

    optimiser: Any


@dataclass(frozen=True)
class PPO:
    """Options of PPO.

    Attributes:
        clip: the ratio is clipped to 1 +- this
        epochs: passes over the batch per iteration
        episodes_per_step: episodes in each gradient step
        target_kl: epochs stop once the mean KL exceeds this; 0 never stops
        learning_rate: Adam's, of the policy
    """

    clip: float = 0.2
    epochs: int = 20
    episodes_per_step: int = 5
    target_kl: float = 0.0
    learning_rate: float = 1e-3

    def __post_init__(self) -> None:
        require(self, "clip epochs episodes_per_step learning_rate", "target_kl")

    def init(self, policy: Policy, params: Any, spec: Spec) -> State:
        """State before the first iteration; `params` are the policy's."""
        del policy, spec
        return State(optax.adam(self.learning_rate).init(params))

    def update(
        self, key: Array, policy: Policy, params: Any, state: State, batch: Batch
    ) -> tuple[Any, State, dict[str, Array]]:
        """One iteration: epochs of minibatch descent on the clipped surrogate."""
        batch = batch._replace(adv=standardised(batch.adv, batch.alive))
        done = minibatch_descent(
            key,
            policy,
            params,
            state.optimiser,
            batch,
            lambda distribution, part: clipped_loss(distribution, part, self.clip),
            self,
        )
        info = {
            "multipliers": jnp.zeros_like(batch.violation),
            **done.info,
            **policy_change(policy, params, done.params, batch, self.clip),
        }
        return done.params, State(done.optimiser), info


def clipped_loss(distribution: Distribution, part: Batch, clip: float) -> Array:
    """(7) -E[min(ratio A, clip(ratio) A)]."""
    change = ratio(distribution.log_prob(part.action), part.log_prob)
    return -step_mean(clipped_gain(change, part.adv, clip), part.alive)
