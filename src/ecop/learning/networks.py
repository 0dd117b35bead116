"""Policies and value networks that see the time step.

A network's input is the normalised observation followed by the entries of the time
step (`with_time`, time.py). Three forms of time dependence:

    time        one network that reads the time entries (Algorithm 2's chain of thetas)
    per_step    separate parameters for each step h (Algorithm 1's pi_t)
    stationary  the time entries are hidden, for ablation

Parameters are plain pytrees: a tuple of layers {"w": [in, out], "b": [out]}, with a
leading axis H for `per_step`. With an encoder (encoders.py) they are {"encoder",
"layers"}, and the layers see its features in place of the observation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ecop.learning.encoders import Encoder
from ecop.learning.time import gate_scale, time_size, time_table
from ecop.types import Box, MultiDiscrete, Spec

Form = Literal["time", "per_step", "stationary"]
LOG_2PI = 1.8378770664093453


class Gaussian(NamedTuple):
    """Independent normal distributions over the entries of a Box action."""

    mean: Array  # [..., A]
    log_std: Array  # [..., A]

    def log_prob(self, action: Array) -> Array:
        """Log density [...] of `action` [..., A]."""
        z = (action - self.mean) * jnp.exp(-self.log_std)
        return jnp.sum(-0.5 * z**2 - self.log_std - 0.5 * LOG_2PI, axis=-1)

    def entropy(self) -> Array:
        """Differential entropy [...]."""
        return jnp.sum(self.log_std + 0.5 * (LOG_2PI + 1.0), axis=-1)

    def kl(self, other: Any) -> Array:
        """KL(self || other) [...], `other` being of the same kind."""
        gap = self.log_std - other.log_std
        z = (self.mean - other.mean) * jnp.exp(-other.log_std)
        return jnp.sum(0.5 * (jnp.exp(2.0 * gap) + z**2 - 1.0) - gap, axis=-1)

    def sample(self, noise: Array) -> Array:
        """Turn standard normal noise [..., A] into an action."""
        return self.mean + jnp.exp(self.log_std) * noise

    def mode(self) -> Array:
        """The most likely action."""
        return self.mean


class Categorical(NamedTuple):
    """A distribution over the n actions of a Discrete space."""

    log_probs: Array  # [..., n], normalised

    def log_prob(self, action: Array) -> Array:
        """Log probability [...] of `action` [...] int."""
        picked = jnp.take_along_axis(self.log_probs, action[..., None], axis=-1)
        return picked[..., 0]

    def entropy(self) -> Array:
        """Entropy [...]."""
        return -jnp.sum(jnp.exp(self.log_probs) * self.log_probs, axis=-1)

    def kl(self, other: Any) -> Array:
        """KL(self || other) [...], `other` being of the same kind."""
        gap = self.log_probs - other.log_probs
        return jnp.sum(jnp.exp(self.log_probs) * gap, axis=-1)

    def sample(self, noise: Array) -> Array:
        """Turn Gumbel noise [..., n] into an action."""
        return jnp.argmax(self.log_probs + noise, axis=-1)

    def mode(self) -> Array:
        """The most likely action."""
        return jnp.argmax(self.log_probs, axis=-1)


class Choices(NamedTuple):
    """Independent choices that are made at once: an action of a MultiDiscrete space."""

    parts: tuple[Categorical, ...]

    def log_prob(self, action: Array) -> Array:
        """Log probability [...] of `action` [..., D] int."""
        each = [part.log_prob(action[..., i]) for i, part in enumerate(self.parts)]
        return sum(each[1:], start=each[0])

    def entropy(self) -> Array:
        """Entropy [...]."""
        each = [part.entropy() for part in self.parts]
        return sum(each[1:], start=each[0])

    def kl(self, other: Any) -> Array:
        """KL(self || other) [...], `other` being of the same kind."""
        each = [a.kl(b) for a, b in zip(self.parts, other.parts, strict=True)]
        return sum(each[1:], start=each[0])

    def sample(self, noise: Array) -> Array:
        """Turn Gumbel noise [..., n], n options in all, into an action."""
        sizes = [part.log_probs.shape[-1] for part in self.parts]
        pairs = zip(self.parts, split(noise, sizes), strict=True)
        return jnp.stack([part.sample(noise) for part, noise in pairs], axis=-1)

    def mode(self) -> Array:
        """The most likely action."""
        return jnp.stack([part.mode() for part in self.parts], axis=-1)


Distribution = Gaussian | Categorical | Choices


def split(x: Array, sizes: Sequence[int]) -> list[Array]:
    """Parts of these sizes of the last axis."""
    return jnp.split(x, np.cumsum(sizes)[:-1].tolist(), axis=-1)


def with_time(
    observation: Float[Array, "*rows O"],
    h: Int[Array, ""] | Int[Array, " H"],
    horizon: int,
) -> Float[Array, "*rows I"]:
    """Append the entries of the time step; `h` belongs to the last axis of rows."""
    time = jnp.asarray(time_table(horizon))[h]
    rows = (*observation.shape[:-1], time.shape[-1])
    return jnp.concatenate([observation, jnp.broadcast_to(time, rows)], axis=-1)


def init_mlp(key: Array, sizes: tuple[int, ...], last_scale: float) -> tuple[Any, ...]:
    """Orthogonal weights (gain sqrt 2, the last layer `last_scale`), zero biases."""
    keys = jax.random.split(key, len(sizes) - 1)
    scales = [2.0**0.5] * (len(sizes) - 2) + [last_scale]
    layers = []
    for k, scale, fan_in, fan_out in zip(
        keys, scales, sizes[:-1], sizes[1:], strict=True
    ):
        w = jax.nn.initializers.orthogonal(scale)(k, (fan_in, fan_out), jnp.float32)
        layers.append({"w": w, "b": jnp.zeros(fan_out, jnp.float32)})
    return tuple(layers)


def mlp(
    layers: tuple[Any, ...], x: Float[Array, "B I"], gate: Array | None = None
) -> Float[Array, "B out"]:
    """Tanh layers, the last one linear; `gate` [B, U] scales the first's units."""
    for i, layer in enumerate(layers[:-1]):
        x = jnp.tanh(x @ layer["w"] + layer["b"][None])
        if i == 0 and gate is not None:
            x = x * gate
    return x @ layers[-1]["w"] + layers[-1]["b"][None]


