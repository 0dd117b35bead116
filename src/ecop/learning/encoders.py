"""What stands between the observation and the layers of a network.

    mlp   nothing
    cnn   convolutions, for images: 3 x 3, stride 2, until a side is 4 or less
    gru   a memory of the episode so far, for observations that do not tell all

An encoder turns an episode's observations into features (`apply`), or those of one step
and what it remembers of the steps before into features and memory (`step`).

Observations are vectors everywhere; a spec that says they are images says their shape.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array

from ecop.errors import UserError
from ecop.types import Spec

Kind = Literal["mlp", "cnn", "gru"]
CHANNELS = (16, 32, 32)  # of the layers of a CNN
SMALL = 4  # pixels: a side that needs no further layer
UNITS = 64  # of a memory
KEEP = 1.0  # bias of a fresh memory towards what it holds


@dataclass(frozen=True)
class CNN:
    """Convolutions over an image (height, width, channels), then its pixels in a row.

    `simulators.acting` computes the same in NumPy.
    """

    image: tuple[int, int, int]
    remembers: ClassVar[bool] = False

    @property
    def shapes(self) -> list[tuple[int, int, int]]:
        """The image and what each layer makes of it."""
        found = [self.image]
        for channels in CHANNELS:
            height, width, _ = found[-1]
            if min(height, width) > SMALL:
                found.append((-(-height // 2), -(-width // 2), channels))
        return found

    @property
    def features(self) -> int:
        """Entries that come out."""
        return math.prod(self.shapes[-1])

    def init(self, key: Array) -> tuple[Any, ...]:
        """Fresh layers {"w": [3, 3, in, out], "b": [out]}."""
        depths = [shape[2] for shape in self.shapes]
        keys = jax.random.split(key, len(depths))
        draw = jax.nn.initializers.orthogonal(2.0**0.5)
        return tuple(
            {
                "w": draw(k, (3, 3, fan_in, fan_out), jnp.float32),
                "b": jnp.zeros(fan_out, jnp.float32),
            }
            for k, (fan_in, fan_out) in zip(
                keys, itertools.pairwise(depths), strict=False
            )
        )

    def apply(self, layers: tuple[Any, ...], x: Array) -> Array:
        """Features [..., F] of observations [..., O]."""
        rows = x.shape[:-1]
        x = x.reshape(-1, *self.image)
        for layer in layers:
            x = lax.conv_general_dilated(
                x,
                layer["w"],
                window_strides=(2, 2),
                padding=((1, 1), (1, 1)),
                dimension_numbers=("NHWC", "HWIO", "NHWC"),
            )
            x = jax.nn.relu(x + layer["b"][None, None, None])
        return x.reshape(*rows, self.features)

    def start(self, count: int) -> tuple[()]:
        """Nothing to remember."""
        return ()

    def step(self, params: Any, memory: Any, x: Array) -> tuple[Array, Any]:
        """Features [N, F] of one step."""
        return self.apply(params, x), memory


@dataclass(frozen=True)
class GRU:
    """Gated recurrent units: the observation and a memory of it and of those before."""

    inputs: int
    remembers: ClassVar[bool] = True

    @property
    def features(self) -> int:
        """Entries that come out."""
        return self.inputs + UNITS

    def init(self, key: Array) -> dict[str, Array]:
        """Fresh weights of [keep, reset, candidate]."""
        ours, theirs = jax.random.split(key)
        draw = jax.nn.initializers.orthogonal(1.0)
        parts = jax.random.split(theirs, 3)
        keep = jnp.full(UNITS, KEEP, jnp.float32)
        return {
            "w": draw(ours, (self.inputs, 3 * UNITS), jnp.float32),
            "u": jnp.concatenate(
                [draw(k, (UNITS, UNITS), jnp.float32) for k in parts], axis=1
            ),
            "b": jnp.concatenate([keep, jnp.zeros(2 * UNITS, jnp.float32)]),
        }

    def start(self, count: int) -> Array:
        """The memory [N, U] of episodes that begin."""
        return jnp.zeros((count, UNITS), jnp.float32)

    def step(self, params: Any, memory: Array, x: Array) -> tuple[Array, Array]:
        """Features [N, F] of one step and the memory after it."""
        memory = remember(params, memory, x @ params["w"] + params["b"][None])
        return jnp.concatenate([x, memory], axis=-1), memory

    def apply(self, params: Any, x: Array) -> Array:
        """Features [N, K, F] of episodes [N, K, O] from their first step on."""
        drive = x @ params["w"] + params["b"][None, None]

        def step(memory: Array, drive: Array) -> tuple[Array, Array]:
            memory = remember(params, memory, drive)
            return memory, memory

        _, memory = lax.scan(step, self.start(len(x)), jnp.moveaxis(drive, 1, 0))
        return jnp.concatenate([x, jnp.moveaxis(memory, 0, 1)], axis=-1)


def remember(params: Any, memory: Array, drive: Array) -> Array:
    """The memory [N, U] after a step that drives its units by [N, 3 U]."""
    keep, reset, new = jnp.split(drive, 3, axis=1)
    u_keep, u_reset, u_new = jnp.split(params["u"], 3, axis=1)
    keep = jax.nn.sigmoid(keep + memory @ u_keep)
    reset = jax.nn.sigmoid(reset + memory @ u_reset)
    new = jnp.tanh(new + (reset * memory) @ u_new)
    return keep * memory + (1.0 - keep) * new


Encoder = CNN | GRU


def encoder(kind: Kind, spec: Spec, form: str) -> Encoder | None:
    """The encoder of a task's observations; refuse one that does not fit them."""
    if spec.image is not None and kind != "cnn":
        shape = " x ".join(map(str, spec.image))
        raise UserError(
            f"Observations are images ({shape}), which as a row of "
            f"{spec.observation_size:,} numbers lose what is near to what; train "
            "with network='cnn' (--network cnn), or wrap the environment so that "
            "it gives what matters as a vector."
        )
    if kind == "mlp":
        return None
    if form == "per_step":
        raise UserError(
            f"network='{kind}' has one set of parameters for all steps: it does not go "
            "with policy='per_step'; choose 'time'."
        )
    if kind == "gru":
        return GRU(spec.observation_size)
    if spec.image is None:
        raise UserError(
            f"network='cnn' needs images, and observations are vectors of "
            f"{spec.observation_size}; train with network='mlp'."
        )
    return CNN(spec.image)
