"""NAME: what it is in a line (authors, year).

| here            | paper     | meaning                                            |
|-----------------|-----------|----------------------------------------------------|
| adv, cost_adv   | A, A_C    | advantages under pi_old                            |
| violation       | J_C - d   | of pi_old, measured on the batch                   |
| weight          |           | price of a violation                               |
| loss            |           | -E[ratio A] + weight max(0, predicted violation)   |

Deviations: none so far.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array

from ecop.errors import require
from ecop.learning.minibatch import Descent, minibatch_descent
from ecop.learning.networks import Distribution, Policy
from ecop.learning.options import flat
from ecop.learning.surrogates import (
    centred,
    dimensionless,
    predicted_violation,
    ratio,
    step_mean,
)
from ecop.types import Batch, Spec


class State(NamedTuple):
    """What it carries from one iteration to the next."""

    optimiser: Any


@flat
@dataclass(frozen=True)
class Skeleton:
    """Options.

    Attributes:
        weight: price of a violation
        clip: the ratio of costs is clipped to 1 +- this
        descent: how the loss is descended
    """

    weight: float = 5.0
    clip: float = 0.2
    descent: Descent = Descent(epochs=5)

    def __post_init__(self) -> None:
        require(self, "weight clip")

    def init(self, policy: Policy, params: Any, spec: Spec) -> State:
        """State before the first iteration; `params` are the policy's."""
        del policy, spec
        return State(self.descent.init(params))

    def update(
        self, key: Array, policy: Policy, params: Any, state: State, batch: Batch
    ) -> tuple[Any, State, dict[str, Array]]:
        """One iteration: multipliers, then the policy."""
        batch = dimensionless(centred(batch))

        def objective(distribution: Distribution, part: Batch) -> Array:
            change = ratio(distribution.log_prob(part.action), part.log_prob)
            psi = predicted_violation(distribution, part, self.clip)
            gain = step_mean(change * part.adv, part.alive)
            return self.weight * jnp.sum(jnp.maximum(0.0, psi)) - gain

        done = minibatch_descent(
            key, policy, params, state.optimiser, batch, objective, self.descent
        )
        multipliers = jnp.full_like(batch.violation, self.weight)
        return (
            done.params,
            State(done.optimiser),
            {"multipliers": multipliers, **done.info},
        )
