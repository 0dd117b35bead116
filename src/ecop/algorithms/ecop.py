"""e-COP: Episodic Constrained Optimization of Policies (NeurIPS 2024), Algorithm 2.

| here             | paper          | meaning                                          |
|------------------|----------------|--------------------------------------------------|
| adv, cost_adv    | A_h, A_Ci,h    | finite-horizon advantages under pi_{k-1}         |
| ratio            | rho(theta_h)   | pi_theta(a|s,h) / pi_{k-1}(a|s,h)                |
| loss             | L_t            | sum_{h>=t} E[-min(ratio A, clip(ratio) A)]       |
| cost_loss        | L_Ci,t         | sum_{h>=t} E[max(ratio A_C, clip(ratio) A_C)]    |
| violation        | J_Ci - d_i     | of pi_{k-1}, measured on the batch               |
| psi              | Psi_Ci,t       | cost_loss + violation                            |
| multiplier       | lambda_t,i     | one per constraint, the same for all t           |
| beta             | beta           | damping factor                                   |
| beta_growth      | p              | factor of the adaptive beta                      |

Deviations from the printed paper (why: docs/ecop.md, same numbers):
1. L_C is +max, the pessimistic bound of a cost; printed with -min.
2. `penalty="augmented"` leaves out the term that counts lambda twice.
3. beta grows if C(pi_k) > c_k; printed >=.
4. `units="dimensionless"`: means over the horizon, advantages over their scales.
5. `backward_steps` < H: one gradient step per block of time steps; 1, the default: no
   order of time, the penalty by its price (learning/penalties.py).
6. beta is adapted when the next batch has measured C(pi_k).
7. Psi(pi_{k-1}, pi_{k-1}) is the violation, so lambda is the same for all t.
8. Dimensionless cost_loss is counted from the old policy's: minus A_C.
9. `caution` standard errors of the measured cost are added to the violation.
10. lambda has a rate of its own, and a violation counts up to what an iteration can
    mend (learning/multipliers.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array

from ecop.errors import UserError, require
from ecop.learning.backward import backward_descent, init_backward
from ecop.learning.damping import adapt_beta, damped_penalty, price
from ecop.learning.minibatch import Descent, minibatch_descent
from ecop.learning.multipliers import REACH
from ecop.learning.networks import Distribution, Policy
from ecop.learning.options import flat
from ecop.learning.penalties import penalised
from ecop.learning.surrogates import (
    centred,
    clipped_cost,
    clipped_gain,
    clipped_share,
    dimensionless,
    ratio,
)
from ecop.types import Batch, Spec

BETA_LADDER = (2.0, 5.0, 10.0, 20.0, 50.0, 100.0)  # what beta="auto" tries, in order


class State(NamedTuple):
    """What e-COP carries from one iteration to the next."""

    multiplier: Array  # [C] lambda
    beta: Array  # []
    optimiser: Any


@flat
@dataclass(frozen=True)
class ECOP:
    """Options of e-COP.

    Attributes:
        beta: damping factor; "auto" finds one by a line search before training
        multiplier_rate: step size of the multiplier, per dimensionless violation
        caution: standard errors of the measured cost that are added to the violation
        beta_growth: factor p of the adaptive beta; 1 keeps beta fixed
        beta_relax: factor by which it falls again while C(pi) is small; 1: never
        beta_max: where the adaptive beta stops
        penalty: "augmented" (the completed square alone) or "paper" (lambda twice)
        units: "dimensionless", or "paper" for the literal sums over the horizon
        clip: the ratio is clipped to 1 +- this
        backward_steps: gradient steps of one backward pass, each over h >= t of whole
            episodes; 0 means H, the literal pass; 1 has no order of time: minibatches
        descent: how the loss is descended; a backward pass is an epoch
    """

    beta: float | Literal["auto"] = 5.0
    multiplier_rate: float = 5.0
    caution: float = 0.5
    beta_growth: float = 1.0
    beta_relax: float = 1.0
    beta_max: float = 50.0
    penalty: Literal["augmented", "paper"] = "augmented"
    units: Literal["dimensionless", "paper"] = "dimensionless"
    clip: float = 0.2
    backward_steps: int = 1
    descent: Descent = Descent()

    def __post_init__(self) -> None:
        require(self, "beta_max clip multiplier_rate", "caution backward_steps")
        if self.beta != "auto" and not self.beta > 0:
            raise UserError(f"beta must be positive or 'auto', not {self.beta}.")
        for name in ("beta_growth", "beta_relax"):
            value = getattr(self, name)
            if not value >= 1:
                raise UserError(f"{name} must be 1 or more, not {value}.")

    @property
    def first_beta(self) -> float:
        """Where beta starts; adapted, it does not fall below."""
        return BETA_LADDER[0] if self.beta == "auto" else self.beta

    def init(self, policy: Policy, params: Any, spec: Spec) -> State:
        """State before the first iteration; `params` are the policy's."""
        return State(
            multiplier=jnp.zeros(len(spec.enforced), jnp.float32),
            beta=jnp.asarray(self.first_beta, jnp.float32),
            optimiser=init_backward(policy, params, self.backward_steps, self.descent),
        )

    def update(
        self, key: Array, policy: Policy, params: Any, state: State, batch: Batch
    ) -> tuple[Any, State, dict[str, Array]]:
        """One iteration of Algorithm 2, from the advantages to the new policy."""
        batch = self.in_units(batch)
        violation = batch.violation
        beta = adapt_beta(
            state.beta,
            state.multiplier,
            violation,
            policy.spec.horizon,
            self.beta_growth,
            (self.first_beta, self.beta_max),
            self.beta_relax,
        )
        # (7) lambda <- max(0, lambda + beta Psi(pi_{k-1}, pi_{k-1}))
        rise = self.multiplier_rate * jnp.clip(violation, -REACH, REACH)
        multiplier = jnp.maximum(0.0, state.multiplier + rise)

        if self.backward_steps == 1:
            objective, refresh = penalised(
                batch, lambda psi: price(psi, multiplier, beta, self.penalty), self.clip
            )
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
        else:
            # (8) the final loss of step t
            def total(loss: Array, cost_loss: Array) -> Array:
                psi = cost_loss + violation
                return loss + damped_penalty(psi, multiplier, beta, self.penalty)

            done = backward_descent(
                key,
                policy,
                params,
                state.optimiser,
                batch,
                partial(self.terms, length=jnp.sum(batch.alive) / len(batch.alive)),
                total,
                self.backward_steps,
                self.descent,
            )
        info = {
            "multipliers": multiplier,
            "beta": beta,
            "clipped": clipped_share(policy, done.params, batch, self.clip),
            **done.info,
        }
        return done.params, State(multiplier, beta, done.optimiser), info

    def in_units(self, batch: Batch) -> Batch:
        """The batch in the units of the loss, its violation with caution."""
        cautious = batch.violation + self.caution * batch.cost_error
        batch = batch._replace(violation=cautious)
        if self.units == "dimensionless":
            return dimensionless(centred(batch))
        if self.backward_steps != 1:
            return batch
        length = jnp.sum(batch.alive) / len(batch.alive)  # minibatches have means
        return batch._replace(adv=length * batch.adv, cost_adv=length * batch.cost_adv)

    def terms(
        self, distribution: Distribution, part: Batch, late: Array, length: Array
    ) -> tuple[Array, Array]:
        """L_t [] and L_C,t [C] over the steps [K] of `part` that are `late` enough."""
        plain = self.units == "paper"
        count = part.alive.shape[0] * (1.0 if plain else length)
        weight = part.alive * late[None] / count
        change = ratio(distribution.log_prob(part.action), part.log_prob)
        loss = -jnp.sum(weight * clipped_gain(change, part.adv, self.clip))
        cost = clipped_cost(change, part.cost_adv, self.clip)
        cost = cost if plain else cost - part.cost_adv
        return loss, jnp.sum(weight[..., None] * cost, axis=(0, 1))
