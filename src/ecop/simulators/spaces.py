"""Observations as vectors, and actions as an environment wants them.

Runs in every worker, whatever its Python: NumPy and nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Union

import numpy as np

from ecop.errors import UserError
from ecop.types import Box, Discrete, MultiDiscrete

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ecop.simulators.forms import Leaf


def vector(leaves: Sequence[Leaf], observation: Any) -> np.ndarray:
    """An observation as a vector [O] float32, its leaves one after the other."""
    parts = []
    for leaf in leaves:
        x = observation
        try:
            for key in leaf["path"]:
                x = x[key]
            x = np.asarray(x)
            if x.dtype.kind not in "fiub" or x.shape != tuple(leaf["shape"]):
                raise TypeError
            if leaf["sizes"] is not None:
                x = one_hot(x.reshape(-1), leaf["sizes"], leaf["start"])
        except (KeyError, IndexError, TypeError, ValueError):
            name = "".join(f"[{key!r}]" for key in leaf["path"])
            raise UserError(
                f"observation{name} must be numbers of shape {tuple(leaf['shape'])}"
                f"{' in their range' if leaf['sizes'] else ''}, not {x!r:.80}."
            ) from None
        parts.append(x.reshape(-1))
    return np.concatenate(parts).astype(np.float32)


def one_hot(x: np.ndarray, sizes: Sequence[int], start: Sequence[int]) -> np.ndarray:
    """For each entry, as many zeros as it has values, and a one."""
    rows = [np.zeros(size, np.float32) for size in sizes]
    for row, value, first in zip(rows, x.tolist(), start):
        if not 0 <= value - first < len(row):
            raise ValueError
        row[int(value - first)] = 1.0
    return np.concatenate(rows)


@dataclass(frozen=True)
class Scaled:
    """Actions of [-1, 1], clipped and scaled to the bounds of a Box."""

    low: np.ndarray
    high: np.ndarray

    @property
    def space(self) -> Box:
        """The library's action space."""
        return Box(self.low.size)

    @cached_property
    def _line(self) -> tuple[np.ndarray, np.ndarray]:
        low = self.low.astype(np.float64)
        return low, (self.high.astype(np.float64) - low) / 2.0

    def __call__(self, actions: np.ndarray) -> Any:
        """Actions [B, A] as the environment wants them."""
        low, half = self._line
        unit = np.minimum(np.maximum(actions.astype(np.float64), -1.0), 1.0)
        value = low + (unit.reshape(-1, *self.low.shape) + 1.0) * half
        whole = np.issubdtype(self.low.dtype, np.integer)
        value = (np.rint(value) if whole else value).astype(self.low.dtype)
        return np.minimum(np.maximum(value, self.low), self.high)


@dataclass(frozen=True)
class Chosen:
    """A choice among n actions start, start + 1, ...: a Discrete."""

    n: int
    start: int

    @property
    def space(self) -> Discrete:
        """The library's action space."""
        return Discrete(self.n)

    def __call__(self, actions: np.ndarray) -> Any:
        """Actions [B] as the environment wants them."""
        return (actions + self.start).tolist()


@dataclass(frozen=True)
class Combined:
    """Several choices at once: a MultiDiscrete or a MultiBinary."""

    sizes: np.ndarray
    start: np.ndarray  # of the space's type

    @property
    def space(self) -> MultiDiscrete:
        """The library's action space."""
        return MultiDiscrete(tuple(self.sizes.reshape(-1).tolist()))

    def __call__(self, actions: np.ndarray) -> Any:
        """Actions [B, D] as the environment wants them."""
        rows = actions.reshape(-1, *self.sizes.shape).astype(self.start.dtype)
        return rows + self.start


ActionForm = Union[Scaled, Chosen, Combined]
