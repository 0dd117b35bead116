"""TRPO-Lagrangian (Ray et al. 2019; TRPO: Schulman et al. 2015).

| here       | paper  | meaning                                                   |
|------------|--------|-----------------------------------------------------------|
| mixed      |        | (A - lambda A_C) / (1 + lambda)                           |
| gain       | L      | E[ratio mixed]                                            |
| target_kl  | delta  | bound of the mean KL(old || new)                          |
| step       |        | sqrt(2 delta / g F^-1 g) F^-1 g, shortened by line search |
| multiplier | lambda | max(0, lambda + rate (J_C - d)), before the policy        |

A step is accepted if the mean KL is within the region and the gain has grown.

Deviations: everything is dimensionless (learning/surrogates.py), so the rate of the
multiplier does not depend on the unit of the cost or on the horizon; finite-horizon
advantages.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array

from ecop.errors import require
from ecop.learning.multipliers import Multiplier, Rule, ascend, init_ascent
from ecop.learning.networks import Policy
from ecop.learning.surrogates import dimensionless, mixed_advantage
from ecop.learning.trust_region import (
    localise,
    natural,
    require_region,
    safe_inverse,
    take_step,
)
from ecop.types import Batch, Spec


class State(NamedTuple):
    """What TRPO-Lagrangian carries from one iteration to the next."""

    multiplier: Multiplier
    cost_scale: Array  # [C] running std of the cost advantage


@dataclass(frozen=True)
class TRPOLagrangian:
    """Options of TRPO-Lagrangian.

    Attributes:
        multiplier_rate: step size of the multiplier, per dimensionless violation
        multiplier_rule: "plain" ascent or "adam"
        target_kl: size of the trust region, mean KL(old || new)
        damping: added to the diagonal of the Fisher matrix
        cg_steps: steps of the conjugate gradient method
        line_search_tries: how often a step is shortened before it is given up
        line_search_decay: factor by which it is shortened
    """

    multiplier_rate: float = 5.0
    multiplier_rule: Rule = "plain"
    target_kl: float = 0.01
    damping: float = 0.1
    cg_steps: int = 10
    line_search_tries: int = 25
    line_search_decay: float = 0.8

    def __post_init__(self) -> None:
        require(self, "multiplier_rate")
        require_region(self)

    def init(self, policy: Policy, params: Any, spec: Spec) -> State:
        """State before the first iteration; `params` are the policy's."""
        del policy, params
        count = len(spec.enforced)
        return State(
            multiplier=init_ascent(count, self.multiplier_rule, self.multiplier_rate),
            cost_scale=jnp.zeros(count, jnp.float32),
        )

    def update(
        self, key: Array, policy: Policy, params: Any, state: State, batch: Batch
    ) -> tuple[Any, State, dict[str, Array]]:
        """One iteration: the multiplier, then one natural gradient step."""
        del key
        batch, scale = dimensionless(batch, state.cost_scale)
        multiplier = ascend(
            state.multiplier,
            batch.violation,
            self.multiplier_rule,
            self.multiplier_rate,
        )
        batch = batch._replace(adv=mixed_advantage(batch, multiplier.value))
        local = localise(policy, params, batch)
        before, gradient = jax.value_and_grad(local.gain)(local.point)
        direction = natural(local, self)(gradient)
        curvature = jnp.dot(gradient, direction)
        step = jnp.sqrt(2.0 * self.target_kl * safe_inverse(curvature)) * direction

        new, info = take_step(
            policy, batch, local, step, lambda end: local.gain(end) > before, self
        )
        info |= {
            "multipliers": multiplier.value,
            "gradient_norm": optax.tree.norm(gradient),
        }
        return new, State(multiplier, scale), info
