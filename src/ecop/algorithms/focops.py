"""FOCOPS: First Order Constrained Optimization in Policy Space (Zhang et al. 2020).

| here        | paper  | meaning                                                   |
|-------------|--------|-----------------------------------------------------------|
| temperature | lambda | weight of the advantage against the KL is 1 / temperature |
| multiplier  | nu     | proj_[0, nu_max](nu + rate (J_C - d)), before the policy  |
| gate        | delta  | states whose KL(new || old) exceeds this have no say      |
| loss        | L      | E[1{KL <= delta} (KL - ratio (A - nu A_C) / temperature)] |

Deviations: everything is dimensionless (learning/surrogates.py), so the rate of nu does
not depend on the unit of the cost; several constraints are supported with one nu each,
sum_i nu_i A_Ci in place of nu A_C (the paper states one); finite-horizon advantages. As
in the authors' experiments an iteration ends early once the mean KL exceeds a target
(`target_kl`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array

from ecop.errors import require
from ecop.learning.minibatch import Descent, minibatch_descent
from ecop.learning.multipliers import Ascent, Multiplier
from ecop.learning.networks import Distribution, Policy
from ecop.learning.options import flat
from ecop.learning.surrogates import (
    centred,
    dimensionless,
    ratio,
    step_mean,
)
from ecop.types import Batch, Spec


class State(NamedTuple):
    """What FOCOPS carries from one iteration to the next."""

    multiplier: Multiplier  # nu
    optimiser: Any


@flat
@dataclass(frozen=True)
class FOCOPS:
    """Options of FOCOPS.

    Attributes:
        temperature: lambda; small values trust the advantages more
        gate: delta, the largest KL of a state that still has a say
        multiplier_max: upper bound of nu
        ascent: how nu follows the violation
        descent: how the loss is descended
    """

    temperature: float = 0.5
    gate: float = 0.02
    multiplier_max: float = 10.0
    ascent: Ascent = Ascent()
    descent: Descent = Descent(kl_goal=0.0)  # the gate bounds the step

    def __post_init__(self) -> None:
        require(self, "temperature gate multiplier_max")

    def init(self, policy: Policy, params: Any, spec: Spec) -> State:
        """State before the first iteration; `params` are the policy's."""
        del policy
        return State(self.ascent.init(len(spec.enforced)), self.descent.init(params))

    def update(
        self, key: Array, policy: Policy, params: Any, state: State, batch: Batch
    ) -> tuple[Any, State, dict[str, Array]]:
        """One iteration: nu, then epochs of descent on the gated loss."""
        batch = dimensionless(centred(batch))
        multiplier = self.ascent.step(
            state.multiplier, batch.violation, self.multiplier_max
        )
        batch = batch._replace(adv=batch.adv - batch.cost_adv @ multiplier.value)

        def objective(new: Distribution, part: Batch, _: Any) -> Array:
            old = policy.over(params, part.observation)
            return gated_loss(new, old, part, self.temperature, self.gate)

        done = minibatch_descent(
            key, policy, params, state.optimiser, batch, objective, self.descent
        )
        new, old = (policy.over(p, batch.observation) for p in (done.params, params))
        closed = (new.kl(old) > self.gate).astype(jnp.float32)
        info = {
            "multipliers": multiplier.value,
            "gated": step_mean(closed, batch.alive),
            **done.info,
        }
        return done.params, State(multiplier, done.optimiser), info


def gated_loss(
    new: Distribution, old: Distribution, part: Batch, temperature: float, gate: float
) -> Array:
    """The loss of a part whose `adv` is A - nu A_C."""
    kl = new.kl(old)
    change = ratio(new.log_prob(part.action), part.log_prob)
    open_gate = (kl <= gate).astype(jnp.float32)  # a constant to the gradient
    return step_mean(open_gate * (kl - change * part.adv / temperature), part.alive)
