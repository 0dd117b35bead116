"""CPO: Constrained Policy Optimization (Achiam et al. 2017).

| here       | paper  | meaning                                                      |
|------------|--------|--------------------------------------------------------------|
| g, b       | g, B   | gradients of E[ratio A] [P] and of each E[ratio A_C] [C, P]  |
| violation  | c      | J_C - d of pi_old [C], in the unit of b                      |
| target_kl  | delta  | bound of the mean KL(old || new)                             |
| q, r, s    | q, r, S| g F^-1 g, b F^-1 g [C], b F^-1 b [C, C]                      |
| t          | lambda | 1 / lambda, the weight of the reward in the step             |
| mu         | nu     | nu / lambda, the weights of the costs [C]                    |
| step       | x      | argmax g x  s.t.  c + b x <= 0,  x F x / 2 <= delta          |

The step is x(t) = t F^-1 g - mu F^-1 b: the point t F^-1 g of the reward's direction,
projected onto the limits in the metric F. Its KL grows with t, so `solve_dual` bisects
for the t at which it reaches delta. x(0) is the nearest point within all limits. If it
lies outside the region, the step goes towards it as far as the region allows
(recovery): every broken limit is then broken by less, each by the same share at least,
and no other becomes broken. With one constraint these are the paper's cases. The line
search asks for a mean KL within the region, each cost surrogate no higher than its
max(-c, 0), and, unless the old policy breaks a limit, a gain.

Deviations: c and b are dimensionless (learning/surrogates.py): c = violation / (H s)
and b is the gradient of the mean of ratio A_C / s, so c + b x is the predicted
violation in one unit; the paper's recovery step is stated for one constraint;
finite-horizon advantages.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import lax
from jaxtyping import Array, Float

from ecop.learning.multipliers import grown_margin
from ecop.learning.networks import Policy
from ecop.learning.options import flat
from ecop.learning.surrogates import centred, dimensionless
from ecop.learning.trust_region import (
    TINY,
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
    """What CPO carries from one iteration to the next."""

    margin: Array  # [C] added to the violation


@flat
@dataclass(frozen=True)
class CPO:
    """Options of CPO.

    Attributes:
        region: how far a step may go
    """

    region: TrustRegion = TrustRegion(target_kl=0.003)

    def init(self, policy: Policy, params: Any, spec: Spec) -> State:
        """State before the first iteration; `params` are the policy's."""
        del policy, params
        return State(jnp.zeros(len(spec.enforced), jnp.float32))

    def update(
        self, key: Array, policy: Policy, params: Any, state: State, batch: Batch
    ) -> tuple[Any, State, dict[str, Array]]:
        """One iteration: the dual, the step, the line search."""
        del key
        batch = dimensionless(centred(batch))
        margin = grown_margin(state.margin, batch.violation)
        batch = batch._replace(violation=batch.violation + margin)
        local = localise(policy, params, batch, self.region)
        start = local.point
        before, g = jax.value_and_grad(local.gain)(start)
        b, c = jax.jacrev(local.costs)(start), batch.violation
        solve = natural(local, self.region)
        reward_step, cost_steps = solve(g), jax.vmap(solve)(b)
        q, r, s = jnp.dot(g, reward_step), cost_steps @ g, gram(b, cost_steps)
        dual = solve_dual(q, r, s, c, local.size)
        step = dual.share * (dual.t * reward_step - dual.mu @ cost_steps)
        allowed = local.costs(start) + jnp.maximum(0.0, -c)

        def accept(end: Array) -> Array:
            gains = (local.gain(end) > before) | jnp.any(c > 0.0)
            return gains & jnp.all(local.costs(end) <= allowed)

        new, info = take_step(local, step, accept, self.region)
        multipliers = dual.mu / jnp.maximum(dual.t, TINY)
        info |= {
            "multipliers": jnp.minimum(multipliers, MULTIPLIER_SHOWN),
            "recovery": dual.recover.astype(jnp.float32),
            "gradient_norm": optax.tree.norm(g),
        }
        return new, State(margin), info


FAR = 100.0  # largest t, relative to that of a step without limits
HALVINGS = 32  # of the interval of t
MULTIPLIER_SHOWN = 100.0  # metrics are finite; a recovery step has no reward part


class Dual(NamedTuple):
    """The step is share (t F^-1 g - mu F^-1 b)."""

    t: Array  # [] 1 / lambda
    mu: Array  # [C] nu / lambda
    share: Array  # [] below 1 if the region does not reach the limits
    recover: Array  # [] bool: no step in the region is within the limits


def solve_dual(
    q: Float[Array, ""],
    r: Float[Array, " C"],
    s: Float[Array, "C C"],
    c: Float[Array, " C"],
    delta: Float[Array, ""] | float,
) -> Dual:
    """Solve for the longest x(t) in the region; t = 0 if even x(0) lies outside."""
    project = projection(s)

    def point(t: Array) -> tuple[Array, Array]:
        mu = project(c + t * r)
        square = t**2 * q - 2.0 * t * jnp.dot(r, mu) + jnp.dot(mu, s @ mu)
        return mu, 0.5 * square

    def halve(_: Array, bounds: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = bounds
        middle = 0.5 * (low + high)
        inside = point(middle)[1] <= delta
        return jnp.where(inside, middle, low), jnp.where(inside, high, middle)

    zero = jnp.zeros_like(q)
    hopeless = jnp.any((c > 0.0) & (jnp.diag(s) <= TINY))  # no step changes that cost
    recover = (point(zero)[1] > delta) | hopeless
    high = FAR * jnp.sqrt(2.0 * delta * safe_inverse(q))
    low, _ = lax.fori_loop(0, HALVINGS, halve, (zero, high))
    t = jnp.where(recover, 0.0, low)
    mu, kl = point(t)
    return Dual(t, mu, jnp.sqrt(delta / jnp.maximum(kl, delta)), recover)
