"""PCPO: Projection-based Constrained Policy Optimization (Yang et al. 2020).

| here       | paper | meaning                                                        |
|------------|-------|----------------------------------------------------------------|
| g, b       | g, a  | gradients of E[ratio A] [P] and of each E[ratio A_C] [C, P]    |
| violation  | b     | J_C - d of pi_old [C], in the unit of b                        |
| reach      | x     | sqrt(2 delta / g F^-1 g) F^-1 g: the reward step, TRPO's       |
| projection | L     | metric of the projection: F ("kl") or the identity ("l2")      |
| step       |       | argmin (x - reach) L (x - reach)  s.t.  c + b x <= 0           |

With one constraint the step is reach - max(0, (b reach + c) / (b L^-1 b)) L^-1 b. The
line search of 25 x 0.8 shortens the sum of both steps until the mean KL is within the
region and each cost surrogate is no higher than its max(-c, 0).

Deviations: that line search (the paper's algorithm has none; the comparison's table
does); c and b are dimensionless and in one unit (learning/surrogates.py); several
constraints are projected onto together, the paper has one; finite-horizon advantages.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array

from ecop.errors import require
from ecop.learning.multipliers import grown_margin
from ecop.learning.networks import Policy
from ecop.learning.options import flat
from ecop.learning.surrogates import centred, dimensionless
from ecop.learning.trust_region import (
    TrustRegion,
    gram,
    localise,
    natural,
    projection,
    safe_inverse,
    take_step,
)
from ecop.types import Batch, Spec


class State(NamedTuple):
    """What PCPO carries from one iteration to the next."""

    margin: Array  # [C] added to the violation


@flat
@dataclass(frozen=True)
class PCPO:
    """Options of PCPO.

    Attributes:
        projection: metric of the projection, "kl" or "l2"
        region: how far a step may go
    """

    projection: Literal["kl", "l2"] = "kl"
    region: TrustRegion = TrustRegion(target_kl=0.003)

    def __post_init__(self) -> None:
        require(self)

    def init(self, policy: Policy, params: Any, spec: Spec) -> State:
        """State before the first iteration; `params` are the policy's."""
        del policy, params
        return State(jnp.zeros(len(spec.enforced), jnp.float32))

    def update(
        self, key: Array, policy: Policy, params: Any, state: State, batch: Batch
    ) -> tuple[Any, State, dict[str, Array]]:
        """One iteration: reward step, projection, line search."""
        del key
        batch = dimensionless(centred(batch))
        margin = grown_margin(state.margin, batch.violation)
        batch = batch._replace(violation=batch.violation + margin)
        local = localise(policy, params, batch, self.region)
        start = local.point
        g = jax.grad(local.gain)(start)
        b, c = jax.jacrev(local.costs)(start), batch.violation
        solve = natural(local, self.region)
        direction = solve(g)
        bound = 2.0 * local.size
        length = jnp.sqrt(bound * safe_inverse(jnp.dot(g, direction)))
        reach = length * direction
        back = jax.vmap(solve)(b) if self.projection == "kl" else b
        weights = projection(gram(b, back))(c + b @ reach)
        step = reach - weights @ back
        allowed = local.costs(start) + jnp.maximum(0.0, -c)

        def accept(end: Array) -> Array:
            return jnp.all(local.costs(end) <= allowed)

        new, info = take_step(local, step, accept, self.region)
        info |= {
            # The step is length (F^-1 g - multipliers L^-1 b).
            "multipliers": weights * safe_inverse(length),
            "gradient_norm": optax.tree.norm(g),
        }
        return new, State(margin), info
