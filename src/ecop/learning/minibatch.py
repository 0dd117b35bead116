"""The one loop of minibatch descent: epochs over whole episodes, with a KL stop."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import lax
from jaxtyping import Array

from ecop.errors import require
from ecop.learning.critics import episode_draws
from ecop.learning.descent import descend
from ecop.learning.networks import Distribution, Policy
from ecop.learning.options import flat
from ecop.types import Batch

Objective = Callable[[Distribution, Batch], Array]


@flat
@dataclass(frozen=True)
class Descent:
    """Minibatch descent by Adam.

    Attributes:
        epochs: passes over the batch per iteration
        episodes_per_step: episodes in each gradient step
        target_kl: epochs stop once the mean KL exceeds this; 0 never stops
        learning_rate: Adam's, of the policy
    """

    epochs: int = 10
    episodes_per_step: int = 1
    target_kl: float = 0.0
    learning_rate: float = 3e-4

    def __post_init__(self) -> None:
        require(self, "epochs episodes_per_step learning_rate", "target_kl")

    def init(self, params: Any) -> Any:
        """The optimiser's first state."""
        return optax.adam(self.learning_rate).init(params)


class Descended(NamedTuple):
    """The end of a descent; `info` holds means over the gradient steps taken."""

    params: Any
    optimiser: Any
    info: dict[str, Array]  # loss, gradient_norm and more


def minibatch_descent(
    key: Array,
    policy: Policy,
    params: Any,
    optimiser_state: Any,
    batch: Batch,
    objective: Objective,
    options: Descent,
) -> Descended:
    """Descend `objective(distribution, part)` over random parts of the batch.

    A part holds whole episodes [E, H] and the violation of the whole batch. After the
    first epoch that takes the mean KL(old || new) beyond `target_kl` the others do
    nothing; 0 switches this off.
    """
    episodes = batch.alive.shape[0]
    size, target_kl = options.episodes_per_step, options.target_kl
    steps = -(-episodes // min(size, episodes))
    adam = optax.adam(options.learning_rate)
    weight = batch.alive / jnp.maximum(jnp.sum(batch.alive), 1.0)
    old = policy.over(params, batch.observation)

    def step(carry: Any, draw: Array) -> tuple[Any, tuple[Array, Array]]:
        params, state = carry
        part = select_episodes(batch, draw)

        def loss(params: Any) -> Array:
            return objective(policy.over(params, part.observation), part)

        value, gradient = jax.value_and_grad(loss)(params)
        carry = descend(adam, gradient, params, state)
        return carry, (value, optax.tree.norm(gradient))

    def epoch(carry: Any, key: Array) -> tuple[Any, tuple[Array, Array, Array]]:
        params, state, _ = carry
        draws = episode_draws(key, episodes, steps, size)
        (params, state), (losses, norms) = lax.scan(step, (params, state), draws)
        stop = jnp.zeros((), bool)
        if target_kl:
            new = policy.over(params, batch.observation)
            stop = jnp.sum(weight * old.kl(new)) > target_kl
        trace = (jnp.mean(losses), jnp.mean(norms), jnp.ones((), jnp.float32))
        return (params, state, stop), trace

    def unless_stopped(carry: Any, key: Array) -> Any:
        none = (jnp.zeros((), jnp.float32),) * 3
        # Inside a cond, not a select: without vmap the skipped epochs cost nothing.
        return lax.cond(carry[2], lambda c, k: (c, none), epoch, carry, key)

    carry = (params, optimiser_state, jnp.zeros((), bool))
    run = unless_stopped if target_kl else epoch
    keys = jax.random.split(key, options.epochs)
    carry, (losses, norms, done) = lax.scan(run, carry, keys)
    taken = jnp.sum(done)
    info = {
        "loss": jnp.sum(losses) / taken,
        "gradient_norm": jnp.sum(norms) / taken,
        "epochs": taken,
    }
    return Descended(carry[0], carry[1], info)


STEPWISE = ("observation", "action", "log_prob", "alive", "adv", "cost_adv")


def stepwise(batch: Batch) -> dict[str, Array]:
    """Return the fields of a batch that have the axes [N, H]."""
    return {name: getattr(batch, name) for name in STEPWISE}


def select_episodes(batch: Batch, draw: Array) -> Batch:
    """Return the episodes in `draw`; what has no step is that of the whole batch."""
    return batch._replace(**{k: leaf[draw] for k, leaf in stepwise(batch).items()})
