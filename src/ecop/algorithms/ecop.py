"""e-COP: Episodic Constrained Optimization of Policies (NeurIPS 2024), Algorithm 2.

| here             | paper          | meaning                                          |
|------------------|----------------|--------------------------------------------------|
| adv, cost_adv    | A_h, A_Ci,h    | finite-horizon advantages under pi_{k-1}         |
| ratio            | rho(theta_h)   | pi_theta(a|s,h) / pi_{k-1}(a|s,h)                |
| loss             | L_t            | sum_{h>=t} E[-min(ratio A, clip(ratio) A)]       |
| cost_loss        | L_Ci,t         | sum_{h>=t} E[max(ratio A_C, clip(ratio) A_C)]    |
| violation        | J_Ci - d_i     | of pi_{k-1}, measured on the batch               |
| psi              | Psi_Ci,t       | cost_loss + violation                            |
| multiplier       | lambda_t,i     | one per constraint, the same for all t (see 7)   |
| beta             | beta           | damping factor                                   |
| beta_growth      | p              | factor of the adaptive beta                      |

Deviations from the printed paper (numbers as in the list of errata, docs/ecop.md):
1. L_C is the pessimistic bound of a cost, +max; printed with -min.
2. `penalty="augmented"` drops the printed extra term lambda max(0, Psi), which counts
   the multiplier twice; `penalty="paper"` keeps it.
3. beta grows only if C(pi_k) > c_k; with the printed >= it would grow for nothing.
4. `units="dimensionless"`: sums over the horizon are means, advantages are divided by
   their standard deviation, the violation by the same as the cost advantage.
   `units="paper"` keeps the literal sums.
5. `backward_steps` < H takes one gradient step per block of time steps.
6. C(pi_k) needs the cost of the new policy, so beta is adapted when the next batch has
   measured it, just before the multipliers.
7. The multipliers' Psi(pi_{k-1}, pi_{k-1}) is the violation: the expected advantage of
   a policy over itself is zero, so lambda_t,i is the same for all t.
8. In dimensionless units cost_loss is counted from the old policy's: minus A_C. That
   term has mean zero, but in a batch it is the noise of N episodes and the error of the
   critic, summed over h >= t. Past the max(0, .) of the penalty it would be a price on
   cost by itself, the higher the earlier t, which no multiplier takes back.
9. `caution` standard errors of the measured cost are added to the violation, so that
   the limit holds for most batches and not only on average; 0 is the paper's.
10. A pass that moves the policy farther than `max_kl` is shortened: clipping alone does
    not bound the step, and one outlier in a batch could undo the training.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from jaxtyping import Array, Float

from ecop.errors import UserError
from ecop.learning.critics import episode_draws
from ecop.learning.descent import descend
from ecop.learning.minibatch import select_episodes, stepwise
from ecop.learning.networks import Distribution, Policy
from ecop.learning.surrogates import (
    clipped_cost,
    clipped_gain,
    cost_scale,
    moments,
    ratio,
    standardised,
)
from ecop.types import Batch, Spec

SEGMENTS = 4  # the backward pass is compiled for this many lengths of suffix


class State(NamedTuple):
    """What e-COP carries from one iteration to the next."""

    multiplier: Array  # [C] lambda
    beta: Array  # []
    cost_scale: Array  # [C] running std of the cost advantage; 0 before the first batch
    optimiser: Any


@dataclass(frozen=True)
class ECOP:
    """Options of e-COP.

    Attributes:
        beta: damping factor; "auto" finds one by a line search before training
        caution: standard errors of the measured cost that are added to the violation
        beta_growth: factor p of the adaptive beta; 1 keeps beta fixed
        beta_max: where the adaptive beta stops
        penalty: "augmented" (the completed square alone) or "paper" (lambda twice)
        units: "dimensionless", or "paper" for the literal sums over the horizon
        backward_steps: gradient steps of one backward pass; 0 means H, the literal pass
        episodes_per_step: episodes in each gradient step; 0 means all of the batch
        passes: backward passes per iteration
        max_kl: an iteration that moves the policy farther is shortened to this KL
        clip: the ratio is clipped to 1 +- this
        optimiser: "adam" or "sgd"
        learning_rate: of the policy
    """

    beta: float | Literal["auto"] = 20.0
    caution: float = 1.0
    beta_growth: float = 1.0
    beta_max: float = 100.0
    penalty: Literal["augmented", "paper"] = "augmented"
    units: Literal["dimensionless", "paper"] = "dimensionless"
    backward_steps: int = 100
    episodes_per_step: int = 5
    passes: int = 1
    max_kl: float = 0.05
    clip: float = 0.2
    optimiser: Literal["adam", "sgd"] = "adam"
    learning_rate: float = 5e-4

    def __post_init__(self) -> None:
        if self.beta != "auto" and not self.beta > 0:
            raise UserError(f"beta must be positive or 'auto', not {self.beta}.")
        if not self.beta_growth >= 1:
            raise UserError(f"beta_growth must be 1 or more, not {self.beta_growth}.")
        if min(self.backward_steps, self.episodes_per_step, self.passes - 1) < 0:
            raise UserError(
                "backward_steps and episodes_per_step must be 0 or more and passes 1 "
                "or more."
            )
        if not (self.clip > 0 and self.learning_rate > 0 and self.max_kl > 0):
            raise UserError("clip, learning_rate and max_kl must be positive.")
        if not self.caution >= 0:
            raise UserError(f"caution must be 0 or more, not {self.caution}.")

    def init(self, policy: Policy, params: Any, spec: Spec) -> State:
        """State before the first iteration; `params` are the policy's."""
        steps = self._steps(spec.horizon)
        if policy.form == "per_step":
            if spec.horizon % steps:
                raise UserError(
                    f"With policy 'per_step' the horizon ({spec.horizon}) must be a "
                    f"multiple of backward_steps ({steps})."
                )
            init = jax.vmap(self._optimiser.init)
            optimiser = init(in_blocks(params, steps))
        else:
            optimiser = self._optimiser.init(params)
        count = len(spec.enforced)
        beta = BETA_LADDER[0] if self.beta == "auto" else self.beta
        return State(
            multiplier=jnp.zeros(count, jnp.float32),
            beta=jnp.asarray(beta, jnp.float32),
            cost_scale=jnp.zeros(count, jnp.float32),
            optimiser=optimiser,
        )

    def update(
        self, key: Array, policy: Policy, params: Any, state: State, batch: Batch
    ) -> tuple[Any, State, dict[str, Array]]:
        """One iteration of Algorithm 2, from the advantages to the new policy."""
        batch, scale = self._in_units(batch, state.cost_scale)
        violation = batch.violation
        beta = adapt_beta(
            state.beta, state.multiplier, violation, self.beta_growth, self.beta_max
        )
        # (7) lambda <- max(0, lambda + beta Psi(pi_{k-1}, pi_{k-1}))
        multiplier = jnp.maximum(0.0, state.multiplier + beta * violation)

        run = self._per_step_pass if policy.form == "per_step" else self._shared_pass

        def one_pass(carry: Any, key: Array) -> tuple[Any, Any]:
            return run(key, policy, carry, batch, multiplier, beta)

        keys = jax.random.split(key, self.passes)
        carry, (losses, norms) = lax.scan(one_pass, (params, state.optimiser), keys)
        new, optimiser = carry
        new = step_back(policy, params, new, batch, self.max_kl)

        after = policy.over(new, batch.observation)
        steps = jnp.maximum(jnp.sum(batch.alive), 1.0)
        change = ratio(after.log_prob(batch.action), batch.log_prob)
        clipped = (jnp.abs(change - 1.0) > self.clip).astype(jnp.float32)
        info = {
            "multipliers": multiplier,
            "beta": beta,
            "loss": jnp.mean(losses),
            "gradient_norm": jnp.mean(norms),
            "kl": mean_kl(policy, params, new, batch),
            "clipped": jnp.sum(batch.alive * clipped) / steps,
            "entropy": jnp.sum(batch.alive * after.entropy()) / steps,
        }
        return new, State(multiplier, beta, scale, optimiser), info

    def _steps(self, horizon: int) -> int:
        return min(self.backward_steps or horizon, horizon)

    @property
    def _optimiser(self) -> optax.GradientTransformation:
        make = {"adam": optax.adam, "sgd": optax.sgd}[self.optimiser]
        return make(self.learning_rate)

    def _in_units(self, batch: Batch, running: Array) -> tuple[Batch, Array]:
        """Advantages and violation in the units of the loss, and the cost scale."""
        violation = batch.violation + self.caution * batch.cost_error
        batch = batch._replace(violation=violation)
        _, std = moments(batch.cost_adv, batch.alive)
        scale, divisor = cost_scale(std, running)
        if self.units == "paper":
            return batch, scale
        horizon = batch.alive.shape[1]
        batch = batch._replace(
            adv=standardised(batch.adv, batch.alive),
            cost_adv=batch.cost_adv / divisor[None, None],
            violation=batch.violation / (divisor * horizon),
        )
        return batch, scale

    def _terms(
        self, distribution: Distribution, part: Batch, late: Array, horizon: int
    ) -> tuple[Array, Array]:
        """L_t and L_C,t [C] over the steps [K] of `part` that are `late` enough."""
        episodes = part.alive.shape[0]
        share = horizon if self.units == "dimensionless" else 1
        weight = part.alive * late[None] / (episodes * share)
        change = ratio(distribution.log_prob(part.action), part.log_prob)
        loss = -jnp.sum(weight * clipped_gain(change, part.adv, self.clip))
        cost = clipped_cost(change, part.cost_adv, self.clip)
        if self.units == "dimensionless":
            cost = cost - part.cost_adv
        return loss, jnp.sum(weight[..., None] * cost, axis=(0, 1))

    def _shared_pass(
        self,
        key: Array,
        policy: Policy,
        carry: Any,
        batch: Batch,
        multiplier: Array,
        beta: Array,
    ) -> tuple[Any, tuple[Array, Array]]:
        """Go t = H..1 with one set of parameters: step t descends the suffix h >= t."""
        episodes, horizon = batch.alive.shape
        steps = self._steps(horizon)
        starts = np.round(np.arange(steps) * horizon / steps).astype(np.int32)
        draws = self._draws(key, episodes, steps)
        traces = []
        # The steps of a group share one compiled length of suffix, that of the first.
        for group in np.array_split(np.arange(steps), min(SEGMENTS, steps))[::-1]:
            first = int(starts[group[0]])
            suffix = select_steps(batch, slice(first, None))
            h = jnp.arange(first, horizon)

            def step(
                carry: Any, x: Any, suffix: Batch = suffix, h: Array = h
            ) -> tuple[Any, tuple[Array, Array]]:
                params, optimiser = carry
                start, draw = x
                part = suffix if draw is None else select_episodes(suffix, draw)
                late = (h >= start).astype(jnp.float32)

                def objective(params: Any) -> Array:
                    distribution = policy.over(params, part.observation)
                    loss, cost_loss = self._terms(distribution, part, late, horizon)
                    psi = cost_loss + batch.violation
                    return loss + damped_penalty(psi, multiplier, beta, self.penalty)

                loss, gradient = jax.value_and_grad(objective)(params)
                carry = descend(self._optimiser, gradient, params, optimiser)
                return carry, (loss, optax.tree.norm(gradient))

            x = (jnp.asarray(starts[group]), pick(draws, group))
            carry, trace = lax.scan(step, carry, x, reverse=True)
            traces.append(trace)
        losses, norms = (jnp.concatenate(trace) for trace in zip(*traces, strict=True))
        return carry, (losses, norms)

    def _per_step_pass(
        self,
        key: Array,
        policy: Policy,
        carry: Any,
        batch: Batch,
        multiplier: Array,
        beta: Array,
    ) -> tuple[Any, tuple[Array, Array]]:
        """Go t = H..1 with parameters of their own: step t changes block t alone.

        The later blocks are done, so their part of L_C,t is a number: O(H) in all.
        """
        params, optimiser = carry
        episodes, horizon = batch.alive.shape
        steps = self._steps(horizon)
        shape = (episodes, steps, horizon // steps)
        blocks = {
            name: jnp.moveaxis(leaf.reshape(*shape, *leaf.shape[2:]), 1, 0)
            for name, leaf in stepwise(batch).items()
        }
        late = jnp.ones(horizon // steps, jnp.float32)

        def step(later: Array, x: Any) -> tuple[Array, Any]:
            params, optimiser, block, draw = x
            whole = batch._replace(**block)
            part = whole if draw is None else select_episodes(whole, draw)

            def objective(params: Any) -> Array:
                distribution = policy.over(params, part.observation)
                loss, cost_loss = self._terms(distribution, part, late, horizon)
                psi = later + cost_loss + batch.violation
                return loss + damped_penalty(psi, multiplier, beta, self.penalty)

            loss, gradient = jax.value_and_grad(objective)(params)
            params, optimiser = descend(self._optimiser, gradient, params, optimiser)
            done = policy.over(params, whole.observation)
            _, cost_loss = self._terms(done, whole, late, horizon)
            trace = (loss, optax.tree.norm(gradient))
            return later + cost_loss, ((params, optimiser), trace)

        draws = self._draws(key, episodes, steps)
        x = (in_blocks(params, steps), optimiser, blocks, draws)
        later = jnp.zeros_like(batch.violation)
        _, ((params, optimiser), trace) = lax.scan(step, later, x, reverse=True)
        params = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), params)
        return (params, optimiser), trace

    def _draws(self, key: Array, episodes: int, steps: int) -> Array | None:
        """Episodes [T, E] of each gradient step; None for all of them."""
        if 0 < self.episodes_per_step < episodes:
            return episode_draws(key, episodes, steps, self.episodes_per_step)
        return None