@dataclass(frozen=True)
class Network:
    """An MLP with one of the three forms of time dependence."""

    form: Form
    inputs: int
    hidden: tuple[int, ...]
    outputs: int
    horizon: int
    last_scale: float
    encoder: Encoder | None = None

    @property
    def whole(self) -> bool:
        """Whether outputs are those of whole episodes only, from the first step on."""
        remembers = self.encoder is not None and self.encoder.remembers
        return remembers or self.form == "per_step"

    @property
    def width(self) -> int:
        """Inputs of the first layer, beside the time."""
        return self.inputs if self.encoder is None else self.encoder.features

    def init(self, key: Array) -> Any:
        """Fresh parameters."""
        layers = self._layers(key)
        if self.encoder is None:
            return layers
        fresh = self.encoder.init(jax.random.fold_in(key, 2))
        return {"encoder": fresh, "layers": layers}

    def _layers(self, key: Array) -> Any:
        inputs = self.width + time_size(self.horizon) * (self.form == "time")
        sizes = (inputs, *self.hidden, self.outputs)
        if self.form == "per_step":
            keys = jax.random.split(key, self.horizon)
            return jax.vmap(lambda k: init_mlp(k, sizes, self.last_scale))(keys)
        layers = init_mlp(key, sizes, self.last_scale)
        if self.form == "time" and self.hidden:
            shape = (time_size(self.horizon), self.hidden[0])
            g = gate_scale(self.horizon) * jax.random.normal(
                jax.random.fold_in(key, 1), shape, jnp.float32
            )
            layers = ({**layers[0], "g": g}, *layers[1:])
        return layers

    def start(self, count: int) -> Any:
        """What is remembered of episodes that begin."""
        return () if self.encoder is None else self.encoder.start(count)

    def encoded(self, params: Any, x: Array) -> tuple[Any, Array]:
        """Parameters of the layers, and what they see [N, K, I]: features and time."""
        if self.encoder is None:
            return params, x
        seen, time = x[..., : self.inputs], x[..., self.inputs :]
        features = self.encoder.apply(params["encoder"], seen)
        return params["layers"], jnp.concatenate([features, time], axis=-1)

    def gated(self, params: Any, x: Array) -> Array:
        """Output [B, out] of a network that reads the time."""
        if not self.hidden:
            return mlp(params, x)
        return mlp(params, x, 1.0 + x[:, self.width :] @ params[0]["g"])

    def at(
        self, params: Any, x: Float[Array, "N I"], h: Array, memory: Any
    ) -> tuple[Array, Any]:
        """Output [N, out] for inputs of one step h, and what is remembered."""
        if self.encoder is not None:
            seen, time = x[:, : self.inputs], x[:, self.inputs :]
            features, memory = self.encoder.step(params["encoder"], memory, seen)
            params, x = params["layers"], jnp.concatenate([features, time], axis=-1)
        if self.form == "per_step":
            params = jax.tree.map(lambda leaf: leaf[h], params)
        if self.form == "time":
            return self.gated(params, x), memory
        return mlp(params, x[:, : self.width]), memory

    def over(self, params: Any, x: Float[Array, "N K I"]) -> Array:
        """Output [N, K, out] for K steps; `per_step` parameters are those K steps'."""
        params, x = self.encoded(params, x)
        if self.form == "per_step":
            rows = x[..., : self.width]
            return jax.vmap(mlp, in_axes=(0, 1), out_axes=1)(params, rows)
        flat = x.reshape(-1, x.shape[-1])
        if self.form == "time":
            rows = self.gated(params, flat)
        else:
            rows = mlp(params, flat[:, : self.width])
        return rows.reshape(*x.shape[:-1], self.outputs)


