"""The one loop of minibatch descent: epochs over living steps, the rate set by the KL.

A minibatch holds steps of any episodes, so it is as large for H = 7 as for H = 1,000.
Parameters of their own for each step (`per_step`) need whole episodes: as many as make
about that many steps.
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
from ecop.learning.descent import CLIPPED_ADAM, Optimiser, move, start, sweep
from ecop.learning.networks import Distribution, Policy
from ecop.learning.options import flat
from ecop.learning.surrogates import mean_kl
from ecop.types import Batch

# (new distribution, part of the batch, what `refresh` gave) -> loss []
Objective = Callable[[Distribution, Batch, Any], Array]
Refresh = Callable[[Distribution], Any]  # of the whole batch, before each epoch

FASTEST, RANGE = 1.5, 30.0  # change of the rate per iteration, and over all of them


@flat
@dataclass(frozen=True)
class Descent:
    """Minibatch descent by Adam.

    Attributes:
        epochs: passes over the batch per iteration
        minibatch: steps in each gradient step; 0 means all of the batch
        learning_rate: Adam's, of the policy; where it starts, if it follows the KL
        kl_goal: the rate follows this mean KL of an iteration; 0 keeps the rate
        target_kl: epochs stop once the mean KL exceeds this; 0 never stops
    """

    epochs: int = 10
    minibatch: int = 256
    learning_rate: float = 3e-4
    kl_goal: float = 0.005
    target_kl: float = 0.0

    def __post_init__(self) -> None:
        require(self, "epochs learning_rate", "minibatch kl_goal target_kl")

    def init(self, params: Any) -> Optimiser:
        """The optimiser's first state."""
        return start(CLIPPED_ADAM, params, self.learning_rate)

    def follow(self, state: Optimiser, kl: Float[Array, ""]) -> Optimiser:
        """A higher rate after a short iteration, a lower one after a long one.

        The KL grows with the square of the rate; half of the way to the goal is gone.
        """
        if not self.kl_goal:
            return state
        factor = (self.kl_goal / jnp.maximum(kl, 1e-12)) ** 0.25
        rate = state.rate * jnp.clip(factor, 1.0 / FASTEST, FASTEST)
        low, high = self.learning_rate / RANGE, self.learning_rate * RANGE
        return state._replace(rate=jnp.clip(rate, low, high))


class Descended(NamedTuple):
    """The end of a descent; `info` holds means over the gradient steps taken."""

    params: Any
    optimiser: Any
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
    draw = Draw.of(policy, batch)

    def step(carry: Any, rows: Array, fresh: Any) -> tuple[Any, Array]:
        params, optimiser = carry
        part = draw.part(batch, rows)

        def loss(params: Any) -> Array:
            return objective(policy.over(params, part.observation), part, fresh)

        value, gradient = jax.value_and_grad(loss)(params)
        carry = move(CLIPPED_ADAM, gradient, params, optimiser)
        return carry, jnp.stack([value, optax.tree.norm(gradient)])

    def epoch(carry: Any, key: Array) -> tuple[Any, Array]:
        params, optimiser, _ = carry
        fresh = refresh(policy.over(params, batch.observation))
        size = options.minibatch // draw.steps or 1
        size = size if options.minibatch else draw.alive.size
        (params, optimiser), trace = sweep(
            key,
            draw.alive,
            size,
            (params, optimiser),
            lambda carry, rows: step(carry, rows, fresh),
        )
        stop = jnp.zeros((), bool)
        if options.target_kl:
            stop = mean_kl(policy, before, params, batch) > options.target_kl
        return (params, optimiser, stop), jnp.append(trace, 1.0)

    def unless_stopped(carry: Any, key: Array) -> Any:
        nothing = jnp.zeros(3, jnp.float32)
        # Inside a cond, not a select: without vmap the skipped epochs cost nothing.
        return lax.cond(carry[2], lambda c, k: (c, nothing), epoch, carry, key)

    before = params
    carry = (params, optimiser, jnp.zeros((), bool))
    run = unless_stopped if options.target_kl else epoch
    carry, trace = lax.scan(run, carry, jax.random.split(key, options.epochs))
    loss, norm, taken = jnp.sum(trace, axis=0)
    params, optimiser, _ = carry
    info = {
        "loss": loss / taken,
        "gradient_norm": norm / taken,
        "epochs": taken,
        "learning_rate": optimiser.rate,
    }
    kl = mean_kl(policy, before, params, batch)
    return Descended(params, options.follow(optimiser, kl), info)


STEPWISE = ("observation", "action", "log_prob", "alive", "adv", "cost_adv")


class Draw(NamedTuple):
    """What minibatches are drawn from: steps, or whole episodes."""

    alive: Array  # [R] whether a row is drawn
    steps: int  # of a row

    @staticmethod
    def of(policy: Policy, batch: Batch) -> Draw:
        """Steps, unless each has parameters of its own."""
        episodes, steps = batch.alive.shape
        if policy.form == "per_step":
            return Draw(jnp.ones(episodes, jnp.float32), steps)
        return Draw(batch.alive.reshape(-1), 1)

    def part(self, batch: Batch, rows: Array) -> Batch:
        """The rows as episodes [E, H], or as one episode [1, M] of steps."""
        fields = stepwise(batch)
        if self.steps > 1:
            return batch._replace(**{k: leaf[rows] for k, leaf in fields.items()})
        shape = (1, batch.alive.size)
        flat = {k: leaf.reshape(*shape, *leaf.shape[2:]) for k, leaf in fields.items()}
        return batch._replace(**{k: leaf[:, rows] for k, leaf in flat.items()})


def stepwise(batch: Batch) -> dict[str, Array]:
    """Return the fields of a batch that have the axes [N, H]."""
    return {name: getattr(batch, name) for name in STEPWISE}


def select_episodes(batch: Batch, draw: Array) -> Batch:
    """Return the episodes in `draw`; what has no step is that of the whole batch."""
    return batch._replace(**{k: leaf[draw] for k, leaf in stepwise(batch).items()})