def mean_kl(policy: Policy, old: Any, new: Any, batch: Batch) -> Float[Array, ""]:
    """Mean of KL(old || new) over the living steps."""
    before, after = (policy.over(p, batch.observation) for p in (old, new))
    steps = jnp.maximum(jnp.sum(batch.alive), 1.0)
    return jnp.sum(batch.alive * before.kl(after)) / steps


def step_back(policy: Policy, old: Any, new: Any, batch: Batch, max_kl: float) -> Any:
    """Halve the way from the old to the new parameters until the KL is small enough."""

    def too_far(state: tuple[Any, Array]) -> Array:
        params, tries = state
        return (mean_kl(policy, old, params, batch) > max_kl) & (tries < 20)

    def halve(state: tuple[Any, Array]) -> tuple[Any, Array]:
        params, tries = state
        return jax.tree.map(lambda a, b: 0.5 * (a + b), old, params), tries + 1

    return lax.while_loop(too_far, halve, (new, jnp.zeros((), jnp.int32)))[0]


def damped_penalty(
    psi: Float[Array, " C"],
    multiplier: Float[Array, " C"],
    beta: Float[Array, ""],
    form: Literal["augmented", "paper"],
) -> Float[Array, ""]:
    """Penalty terms of the final loss (8); "augmented" is the square of (6) alone."""
    shift = multiplier / beta
    square = 0.5 * beta * (jnp.maximum(0.0, psi + shift) ** 2 - shift**2)
    linear = multiplier * jnp.maximum(0.0, psi)
    return jnp.sum(square + linear if form == "paper" else square)