@dataclass(frozen=True)
class Policy:
    """A network with a Gaussian head (Box actions) or categorical ones.

    Attributes:
        spec: the task's spec
        form: how the policy depends on time
        hidden: sizes of the hidden layers; () is linear (a table, if one-hot)
        std: "shared" learns one log std per action, "predicted" one per state
        initial_log_std: where the log std starts
        encoder: what the layers see in place of the observation, if anything
    """

    spec: Spec
    form: Form = "time"
    hidden: tuple[int, ...] = (64, 64)
    std: Literal["shared", "predicted"] = "shared"
    initial_log_std: float = -0.5
    encoder: Encoder | None = None

    @property
    def network(self) -> Network:
        """The MLP behind the head."""
        action = self.spec.action
        outputs = action.size if isinstance(action, Box) else action.n
        if isinstance(action, Box) and self.std == "predicted":
            outputs *= 2
        return Network(
            form=self.form,
            inputs=self.spec.observation_size,
            hidden=self.hidden,
            outputs=outputs,
            horizon=self.spec.horizon,
            last_scale=0.01,
            encoder=self.encoder,
        )

    def init(self, key: Array) -> Any:
        """Fresh parameters {"mlp": layers, "log_std": [A] or [H, A]}."""
        params = {"mlp": self.network.init(key)}
        action = self.spec.action
        if isinstance(action, Box):
            steps = (self.spec.horizon,) if self.form == "per_step" else ()
            shape = (*steps, action.size)
            params["log_std"] = jnp.full(shape, self.initial_log_std, jnp.float32)
        return params

    def at(
        self, params: Any, x: Float[Array, "N I"], h: Array, memory: Any
    ) -> tuple[Distribution, Any]:
        """Action distribution of N episodes at step h, and what is remembered."""
        output, memory = self.network.at(params["mlp"], x, h, memory)
        if not isinstance(self.spec.action, Box):
            return self._choice(output), memory
        log_std = params["log_std"]
        log_std = log_std[h] if self.form == "per_step" else log_std
        return self._gaussian(output, log_std), memory

    def over(self, params: Any, x: Float[Array, "N K I"]) -> Distribution:
        """Action distribution over K steps of N episodes."""
        output = self.network.over(params["mlp"], x)
        if not isinstance(self.spec.action, Box):
            return self._choice(output)
        return self._gaussian(output, params["log_std"])

    def noise(self, key: Array, shape: tuple[int, ...]) -> Array:
        """Noise [*shape, A] that `sample` turns into actions."""
        action = self.spec.action
        if isinstance(action, Box):
            return jax.random.normal(key, (*shape, action.size), jnp.float32)
        return jax.random.gumbel(key, (*shape, action.n), jnp.float32)

    def _choice(self, output: Array) -> Categorical | Choices:
        action = self.spec.action
        if not isinstance(action, MultiDiscrete):
            return Categorical(jax.nn.log_softmax(output))
        parts = split(output, action.sizes)
        return Choices(tuple(Categorical(jax.nn.log_softmax(part)) for part in parts))

    def _gaussian(self, output: Array, log_std: Array) -> Gaussian:
        if self.std == "predicted":
            output, offset = jnp.split(output, 2, axis=-1)
            return Gaussian(output, broadcast(log_std, output) + offset)
        return Gaussian(output, broadcast(log_std, output))


def broadcast(array: Array, like: Array) -> Array:
    """Broadcast `array` to the shape of `like`, trailing axes aligned."""
    return jnp.broadcast_to(array, like.shape)
