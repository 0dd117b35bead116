"""CPO: Constrained Policy Optimization (Achiam et al. 2017).

| here       | paper  | meaning                                                      |
|------------|--------|--------------------------------------------------------------|
| g, b       | g, b   | gradients of E[ratio A] and E[ratio A_C]                     |
| violation  | c      | J_C - d of pi_old, in the unit of b                          |
| target_kl  | delta  | bound of the mean KL(old || new)                             |
| q, r, s    | q, r, s| g F^-1 g, g F^-1 b, b F^-1 b                                 |
| scale      | lambda | multiplier of the trust region                               |
| multiplier | nu     | multiplier of the cost, solved in each step                  |
| step       | x      | argmax g x  s.t.  c + b x <= 0,  x F x / 2 <= delta          |

`solve_dual` distinguishes the paper's cases: the region lies wholly within the limit
(nu = 0), it is cut by the limit (two candidates of lambda), or it lies wholly outside
(recovery: the step that lowers the cost fastest). The line search asks for a mean KL
within the region, a cost surrogate no higher than max(-c, 0), and, unless the old
policy breaks the limit, a gain.

Deviations: c and b are dimensionless (learning/surrogates.py): c = violation / (H s)
and b is the gradient of the mean of ratio A_C / s, so c + b x is the predicted
violation in one unit; one constraint only, as in the paper's experiments;
finite-horizon advantages.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from ecop.learning.networks import Policy
from ecop.learning.surrogates import dimensionless
from ecop.learning.trust_region import (
    localise,
    natural,
    require_region,
    safe_inverse,
    take_step,
)
from ecop.types import Batch, Spec, UserError


class State(NamedTuple):
    """What CPO carries from one iteration to the next."""

    cost_scale: Array  # [C] running std of the cost advantage


@dataclass(frozen=True)
class CPO:
    """Options of CPO.

    Attributes:
        target_kl: size of the trust region, mean KL(old || new)
        damping: added to the diagonal of the Fisher matrix
        cg_steps: steps of the conjugate gradient method
        line_search_tries: how often a step is shortened before it is given up
        line_search_decay: factor by which it is shortened
    """

    target_kl: float = 0.01
    damping: float = 0.1
    cg_steps: int = 10
    line_search_tries: int = 25
    line_search_decay: float = 0.8

    def __post_init__(self) -> None:
        require_region(self)

    def init(self, policy: Policy, params: Any, spec: Spec) -> State:
        """State before the first iteration; `params` are the policy's."""
        del policy, params
        refuse_several(spec, "CPO")
        return State(jnp.zeros(len(spec.enforced), jnp.float32))

    def update(
        self, key: Array, policy: Policy, params: Any, state: State, batch: Batch
    ) -> tuple[Any, State, dict[str, Array]]:
        """One iteration: the dual, the step, the line search."""
        del key
        batch, scale = dimensionless(batch, state.cost_scale)
        local = localise(policy, params, batch)
        start = local.point
        before, g = jax.value_and_grad(local.gain)(start)
        b = jax.grad(lambda flat: jnp.sum(local.costs(flat)))(start)
        # Without a constraint c = -inf would do; any c < 0 with b = 0 is the same.
        c = jnp.sum(batch.violation) if batch.violation.size else jnp.float32(-1.0)
        solve = natural(local, self)
        reward_step, cost_step = solve(g), solve(b)
        q, r, s = jnp.dot(g, reward_step), jnp.dot(g, cost_step), jnp.dot(b, cost_step)
        dual = solve_dual(q, r, s, c, self.target_kl)
        towards = safe_inverse(dual.scale) * (reward_step - dual.multiplier * cost_step)
        away = -jnp.sqrt(2.0 * self.target_kl * safe_inverse(s)) * cost_step
        step = jnp.where(dual.recover, away, towards)
        allowed = jnp.sum(local.costs(start)) + jnp.maximum(0.0, -c)

        def accept(end: Array) -> Array:
            gains = (local.gain(end) > before) | (c > 0.0)
            return gains & (jnp.sum(local.costs(end)) <= allowed)

        new, info = take_step(policy, batch, local, step, accept, self)
        weight = jnp.where(dual.recover, jnp.inf, dual.multiplier)
        shown = jnp.minimum(weight, MULTIPLIER_SHOWN)
        info |= {
            "multipliers": jnp.broadcast_to(shown, batch.violation.shape),
            "recovery": dual.recover.astype(jnp.float32),
            "gradient_norm": optax.tree.norm(g),
        }
        return new, State(scale), info


FAR = 1e10  # stands for infinity in the dual
MULTIPLIER_SHOWN = 100.0  # metrics are finite; a recovery step has no reward part


class Dual(NamedTuple):
    """Solution of the dual of the step's problem."""

    scale: Array  # [] lambda: the step is F^-1 (g - nu b) / lambda
    multiplier: Array  # [] nu
    recover: Array  # [] bool: the region lies wholly outside the limit


def solve_dual(
    q: Float[Array, ""],
    r: Float[Array, ""],
    s: Float[Array, ""],
    c: Float[Array, ""],
    delta: float,
) -> Dual:
    """Minimise (q - 2 nu r + nu^2 s) / (2 lambda) + lambda delta - nu c over both >= 0.

    For a fixed lambda the best nu is (r + lambda c)_+ / s. That leaves one function of
    lambda with two pieces, each convex: nu > 0, with its minimum at sqrt(A / B), and
    nu = 0, with its minimum at sqrt(q / 2 delta). Each minimum is projected onto its
    piece, and the lower one wins.
    """
    inverse = safe_inverse(s)
    reach = 2.0 * delta * s  # (b x)^2 <= reach for all x in the region
    outside = (c > 0.0) & (c**2 > reach)
    inside = (c <= 0.0) & (c**2 >= reach)
    a = jnp.maximum(0.0, q - r**2 * inverse)
    room = jnp.maximum(0.0, 2.0 * delta - c**2 * inverse)

    # The border of the pieces, r + lambda c = 0; never infinite, since 0 inf is nan.
    crossing = -r / jnp.where(c == 0.0, 1.0, c)
    crossing = jnp.where(c == 0.0, jnp.where(r > 0.0, FAR, 0.0), crossing)
    border = jnp.clip(crossing, 0.0, FAR)
    low = jnp.where(c > 0.0, border, 0.0)  # nu > 0 on [low, high]
    high = jnp.where(c > 0.0, FAR, border)
    bound = jnp.sqrt(a * safe_inverse(room))
    bound = jnp.where((room <= 0.0) & (a > 0.0), high, bound)
    active = jnp.clip(bound, low, high)
    free = jnp.sqrt(q / (2.0 * delta))
    passive = jnp.where(c > 0.0, jnp.clip(free, 0.0, border), jnp.maximum(free, border))

    def value(scale: Array) -> Array:
        nu = jnp.maximum(0.0, r + scale * c) * inverse
        square = q - 2.0 * nu * r + nu**2 * s
        return 0.5 * square / jnp.maximum(scale, 1.0 / FAR) + scale * delta - nu * c

    better = value(active) <= value(passive)
    scale = jnp.where(better & ~inside, active, jnp.where(inside, free, passive))
    nu = jnp.where(inside, 0.0, jnp.maximum(0.0, r + scale * c) * inverse)
    return Dual(scale, nu, outside)


def refuse_several(spec: Spec, name: str) -> None:
    """CPO and PCPO solve for one multiplier in closed form."""
    if len(spec.enforced) > 1:
        raise UserError(
            f"{name} handles one constraint, but {len(spec.enforced)} limits are "
            "finite; set the others to 'inf' or choose another algorithm."
        )