def adapt_beta(
    beta: Float[Array, ""],
    multiplier: Float[Array, " C"],
    violation: Float[Array, " C"],
    growth: float,
    limit: float,
) -> Float[Array, ""]:
    """Beta <- min(beta_max, p beta) if C(pi_k) > c_k.

    C(pi_k) = sum_i max(J_Ci(pi_k) - d_i, -lambda_i / beta), its mean over t, and
    c_k = sqrt(m) / beta * max_i lambda_i.
    """
    count = violation.shape[0]
    secondary = jnp.sum(jnp.maximum(violation, -multiplier / beta))
    threshold = count**0.5 / beta * jnp.max(multiplier, initial=0.0)
    return jnp.where(secondary > threshold, jnp.minimum(limit, growth * beta), beta)


def in_blocks(params: Any, steps: int) -> Any:
    """Split the leading axis H of per-step parameters into [T, H/T]."""
    return jax.tree.map(lambda leaf: leaf.reshape(steps, -1, *leaf.shape[1:]), params)


def select_steps(batch: Batch, steps: slice) -> Batch:
    """Return the batch with only `steps` of every episode."""
    return batch._replace(**{k: leaf[:, steps] for k, leaf in stepwise(batch).items()})


def pick(draws: Array | None, group: np.ndarray) -> Array | None:
    """Rows `group` of the draws, if there are any."""
    return None if draws is None else draws[group]


BETA_LADDER = (2.0, 5.0, 10.0, 20.0, 50.0, 100.0)  # what beta="auto" tries, in order
