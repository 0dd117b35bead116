"""One critic for the reward and one per constraint, fitted to returns to go.

Each critic is a network of its own (no shared trunk) that predicts the return to go in
units of a running standard deviation around a running mean.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import lax
from jaxtyping import Array, Float

from ecop.learning.descent import descend
from ecop.learning.networks import Network
from ecop.learning.surrogates import moments

MEMORY = 0.9  # of the running target statistics, per iteration


class CriticState(NamedTuple):
    """Parameters of the V critics, their optimiser, and the target statistics."""

    params: Any  # tuple of V network parameters: reward first, then constraints
    optimiser: Any
    mean: Array  # [V]
    std: Array  # [V]; 0 until the first fit


@dataclass(frozen=True)
class Critics:
    """How the critics are built and fitted.

    Attributes:
        network: one critic
        count: 1 + number of enforced constraints
        learning_rate: Adam's
        steps: gradient steps per fit
        episodes_per_step: episodes in each gradient step
    """

    network: Network
    count: int
    learning_rate: float
    steps: int
    episodes_per_step: int

    def init(self, key: Array) -> CriticState:
        """Fresh critics that predict zero until they are fitted."""
        keys = jax.random.split(key, self.count)
        params = tuple(self.network.init(k) for k in keys)
        return CriticState(
            params=params,
            optimiser=optax.adam(self.learning_rate).init(params),
            mean=jnp.zeros(self.count, jnp.float32),
            std=jnp.zeros(self.count, jnp.float32),
        )

    def values(
        self, state: CriticState, x: Float[Array, "N H I"]
    ) -> Float[Array, "N H V"]:
        """Predicted returns to go, in their own units."""
        z = self._predict(state.params, x)
        return state.mean[None, None] + state.std[None, None] * z

    def fit(
        self,
        key: Array,
        state: CriticState,
        x: Float[Array, "N H I"],
        target: Float[Array, "N H V"],
        alive: Float[Array, "N H"],
    ) -> tuple[CriticState, Float[Array, ""]]:
        """Regress on `target`; return the new critics and the last mean squared error.

        The error is in units of the target's variance.
        """
        mean, std = moments(target, alive)
        fresh = state.std == 0.0
        mean = jnp.where(fresh, mean, MEMORY * state.mean + (1.0 - MEMORY) * mean)
        std = jnp.where(fresh, std, MEMORY * state.std + (1.0 - MEMORY) * std)
        scale = jnp.where(std > 0.0, std, 1.0)
        z = (target - mean[None, None]) / scale[None, None]
        adam = optax.adam(self.learning_rate)

        def loss(params: Any, rows: Array) -> Array:
            error = (self._predict(params, x[rows]) - z[rows]) ** 2
            weight = alive[rows] / jnp.maximum(jnp.sum(alive[rows]), 1.0)
            # Each critic has parameters of its own, so the sum trains each alone.
            return jnp.sum(weight[..., None] * error)

        def step(carry: Any, rows: Array) -> tuple[Any, Array]:
            params, optimiser = carry
            value, gradient = jax.value_and_grad(loss)(params, rows)
            return descend(adam, gradient, params, optimiser), value

        rows = episode_draws(key, x.shape[0], self.steps, self.episodes_per_step)
        carry = (state.params, state.optimiser)
        (params, optimiser), losses = lax.scan(step, carry, rows)
        return CriticState(params, optimiser, mean, std), losses[-1] / self.count

    def _predict(self, params: Any, x: Array) -> Array:
        outputs = [self.network.over(p, x)[..., 0] for p in params]
        return jnp.stack(outputs, axis=-1)


def episode_draws(key: Array, episodes: int, steps: int, size: int) -> Array:
    """Indices [steps, size] that run through fresh permutations of the episodes."""
    size = min(size, episodes)
    rounds = -(-steps * size // episodes)
    keys = jax.random.split(key, rounds)
    order = jax.vmap(lambda k: jax.random.permutation(k, episodes))(keys)
    return order.reshape(-1)[: steps * size].reshape(steps, size)
