"""One critic for the reward and one per constraint, fitted to returns to go.

A return to go falls with time far more than it varies between states, and an advantage
is a difference of neighbouring values. So a critic is the running mean of the return to
go at each time step plus a network of its own (no shared trunk) for the rest, in units
of the rest's running standard deviation: the network's error does not grow with the
horizon.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float

from ecop.learning import averages
from ecop.learning.averages import Average
from ecop.learning.descent import ADAM, descend, sweep
from ecop.learning.networks import Network
from ecop.learning.surrogates import step_mean


class CriticState(NamedTuple):
    """Parameters of the V critics, their optimiser, and the target statistics."""

    params: Any  # tuple of V network parameters: reward first, then constraints
    optimiser: Any
    mean: Average  # [H, V] of the targets, by time step
    std: Average  # [V] of the targets around it


@dataclass(frozen=True)
class Critics:
    """How the critics are built and fitted.

    Attributes:
        network: one critic
        count: 1 + number of enforced constraints
        learning_rate: Adam's
        epochs: passes over the batch per fit
        minibatches: gradient steps of a pass; `per_step` takes whole episodes
    """

    network: Network
    count: int
    learning_rate: float
    epochs: int
    minibatches: int

    def init(self, key: Array) -> CriticState:
        """Fresh critics that predict zero until they are fitted."""
        keys = jax.random.split(key, self.count)
        params = tuple(self.network.init(k) for k in keys)
        return CriticState(
            params=params,
            optimiser=ADAM.init(params),
            mean=averages.start((self.network.horizon, self.count)),
            std=averages.start((self.count,)),
        )

    def values(
        self, state: CriticState, x: Float[Array, "N K I"]
    ) -> Float[Array, "N K V"]:
        """Predicted returns to go, in their own units."""
        z = self._predict(state.params, x)
        mean = state.mean.value[: x.shape[1]]
        return mean[None] + state.std.value[None, None] * z

    def fit(
        self,
        key: Array,
        state: CriticState,
        x: Float[Array, "N K I"],
        target: Float[Array, "N K V"],
        alive: Float[Array, "N K"],
    ) -> tuple[CriticState, Float[Array, ""]]:
        """Regress on `target`; return the new critics and the last mean squared error.

        The error is in units of the target's variance around its mean by time step.
        """
        means, known = step_means(target, alive, self.network.horizon)
        mean = averages.follow(state.mean, means, known=known)
        rest = target - mean.value[None, : alive.shape[1]]
        variance = jnp.sum(alive[..., None] * rest**2, axis=(0, 1))
        spread = jnp.sqrt(variance / jnp.maximum(jnp.sum(alive), 1.0))
        std = averages.follow(state.std, spread)
        z = rest / jnp.where(std.value > 0.0, std.value, 1.0)[None, None]
        # Rows [R, L, ...] to draw from: steps, or episodes where steps share nothing.
        whole = self.network.form == "per_step"
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
            return descend(ADAM, gradient, params, optimiser, self.learning_rate), value

        def epoch(carry: Any, key: Array) -> tuple[Any, Array]:
            return sweep(key, living, self.minibatches, carry, step)

        keys = jax.random.split(key, self.epochs)
        carry = (state.params, state.optimiser)
        (params, optimiser), losses = lax.scan(epoch, carry, keys)
        return CriticState(params, optimiser, mean, std), losses[-1] / self.count

    def _predict(self, params: Any, x: Array) -> Array:
        outputs = [self.network.over(p, x)[..., 0] for p in params]
        return jnp.stack(outputs, axis=-1)


def step_means(
    target: Float[Array, "N K V"], alive: Float[Array, "N K"], horizon: int
) -> tuple[Float[Array, "H V"], Bool[Array, "H 1"]]:
    """Means over the living episodes by time step, and where there are any."""
    count = jnp.sum(alive, axis=0)[:, None]
    total = jnp.sum(alive[..., None] * target, axis=0)
    never = ((0, horizon - alive.shape[1]), (0, 0))
    means, count = (jnp.pad(x, never) for x in (total / jnp.maximum(count, 1.0), count))
    return means, count > 0.0
