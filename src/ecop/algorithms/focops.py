"""FOCOPS: First Order Constrained Optimization in Policy Space (Zhang et al. 2020).

| here        | paper  | meaning                                                   |
|-------------|--------|-----------------------------------------------------------|
| temperature | lambda | weight of the advantage against the KL is 1 / temperature |
| multiplier  | nu     | proj_[0, nu_max](nu + rate (J_C - d)), before the policy  |
| gate        | delta  | states whose KL(new || old) exceeds this have no say      |
| loss        | L      | E[1{KL <= delta} (KL - ratio (A - nu A_C) / temperature)] |

Deviations: everything is dimensionless (learning/surrogates.py), so the rate of nu does
not depend on the unit of the cost; several constraints are supported with one nu each,
sum_i nu_i A_Ci in place of nu A_C (the paper states one); finite-horizon advantages and
minibatches of whole episodes. As in the authors' experiments an iteration ends early
once the mean KL exceeds a target (`target_kl`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax.numpy as jnp
import optax
from jaxtyping import Array

from ecop.errors import require
from ecop.learning.minibatch import minibatch_descent
from ecop.learning.multipliers import Multiplier, ascend, init_ascent
from ecop.learning.networks import Distribution, Policy
from ecop.learning.surrogates import dimensionless, policy_change, ratio, step_mean
from ecop.types import Batch, Spec


class State(NamedTuple):
    """What FOCOPS carries from one iteration to the next."""

    multiplier: Multiplier  # nu
    cost_scale: Array  # [C] running std of the cost advantage
    optimiser: Any


@dataclass(frozen=True)
class FOCOPS:
    """Options of FOCOPS.

    Attributes:
        temperature: lambda; small values trust the advantages more
        gate: delta, the largest KL of a state that still has a say
        multiplier_rate: step size of nu, per dimensionless violation
        multiplier_max: upper bound of nu
        epochs: passes over the batch per iteration
        episodes_per_step: episodes in each gradient step
        target_kl: epochs stop once the mean KL exceeds this; 0 never stops
        learning_rate: Adam's, of the policy
    """

    temperature: float = 1.5
    gate: float = 0.02
    multiplier_rate: float = 5.0
    multiplier_max: float = 2.0
    epochs: int = 20
    episodes_per_step: int = 5
    target_kl: float = 0.02
    learning_rate: float = 1e-3

    def __post_init__(self) -> None:
        require(
            self,
            "temperature gate multiplier_rate multiplier_max epochs "
            "episodes_per_step learning_rate",
            "target_kl",
        )

    def init(self, policy: Policy, params: Any, spec: Spec) -> State:
        """State before the first iteration; `params` are the policy's."""
        del policy
        count = len(spec.enforced)
        return State(
            multiplier=init_ascent(count, "plain", self.multiplier_rate),
            cost_scale=jnp.zeros(count, jnp.float32),
            optimiser=optax.adam(self.learning_rate).init(params),
        )

    def update(
        self, key: Array, policy: Policy, params: Any, state: State, batch: Batch
    ) -> tuple[Any, State, dict[str, Array]]:
        """One iteration: nu, then epochs of descent on the gated loss."""
        batch, scale = dimensionless(batch, state.cost_scale)
        multiplier = ascend(
            state.multiplier,
            batch.violation,
            "plain",
            self.multiplier_rate,
            self.multiplier_max,
        )
        batch = batch._replace(adv=batch.adv - batch.cost_adv @ multiplier.value)

        def objective(new: Distribution, part: Batch) -> Array:
            old = policy.over(params, part.observation)
            return gated_loss(new, old, part, self.temperature, self.gate)

        done = minibatch_descent(
            key, policy, params, state.optimiser, batch, objective, self
        )
        new, old = (policy.over(p, batch.observation) for p in (done.params, params))
        closed = (new.kl(old) > self.gate).astype(jnp.float32)
        living = jnp.maximum(jnp.sum(batch.alive), 1.0)
        info = {
            "multipliers": multiplier.value,
            "gated": jnp.sum(batch.alive * closed) / living,
            **done.info,
            **policy_change(policy, params, done.params, batch),
        }
        return done.params, State(multiplier, scale, done.optimiser), info


def gated_loss(
    new: Distribution, old: Distribution, part: Batch, temperature: float, gate: float
) -> Array:
    """The loss of a part whose `adv` is A - nu A_C."""
    kl = new.kl(old)
    change = ratio(new.log_prob(part.action), part.log_prob)
    open_gate = (kl <= gate).astype(jnp.float32)  # a constant to the gradient
    return step_mean(open_gate * (kl - change * part.adv / temperature), part.alive)
