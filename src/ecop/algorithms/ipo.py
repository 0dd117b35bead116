"""IPO: Interior-point Policy Optimization (Liu, Ding, Liu 2020).

| here      | paper   | meaning                                                  |
|-----------|---------|----------------------------------------------------------|
| loss      | L^CLIP  | -E[min(ratio A, clip(ratio) A)]                          |
| psi       | J_C^hat | cost surrogate + violation, negative inside the limit    |
| sharpness | t       | of the barrier -log(-psi) / t; larger is closer to exact |
| slope_max |         | slope of the barrier's continuation outside the limit    |

The paper starts from a feasible policy, because the logarithm does not exist outside
the limit. Here the barrier goes on as its own tangent from the point where its slope is
`slope_max`: an infeasible iterate descends reward and cost together with that large
weight on the cost and comes back to the interior without a switch of objective.

Deviations: that continuation; psi is dimensionless (learning/surrogates.py), which only
adds a constant to the logarithm, so `sharpness` does not depend on the cost's unit; the
surrogate inside the barrier is the pessimistic clipped one of the cost.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from ecop.errors import require
from ecop.learning.minibatch import Descent, minibatch_descent
from ecop.learning.networks import Policy
from ecop.learning.options import flat
from ecop.learning.penalties import penalised
from ecop.learning.surrogates import (
    centred,
    clipped_share,
    dimensionless,
)
from ecop.types import Batch, Spec


class State(NamedTuple):
    """What IPO carries from one iteration to the next."""

    optimiser: Any


@flat
@dataclass(frozen=True)
class IPO:
    """Options of IPO.

    Attributes:
        sharpness: t of the barrier -log(slack) / t
        slope_max: weight of the cost outside the limit
        clip: the ratio is clipped to 1 +- this
        descent: how the loss is descended
    """

    sharpness: float = 100.0
    slope_max: float = 5.0
    clip: float = 0.1
    descent: Descent = Descent()

    def __post_init__(self) -> None:
        require(self, "sharpness slope_max clip")

    def init(self, policy: Policy, params: Any, spec: Spec) -> State:
        """State before the first iteration; `params` are the policy's."""
        del policy, spec
        return State(self.descent.init(params))

    def update(
        self, key: Array, policy: Policy, params: Any, state: State, batch: Batch
    ) -> tuple[Any, State, dict[str, Array]]:
        """One iteration: descent on the clipped surrogate plus the barrier."""
        batch = dimensionless(centred(batch))

        def price(psi: Array) -> Array:
            return barrier_slope(psi, self.sharpness, self.slope_max)

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
        info = {
            "multipliers": price(batch.violation),
            "clipped": clipped_share(policy, done.params, batch, self.clip),
            **done.info,
        }
        return done.params, State(done.optimiser), info


def barrier_slope(
    psi: Float[Array, " C"], sharpness: float, slope_max: float
) -> Float[Array, " C"]:
    """1 / (-t psi), the slope of -log(-psi) / t, up to `slope_max`."""
    edge = 1.0 / (sharpness * slope_max)
    return 1.0 / (sharpness * jnp.maximum(-psi, edge))
