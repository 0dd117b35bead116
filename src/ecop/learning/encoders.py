"""What stands between the observation and the layers of a network.

    mlp   nothing
    cnn   convolutions, for images: 3 x 3, stride 2, until a side is 4 or less

Observations are vectors everywhere; a spec that says they are images says their shape.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array

from ecop.errors import UserError
from ecop.types import Spec

Kind = Literal["mlp", "cnn"]
CHANNELS = (16, 32, 32)  # of the layers of a CNN
SMALL = 4  # pixels: a side that needs no further layer


@dataclass(frozen=True)
class CNN:
    """Convolutions over an image (height, width, channels), then its pixels in a row.

    `simulators.acting` computes the same in NumPy.
    """

    image: tuple[int, int, int]

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


def encoder(kind: Kind, spec: Spec, form: str) -> CNN | None:
    """The encoder of a task's observations; refuse one that does not fit them."""
    if kind == "mlp":
        if spec.image is not None:
            shape = " x ".join(map(str, spec.image))
            raise UserError(
                f"Observations are images ({shape}), which as a row of "
                f"{spec.observation_size:,} numbers lose what is near to what; train "
                "with network='cnn' (--network cnn), or wrap the environment so that "
                "it gives what matters as a vector."
            )
        return None
    if form == "per_step":
        raise UserError(
            f"network='{kind}' has one set of parameters for all steps: it does not go "
            "with policy='per_step'; choose 'time'."
        )
    if spec.image is None:
        raise UserError(
            f"network='cnn' needs images, and observations are vectors of "
            f"{spec.observation_size}; train with network='mlp'."
        )
    return CNN(spec.image)
