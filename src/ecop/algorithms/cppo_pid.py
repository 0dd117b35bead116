"""CPPO-PID: PPO with a PID-controlled multiplier (Stooke, Achiam, Abbeel 2020).

| here         | paper  | meaning                                                   |
|--------------|--------|-----------------------------------------------------------|
| violation    | Delta  | J_C - d of pi_old, measured on the batch                  |
| proportional | K_P    | gain of the smoothed violation                            |
| integral     | K_I    | gain of the sum of violations, kept at zero or more       |
| derivative   | K_D    | gain of the rise of the smoothed cost; falls do not count |
| multiplier   | lambda | (K_P error + I + K_D rise)_+ (learning/multipliers.py)    |
| loss         |        | PPO-Lagrangian's, with that multiplier                    |

Deviations: violations are dimensionless (learning/surrogates.py), and so are the gains;
the averages start at the first measurement instead of zero, so that the first
iterations show no false rise; the multiplier has no upper bound because the mixed
advantage is divided by 1 + lambda, as the paper proposes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from jaxtyping import Array

from ecop.algorithms.ppo_lag import lagrangian_loss
from ecop.errors import require
from ecop.learning.minibatch import Descent, minibatch_descent
from ecop.learning.multipliers import Pid, PidGains
from ecop.learning.networks import Policy
from ecop.learning.options import flat
from ecop.learning.surrogates import centred, clipped_share, dimensionless
from ecop.types import Batch, Spec


class State(NamedTuple):
    """What CPPO-PID carries from one iteration to the next."""

    controller: Pid
    optimiser: Any


@flat
@dataclass(frozen=True)
class CPPOPID:
    """Options of CPPO-PID.

    Attributes:
        clip: the ratio is clipped to 1 +- this
        gains: how the multiplier follows the violation
        descent: how the loss is descended
    """

    clip: float = 0.2
    gains: PidGains = PidGains()
    descent: Descent = Descent()

    def __post_init__(self) -> None:
        require(self, "clip")

    def init(self, policy: Policy, params: Any, spec: Spec) -> State:
        """State before the first iteration; `params` are the policy's."""
        del policy
        return State(self.gains.init(len(spec.enforced)), self.descent.init(params))

    def update(
        self, key: Array, policy: Policy, params: Any, state: State, batch: Batch
    ) -> tuple[Any, State, dict[str, Array]]:
        """One iteration: the controller, then PPO on the mixed advantage."""
        batch = dimensionless(centred(batch))
        controller, multiplier = self.gains.step(state.controller, batch.violation)
        loss = lagrangian_loss(multiplier, self.clip)
        done = minibatch_descent(
            key, policy, params, state.optimiser, batch, loss, self.descent
        )
        info = {
            "multipliers": multiplier,
            "clipped": clipped_share(policy, done.params, batch, self.clip),
            **done.info,
        }
        return done.params, State(controller, done.optimiser), info
