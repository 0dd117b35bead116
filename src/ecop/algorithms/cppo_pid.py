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

import jax.numpy as jnp
import optax
from jaxtyping import Array

from ecop.algorithms.ppo_lag import lagrangian_loss
from ecop.errors import UserError, require
from ecop.learning.minibatch import minibatch_descent
from ecop.learning.multipliers import Pid, control, init_pid
from ecop.learning.networks import Policy
from ecop.learning.surrogates import dimensionless, policy_change
from ecop.types import Batch, Spec


class State(NamedTuple):
    """What CPPO-PID carries from one iteration to the next."""

    controller: Pid
    cost_scale: Array  # [C] running std of the cost advantage
    optimiser: Any


@dataclass(frozen=True)
class CPPOPID:
    """Options of CPPO-PID.

    Attributes:
        proportional: gain K_P of the smoothed violation
        integral: gain K_I of the summed violation
        derivative: gain K_D of the cost's rise
        error_memory: of the average behind the proportional term, per iteration
        cost_memory: of the average behind the derivative term, per iteration
        delay: iterations over which a rise is measured
        clip: the ratio is clipped to 1 +- this
        epochs: passes over the batch per iteration
        episodes_per_step: episodes in each gradient step
        target_kl: epochs stop once the mean KL exceeds this; 0 never stops
        learning_rate: Adam's, of the policy
    """

    proportional: float = 5.0
    integral: float = 5.0
    derivative: float = 5.0
    error_memory: float = 0.5
    cost_memory: float = 0.5
    delay: int = 5
    clip: float = 0.2
    epochs: int = 20
    episodes_per_step: int = 5
    target_kl: float = 0.0
    learning_rate: float = 1e-3

    def __post_init__(self) -> None:
        require(
            self,
            "delay clip epochs episodes_per_step learning_rate",
            "proportional integral derivative error_memory cost_memory target_kl",
        )
        if max(self.error_memory, self.cost_memory) >= 1:
            raise UserError("error_memory and cost_memory must be less than 1.")

    def init(self, policy: Policy, params: Any, spec: Spec) -> State:
        """State before the first iteration; `params` are the policy's."""
        del policy
        count = len(spec.enforced)
        return State(
            controller=init_pid(count, self.delay),
            cost_scale=jnp.zeros(count, jnp.float32),
            optimiser=optax.adam(self.learning_rate).init(params),
        )

    def update(
        self, key: Array, policy: Policy, params: Any, state: State, batch: Batch
    ) -> tuple[Any, State, dict[str, Array]]:
        """One iteration: the controller, then PPO on the mixed advantage."""
        batch, scale = dimensionless(batch, state.cost_scale)
        controller, multiplier = control(
            state.controller,
            batch.violation,
            proportional=self.proportional,
            integral=self.integral,
            derivative=self.derivative,
            error_memory=self.error_memory,
            cost_memory=self.cost_memory,
        )
        loss = lagrangian_loss(multiplier, self.clip)
        done = minibatch_descent(
            key, policy, params, state.optimiser, batch, loss, self
        )
        info = {
            "multipliers": multiplier,
            **done.info,
            **policy_change(policy, params, done.params, batch, self.clip),
        }
        return done.params, State(controller, scale, done.optimiser), info
