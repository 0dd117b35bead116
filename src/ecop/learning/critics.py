"""One critic for the reward and one per constraint, fitted to GAE + V.

A return to go falls with time far more than it varies between states, and an advantage
is a difference of neighbouring values. So a critic is a trend, a + b times what a
reward of 1 per step would still bring (for short horizons: the mean of each step), plus
a network of its own (no shared trunk) for the rest, in units of the rest's running
standard deviation: the network's error does not grow with the horizon. Means by step
over a long one would jump where an episode ends and leaves the others; waves would
follow the noise of a few episodes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from ecop.learning import averages
from ecop.learning.averages import Average
from ecop.learning.descent import ADAM, descend, sweep
from ecop.learning.networks import Network
from ecop.learning.surrogates import step_mean
from ecop.learning.time import SHORT

RIDGE = 1e-4  # relative to a mean square of 1: steps that are rarely lived share


class CriticState(NamedTuple):
    """Parameters of the V critics, their optimiser, and the target statistics."""

    params: Any  # tuple of V network parameters: reward first, then constraints
    optimiser: Any
    gram: Average  # [T, T] mean product of what the fit sees; its first entry is 1
    moment: Average  # [T, V] mean product with the targets
    std: Average  # [V] of the targets around the fit


@dataclass(frozen=True)
class Critics:
    """How the critics are built and fitted.

    Attributes:
        network: one critic
        count: 1 + number of enforced constraints
        discount: of the targets
        learning_rate: Adam's
        epochs: passes over the batch per fit
        minibatches: gradient steps of a pass; `per_step` and memories take whole
            episodes
    """

    network: Network
    count: int
    discount: float
    learning_rate: float
    epochs: int
    minibatches: int

    def init(self, key: Array) -> CriticState:
        """Fresh critics that predict zero until they are fitted."""
        keys = jax.random.split(key, self.count)
        params = tuple(self.network.init(k) for k in keys)
        horizon = self.network.horizon
        size = 1 + (horizon if horizon <= SHORT else 1)
        return CriticState(
            params=params,
            optimiser=ADAM.init(params),
            gram=averages.start((size, size)),
            moment=averages.start((size, self.count)),
            std=averages.start((self.count,)),
        )

    def values(
        self, state: CriticState, x: Float[Array, "N K I"]
    ) -> Float[Array, "N K V"]:
        """Predicted returns to go, in their own units."""
        z = self._predict(state.params, x)
        return self._fit(state, x) + state.std.value[None, None] * z

    def fit(
        self,
        key: Array,
        state: CriticState,
        x: Float[Array, "N K I"],
        target: Float[Array, "N K V"],
        alive: Float[Array, "N K"],
        factor: Array | float = 1.0,
    ) -> tuple[CriticState, Float[Array, ""]]:
        """Regress on `target`; return the new critics and the last mean squared error.

        The error is in units of the target's variance around its fit over time.

        factor: of the learning rate
        """
        rate = self.learning_rate * factor
        time = self._time(x)
        weight = (alive / jnp.maximum(jnp.sum(alive), 1.0))[..., None]
        gram = jnp.einsum("nkt,nku->tu", weight * time, time)
        moment = jnp.einsum("nkt,nkv->tv", weight * time, target)
        state = state._replace(
            gram=averages.follow(state.gram, gram),
            moment=averages.follow(state.moment, moment),
        )
        rest = target - self._fit(state, x)
        spread = jnp.sqrt(jnp.sum(weight * rest**2, axis=(0, 1)))
        std = averages.follow(state.std, spread)
        z = rest / jnp.where(std.value > 0.0, std.value, 1.0)[None, None]
        # Rows [R, L, ...] to draw from: steps, or episodes where steps share nothing.
        whole = self.network.whole
        shape = alive.shape if whole else (alive.size, 1)
        data = [a.reshape(*shape, *a.shape[2:]) for a in (x, z, alive)]
        living = jnp.ones(len(alive), jnp.float32) if whole else alive.reshape(-1)

        def loss(params: Any, rows: Array) -> Array:
            x, z, alive = (a[rows] for a in data)
            error = (self._predict(params, x) - z) ** 2
            # Each critic has parameters of its own, so the sum trains each alone.
            return jnp.sum(step_mean(error, alive))

        def step(carry: Any, rows: Array) -> tuple[Any, Array]:
            params, optimiser = carry
            value, gradient = jax.value_and_grad(loss)(params, rows)
            return descend(ADAM, gradient, params, optimiser, rate), value

        def epoch(carry: Any, key: Array) -> tuple[Any, Array]:
            return sweep(key, living, self.minibatches, carry, step)

        keys = jax.random.split(key, self.epochs)
        carry = (state.params, state.optimiser)
        (params, optimiser), losses = lax.scan(epoch, carry, keys)
        state = state._replace(params=params, optimiser=optimiser, std=std)
        return state, losses[-1] / self.count

    def _predict(self, params: Any, x: Array) -> Array:
        outputs = [self.network.over(p, x)[..., 0] for p in params]
        return jnp.stack(outputs, axis=-1)

    def _time(self, x: Array) -> Array:
        """1 and what the trend sees of the time step [N, K, T]."""
        horizon = self.network.horizon
        entries = x[..., self.network.inputs :]
        if horizon > SHORT:
            left = 0.5 * horizon * (1.0 - entries[..., :1])  # of H steps
            entries = left / horizon
            if self.discount < 1.0:
                entries = (1.0 - self.discount**left) / (1.0 - self.discount**horizon)
        return jnp.concatenate([jnp.ones_like(entries[..., :1]), entries], axis=-1)

    def _fit(self, state: CriticState, x: Array) -> Array:
        """The trend [N, K, V]; 0 before the first fit."""
        ridge = RIDGE * jnp.eye(len(state.gram.value), dtype=jnp.float32)
        return self._time(x) @ jnp.linalg.solve(
            state.gram.value + ridge, state.moment.value
        )
