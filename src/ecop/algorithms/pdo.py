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

from jaxtyping import Array

from ecop.learning.minibatch import Descent, minibatch_descent
from ecop.learning.multipliers import Ascent, Multiplier
from ecop.learning.networks import Distribution, Policy
from ecop.learning.options import flat
from ecop.learning.surrogates import centred, dimensionless, mixed_advantage, step_mean
from ecop.types import Batch, Spec


class State(NamedTuple):
    """What PDO carries from one iteration to the next."""

    multiplier: Multiplier
    optimiser: Any


@flat
@dataclass(frozen=True)
class PDO:
    """Options of PDO.

    Attributes:
        ascent: how the multiplier follows the violation
        descent: how the loss is descended; 1 epoch is the plain policy gradient
    """

    ascent: Ascent = Ascent(multiplier_rate=2.0)
    descent: Descent = Descent(epochs=1, minibatches=1, learning_rate=1e-3)

    def init(self, policy: Policy, params: Any, spec: Spec) -> State:
        """State before the first iteration; `params` are the policy's."""
        del policy
        return State(self.ascent.init(len(spec.enforced)), self.descent.init(params))

    def update(
        self, key: Array, policy: Policy, params: Any, state: State, batch: Batch
    ) -> tuple[Any, State, dict[str, Array]]:
        """One iteration: the multiplier, then policy gradient steps."""
        batch = dimensionless(centred(batch))
        multiplier = self.ascent.step(state.multiplier, batch.violation)
        batch = batch._replace(adv=mixed_advantage(batch, multiplier.value))
        loss = policy_gradient_loss
        done = minibatch_descent(
            key, policy, params, state.optimiser, batch, loss, self.descent
        )
        info = {"multipliers": multiplier.value, **done.info}
        return done.params, State(multiplier, done.optimiser), info


def policy_gradient_loss(distribution: Distribution, part: Batch, _: Any) -> Array:
    """-E[log pi A], whose gradient is the policy gradient."""
    return -step_mean(distribution.log_prob(part.action) * part.adv, part.alive)
