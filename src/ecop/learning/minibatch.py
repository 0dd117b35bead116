"""The one loop of minibatch descent, and the step size that every task finds itself.

A minibatch holds steps of any episodes, so it is as large for H = 7 as for H = 1,000.
Parameters of their own for each step (`per_step`) and memories need whole episodes.

The rate follows the KL of an iteration, and the KL that is aimed at follows the policy:
where one iteration goes on in the direction of the last, the batch shows where to go
and steps may be longer; where they are at right angles or turn back, it shows noise, or
the optimum is near, and they must be shorter.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import lax
from jaxtyping import Array, Float

from ecop.errors import require
from ecop.learning.descent import CLIPPED_ADAM, descend, sweep
from ecop.learning.networks import Distribution, Policy
from ecop.learning.options import flat
from ecop.learning.surrogates import mean_kl
from ecop.types import Batch

# (new distribution, part of the batch, what `refresh` gave) -> loss []
Objective = Callable[[Distribution, Batch, Any], Array]
Refresh = Callable[[Distribution], Any]  # of the whole batch, before each epoch

AGREEMENT = 0.1  # cosine of successive moves at which the pace stays
GAIN = 0.2  # of the pace, per cosine and iteration
SLOWEST, FASTEST = 0.3, 2.0  # pace
TURN = 1.5  # largest change of the rate per iteration
LEAST, MOST = 0.03, 3.0  # of the rate, relative to the first


class Optimiser(NamedTuple):
    """What the descent carries from one iteration to the next."""

    moments: Any  # Adam's
    rate: Array  # []
    pace: Array  # [] factor of `kl_goal`
    move: Any  # of the last iteration, like the parameters


@flat
@dataclass(frozen=True)
class Descent:
    """Minibatch descent by Adam.

    Attributes:
        epochs: passes over the batch per iteration
        minibatches: gradient steps of a pass
        learning_rate: Adam's, of the policy; where it starts, if it follows the KL
        kl_goal: the rate follows this mean KL of an iteration, per entry of the
            action (a choice of n has n - 1), times a pace; 0 keeps the rate
        target_kl: epochs stop once the mean KL exceeds this; 0 never stops
    """

    epochs: int = 10
    minibatches: int = 8
    learning_rate: float = 3e-4
    kl_goal: float = 0.003
    target_kl: float = 0.0

    def __post_init__(self) -> None:
        require(self, "epochs minibatches learning_rate", "kl_goal target_kl")

    def init(self, params: Any) -> Optimiser:
        """Before the first iteration."""
        return Optimiser(
            moments=CLIPPED_ADAM.init(params),
            rate=jnp.asarray(self.learning_rate, jnp.float32),
            pace=jnp.ones((), jnp.float32),
            move=jax.tree.map(jnp.zeros_like, params),
        )

    def follow(
        self, optimiser: Optimiser, before: Any, after: Any, kl: Float[Array, ""]
    ) -> Optimiser:
        """The rate of the next iteration, by the KL and the direction of this one.

        The KL grows with the square of the rate; half of the way to the goal is gone.
        """
        if not self.kl_goal:
            return optimiser
        move = jax.tree.map(lambda a, b: a - b, after, before)
        lengths = optax.tree.norm(move) * optax.tree.norm(optimiser.move)
        agreement = optax.tree.vdot(move, optimiser.move) / jnp.maximum(lengths, 1e-20)
        pace = optimiser.pace * jnp.exp(GAIN * (agreement - AGREEMENT))
        pace = jnp.clip(pace, SLOWEST, FASTEST)
        factor = (self.kl_goal * pace / jnp.maximum(kl, 1e-12)) ** 0.25
        rate = optimiser.rate * jnp.clip(factor, 1.0 / TURN, TURN)
        rate = jnp.clip(rate, LEAST * self.learning_rate, MOST * self.learning_rate)
        return Optimiser(optimiser.moments, rate, pace, move)


def scheduled(optimiser: Optimiser, batch: Batch) -> Array:
    """The rate of this iteration, by the schedule of training."""
    return optimiser.rate * batch.rate


class Descended(NamedTuple):
    """The end of a descent; `info` holds means over the gradient steps taken."""

    params: Any
    optimiser: Optimiser
    info: dict[str, Array]  # loss, gradient_norm and more


def minibatch_descent(
    key: Array,
    policy: Policy,
    params: Any,
    optimiser: Optimiser,
    batch: Batch,
    objective: Objective,
    options: Descent,
    refresh: Refresh = lambda distribution: None,
) -> Descended:
    """Descend `objective` over random minibatches of the batch.

    What `refresh` makes of the whole batch before each epoch is a number to the
    gradient. After the first epoch that takes the mean KL(old || new) beyond
    `target_kl` the others do nothing.
    """
    before, rate = params, scheduled(optimiser, batch)
    whole = policy.network.whole
    alive = (
        jnp.ones(len(batch.alive), jnp.float32) if whole else batch.alive.reshape(-1)
    )
    select = select_episodes if whole else select_steps

    def epoch(carry: Any, key: Array) -> tuple[Any, Array]:
        params, moments, _ = carry
        fresh = refresh(policy.over(params, batch.observation))

        def step(carry: Any, rows: Array) -> tuple[Any, Array]:
            params, moments = carry
            part = select(batch, rows)

            def loss(params: Any) -> Array:
                return objective(policy.over(params, part.observation), part, fresh)

            value, gradient = jax.value_and_grad(loss)(params)
            carry = descend(CLIPPED_ADAM, gradient, params, moments, rate)
            return carry, jnp.stack([value, optax.tree.norm(gradient)])

        carry, trace = sweep(key, alive, options.minibatches, (params, moments), step)
        stop = jnp.zeros((), bool)
        if options.target_kl:
            stop = mean_kl(policy, before, carry[0], batch) > options.target_kl
        return (*carry, stop), jnp.append(trace, 1.0)

    def unless_stopped(carry: Any, key: Array) -> Any:
        nothing = jnp.zeros(3, jnp.float32)
        # Inside a cond, not a select: without vmap the skipped epochs cost nothing.
        return lax.cond(carry[2], lambda c, k: (c, nothing), epoch, carry, key)

    run = unless_stopped if options.target_kl else epoch
    start = (params, optimiser.moments, jnp.zeros((), bool))
    keys = jax.random.split(key, options.epochs)
    (params, moments, _), trace = lax.scan(run, start, keys)
    loss, norm, taken = jnp.sum(trace, axis=0)
    info = {"loss": loss / taken, "gradient_norm": norm / taken, "epochs": taken}
    optimiser = optimiser._replace(moments=moments)
    return settled(policy, before, params, optimiser, batch, options, info)


def settled(
    policy: Policy,
    before: Any,
    after: Any,
    optimiser: Optimiser,
    batch: Batch,
    options: Descent,
    info: dict[str, Array],
) -> Descended:
    """The end of an iteration, with the rate of the next.

    A rate that follows the KL follows the one that it would have without a schedule: as
    the KL grows with the square of the rate, the KL that is aimed at falls by that.
    """
    kl = mean_kl(policy, before, after, batch) / max(policy.spec.action.freedom, 1)
    kl = kl / batch.rate**2
    rate = scheduled(optimiser, batch)
    info = info | {"learning_rate": rate, "pace": optimiser.pace}
    return Descended(after, options.follow(optimiser, before, after, kl), info)


STEPWISE = ("observation", "action", "log_prob", "alive", "adv", "cost_adv")


def stepwise(batch: Batch) -> dict[str, Array]:
    """Return the fields of a batch that have the axes [N, H]."""
    return {name: getattr(batch, name) for name in STEPWISE}


def select_episodes(batch: Batch, rows: Array) -> Batch:
    """Return the episodes in `rows`; what has no step is that of the whole batch."""
    return batch._replace(**{k: leaf[rows] for k, leaf in stepwise(batch).items()})


def select_steps(batch: Batch, rows: Array) -> Batch:
    """Return the steps in `rows`, of all N H, as if they were one episode [1, M]."""
    line = (1, batch.alive.size)
    flat = {k: x.reshape(*line, *x.shape[2:]) for k, x in stepwise(batch).items()}
    return batch._replace(**{k: leaf[:, rows] for k, leaf in flat.items()})
