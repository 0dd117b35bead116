"""PPO: Proximal Policy Optimization (Schulman et al. 2017); ignores all costs.

| here     | paper   | meaning                                 |
|----------|---------|-----------------------------------------|
| ratio    | r_t     | pi_theta(a|s,h) / pi_old(a|s,h)         |
| adv      | A_t     | advantage under pi_old                  |
| clip     | epsilon | the ratio is clipped to 1 +- this       |
| loss     | -L^CLIP | -E[min(ratio A, clip(ratio) A)]         |

Deviations: advantages are of the finite horizon (no bootstrap after step H) and
standardised over the batch; the critics are fitted by the training loop, so the loss
has no value term; the rate follows the KL of an iteration; no entropy bonus.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array

from ecop.errors import require
from ecop.learning.minibatch import Descent, minibatch_descent
from ecop.learning.networks import Policy
from ecop.learning.options import flat
from ecop.learning.surrogates import (
    centred,
    clipped_loss,
    clipped_share,
    dimensionless,
)
from ecop.types import Batch, Spec


class State(NamedTuple):
    """What PPO carries from one iteration to the next."""

    optimiser: Any


@flat
@dataclass(frozen=True)
class PPO:
    """Options of PPO.

    Attributes:
        clip: the ratio is clipped to 1 +- this
        descent: how the loss is descended
    """

    clip: float = 0.2
    descent: Descent = Descent()

    def __post_init__(self) -> None:
        require(self, "clip")

    def init(self, policy: Policy, params: Any, spec: Spec) -> State:
        """State before the first iteration; `params` are the policy's."""
        del policy, spec
        return State(self.descent.init(params))

    def update(
        self, key: Array, policy: Policy, params: Any, state: State, batch: Batch
    ) -> tuple[Any, State, dict[str, Array]]:
        """One iteration: epochs of minibatch descent on the clipped surrogate."""
        batch = dimensionless(centred(batch))
        done = minibatch_descent(
            key,
            policy,
            params,
            state.optimiser,
            batch,
            lambda new, part, _: clipped_loss(new, part, self.clip),
            self.descent,
        )
        info = {
            "multipliers": jnp.zeros_like(batch.violation),
            "clipped": clipped_share(policy, done.params, batch, self.clip),
            **done.info,
        }
        return done.params, State(done.optimiser), info
