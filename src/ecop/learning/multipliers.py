"""Rules that turn measured violations into Lagrange multipliers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from ecop.errors import UserError, require
from ecop.learning.averages import Average, follow, start
from ecop.learning.descent import descend
from ecop.learning.options import flat

# The largest violation, in its unit, that one iteration can mend: a policy that moves
# by a KL of 0.005 changes a mean of standardised advantages by at most sqrt(2 * 0.005).
# An integral that saw more would grow far beyond the price needed while the policy is
# still on its way.
REACH = 0.05
# Beyond this a controller sees no difference. Far inside a limit the violation changes
# with its unit alone, which is small once a policy has lost its noise; the derivative
# took that for a rise of the cost (a multiplier of 5,000 at a limit of 100 for 6).
FAR = 1.0


MARGIN_RATE = 0.05  # as in OpenAI's Safety Starter Agents


def grown_margin(
    margin: Float[Array, " C"], violation: Float[Array, " C"]
) -> Float[Array, " C"]:
    """What is added to the violation that a trust region sees.

    A step that is right to first order ends a little above the limit each time; the
    integral of what is left takes that away.
    """
    violation = jnp.clip(violation, -REACH, REACH)
    return jnp.maximum(0.0, margin + MARGIN_RATE * violation)


class Multiplier(NamedTuple):
    """Multipliers under gradient ascent."""

    value: Array  # [C], zero or more
    optimiser: Any


@flat
@dataclass(frozen=True)
class Ascent:
    """Gradient ascent of the multipliers.

    Attributes:
        multiplier_rate: step size of the multiplier, per dimensionless violation
        multiplier_rule: "plain" ascent or "adam"
    """

    multiplier_rate: float = 5.0
    multiplier_rule: Literal["plain", "adam"] = "plain"

    def __post_init__(self) -> None:
        require(self, "multiplier_rate")

    @property
    def optimiser(self) -> optax.GradientTransformation:
        """The rule, for a rate of 1."""
        adam = self.multiplier_rule == "adam"
        return optax.scale_by_adam() if adam else optax.identity()

    def init(self, count: int) -> Multiplier:
        """Zero multipliers."""
        value = jnp.zeros(count, jnp.float32)
        return Multiplier(value, self.optimiser.init(value))

    def step(
        self,
        state: Multiplier,
        violation: Float[Array, " C"],
        maximum: float = jnp.inf,
    ) -> Multiplier:
        """Lambda <- proj(lambda + rate violation), the gradient of lambda (J_C - d)."""
        violation = jnp.clip(violation, -REACH, REACH)
        rate = self.multiplier_rate
        value, moments = descend(
            self.optimiser, -violation, state.value, state.optimiser, rate
        )
        return Multiplier(jnp.clip(value, 0.0, maximum), moments)


class Pid(NamedTuple):
    """What a PID controller remembers."""

    integral: Array  # [C], zero or more
    error: Average  # [C] of the violation
    cost: Average  # [C] of the violation, by the derivative's own memory
    past: Array  # [D, C] the last D values of `cost`, oldest first


@flat
@dataclass(frozen=True)
class PidGains:
    """A PID controller of the multipliers.

    Attributes:
        proportional: gain K_P of the smoothed violation
        integral: gain K_I of the summed violation
        derivative: gain K_D of the cost's rise
        error_memory: of the average behind the proportional term, per iteration
        cost_memory: of the average behind the derivative term, per iteration
        delay: iterations over which a rise is measured
    """

    proportional: float = 5.0
    integral: float = 2.0
    derivative: float = 5.0
    error_memory: float = 0.5
    cost_memory: float = 0.5
    delay: int = 5

    def __post_init__(self) -> None:
        require(
            self,
            "delay",
            "proportional integral derivative error_memory cost_memory",
        )
        if max(self.error_memory, self.cost_memory) >= 1:
            raise UserError("error_memory and cost_memory must be less than 1.")

    def init(self, count: int) -> Pid:
        """Nothing seen yet."""
        zero = jnp.zeros(count, jnp.float32)
        past = jnp.zeros((self.delay, count), jnp.float32)
        return Pid(zero, start((count,)), start((count,)), past)

    def step(
        self, state: Pid, violation: Float[Array, " C"]
    ) -> tuple[Pid, Float[Array, " C"]]:
        """Return the new state and lambda = (K_P error + I + K_D (rise)_+)_+.

        I <- (I + K_I violation)_+; the rise is the averaged cost's over the last D
        iterations. Averages start at the first value: a fresh controller sees no rise.
        """
        violation = jnp.clip(violation, -FAR, FAR)
        total = jnp.maximum(0.0, state.integral + self.integral * violation)
        error = follow(state.error, violation, memory=self.error_memory)
        cost = follow(state.cost, violation, memory=self.cost_memory)
        fresh = jnp.broadcast_to(state.cost.count == 0.0, state.past.shape)
        first = jnp.broadcast_to(cost.value, state.past.shape)
        past = jnp.where(fresh, first, state.past)
        rise = jnp.maximum(0.0, cost.value - past[0])
        multiplier = self.proportional * error.value + total + self.derivative * rise
        past = jnp.concatenate([past[1:], cost.value[None]])
        return Pid(total, error, cost, past), jnp.maximum(0.0, multiplier)
