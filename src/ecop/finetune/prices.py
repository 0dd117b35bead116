"""What a unit of each cost is worth: e-COP's multipliers and damped prices.

| here        | paper      | meaning                                                 |
|-------------|------------|---------------------------------------------------------|
| limit       | d_i        | upper limit of the mean cost                            |
| violation   | J_Ci - d_i | of the policy that made the batch, in units of `scale`  |
| psi         | Psi_i      | violation + predicted change of the cost                |
| multiplier  | lambda_i   | the integral of the violations                          |
| price       |            | max(0, lambda_i + beta psi_i)                           |

The gradient of the paper's damped penalty beta/2 max(0, psi + lambda/beta)^2 is
`price * grad psi`. So with psi as one number for the whole batch, the loss of a
micro-batch is `-gain + price . cost`: parts of a batch, on any number of ranks, add up
to the exact gradient. While the ratio is 1, psi is the violation itself, and the
same gradient is that of any policy gradient with the advantage A - sum_i price_i A_Ci.

Deviations from the printed paper:
1. lambda grows by `rate` times the violation, not by beta times it: a step of beta
   presumes that the policy's problem is solved within one batch.
2. Each cost is divided by the running standard deviation of its centred values, at
   least `FLOOR` times its limit: a rare cost has a deviation near zero.
3. `caution` standard errors of the measured cost are added to the violation.
4. Multiplier and price stop at `bound`, so that a limit that cannot be kept does not
   drown the reward for ever (anti-windup).
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any, NamedTuple, TypedDict

import numpy as np

from ecop.errors import UserError
from ecop.files import Count, Name, conform, parse

Numbers = Sequence[float] | np.ndarray

BETA, RATE = 3.0, 0.1  # damping and rate for everyone: docs/finetune.md
MEMORY = 0.9  # of the running scale, per batch
FLOOR = 0.1  # of the limit: the least scale of a cost


class Saved(TypedDict):
    """The state as JSON."""

    names: list[Name]
    batches: Count
    multiplier: list[float]
    violation: list[float]
    deviation: list[float]


class Damping(NamedTuple):
    """What a loss must know to put a price on psi; a pytree for JAX."""

    multiplier: Any  # [C]
    beta: Any  # []
    bound: Any  # []

    def price(self, psi: Any) -> Any:
        """min(bound, max(0, lambda + beta psi)) [C]; NumPy, torch or JAX arrays."""
        return (self.multiplier + self.beta * psi).clip(0.0, self.bound)


class Prices:
    """Multipliers and prices of C limits; plain Python and NumPy.

    limits: upper limits of the mean costs, by name or in order.
    beta: damping; 0 is a plain Lagrangian.
    rate: what the multiplier gains per batch and unit of violation.
    caution: standard errors of the measured cost that are added to the violation.
    bound: where multipliers and prices stop.
    """

    def __init__(
        self,
        limits: Mapping[str, float] | Sequence[float],
        *,
        beta: float = BETA,
        rate: float = RATE,
        caution: float = 0.0,
        bound: float = 100.0,
    ) -> None:
        if not isinstance(limits, Mapping):
            limits = {f"cost_{i}": limit for i, limit in enumerate(limits)}
        for name, limit in limits.items():
            if not isinstance(limit, Real) or not math.isfinite(limit):
                raise UserError(
                    f"The limit of '{name}' must be a finite number, not {limit!r}."
                )
        for name, value in (("beta", beta), ("rate", rate), ("caution", caution)):
            if not 0 <= value < math.inf:
                raise UserError(f"{name} must be zero or more, not {value}.")
        if beta == rate == 0:
            raise UserError("Set beta or rate above zero, or no limit has a price.")
        if not bound > 0:
            raise UserError(f"bound must be positive, not {bound}.")
        self.names = tuple(limits)
        self.limits = np.array(list(limits.values()), np.float64)
        self.beta, self.rate = float(beta), float(rate)
        self.caution, self.bound = float(caution), float(bound)
        self.multiplier = np.zeros(len(self.names))
        self.violation = np.zeros(len(self.names))
        self.deviation = np.zeros(len(self.names))  # running std; 0 before a batch
        self.batches = 0

    @property
    def scale(self) -> np.ndarray:
        """Unit [C] of each cost: its running std, at least a share of its limit."""
        scale = np.maximum(self.deviation, FLOOR * np.abs(self.limits))
        return np.where(scale > 0, scale, 1.0)

    @property
    def damping(self) -> Damping:
        """The numbers a loss needs."""
        return Damping(self.multiplier.copy(), self.beta, self.bound)

    def update(self, means: Numbers, stds: Numbers, count: int) -> np.ndarray:
        """Take in a batch; return the violations [C] in units of `scale`.

        means: mean costs [C] of the whole batch, over all ranks.
        stds: standard deviations [C] of the centred costs (of A_C).
        count: completions or images in the whole batch.
        """
        mean = self._checked("mean", means)
        std = self._checked("standard deviation", stds)
        if (std < 0).any() or count < 1:
            raise UserError("Standard deviations must not be negative, nor count < 1.")
        memory = MEMORY if self.batches else 0.0
        self.deviation = memory * self.deviation + (1 - memory) * std
        margin = self.caution * std / math.sqrt(count)
        self.violation = (mean + margin - self.limits) / self.scale
        self.multiplier = np.clip(
            self.multiplier + self.rate * self.violation, 0.0, self.bound
        )
        self.batches += 1
        return self.violation

    def prices(self, psi: Any = None) -> np.ndarray:
        """max(0, lambda + beta psi) [C]; psi is the last violation unless given."""
        return self.damping.price(self.violation if psi is None else np.asarray(psi))

    def rows(
        self, means: Numbers, stds: Numbers, count: int
    ) -> dict[str, dict[str, float]]:
        """What to log per constraint; the arguments are those of `update`.

        cost, its standard error, limit, multiplier, price and violated.
        """
        errors = np.asarray(stds, np.float64) / math.sqrt(count)
        columns = {
            "cost": np.asarray(means, np.float64),
            "error": errors,
            "limit": self.limits,
            "multiplier": self.multiplier,
            "price": self.prices(),
            "violated": np.asarray(means, np.float64) > self.limits,
        }
        return {
            name: {key: float(column[i]) for key, column in columns.items()}
            for i, name in enumerate(self.names)
        }

    def to_json(self) -> str:
        """State as JSON: what `load_json` needs to go on with the same bits."""
        state = {
            "names": list(self.names),
            "limits": self.limits.tolist(),
            "batches": self.batches,
            **{key: getattr(self, key).tolist() for key in ARRAYS},
        }
        return json.dumps(state, indent=1)

    def load_json(self, text: str) -> None:
        """Take over the state; the limits may differ, the constraints may not."""
        try:
            state = parse(text)
            conform(state, Saved)
        except UserError as error:
            raise UserError(f"The saved prices are not readable: {error}.") from None
        arrays = {key: np.array(state[key], np.float64) for key in ARRAYS}
        names, batches = tuple(state["names"]), state["batches"]
        if names != self.names:
            raise UserError(
                f"The saved prices belong to {list(names)}, not to {list(self.names)}: "
                "resume with the same constraints in the same order."
            )
        if any(array.shape != self.limits.shape for array in arrays.values()):
            raise UserError("The saved prices need one number per constraint.")
        self.batches = batches
        for key, array in arrays.items():
            setattr(self, key, array)

    def _checked(self, what: str, values: Numbers) -> np.ndarray:
        array = np.asarray(values, np.float64)
        if array.shape != self.limits.shape:
            raise UserError(
                f"Give one {what} per constraint {list(self.names)}, not an array of "
                f"shape {list(array.shape)}."
            )
        for name, value in zip(self.names, array, strict=True):
            if not math.isfinite(value):
                raise UserError(
                    f"The {what} of '{name}' is {value}: every cost must be finite."
                )
        return array


ARRAYS = ("multiplier", "violation", "deviation")
