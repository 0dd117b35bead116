"""NAME: what it is in a line (authors, year).

| here            | paper     | meaning                                            |
|-----------------|-----------|----------------------------------------------------|
| adv, cost_adv   | A, A_C    | advantages under pi_old                            |
| violation       | J_C - d   | of pi_old, measured on the batch                   |
| psi             |           | predicted violation of the new policy              |
| weight          |           | price of a violation                               |
| loss            |           | -E[min(ratio A, clip(ratio) A)] + weight (psi)_+   |

Deviations: none so far.
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
from ecop.learning.penalties import penalised
from ecop.learning.surrogates import centred, dimensionless
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
        clip: the ratio is clipped to 1 +- this
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

        def price(psi: Array) -> Array:
            return jnp.where(psi > 0.0, self.weight, 0.0)  # the penalty's slope

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
        multipliers = jnp.full_like(batch.violation, self.weight)
        return (
            done.params,
            State(done.optimiser),
            {"multipliers": multipliers, **done.info},
        )
