"""Rules that turn measured violations into Lagrange multipliers."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from ecop.learning.descent import descend

Rule = Literal["plain", "adam"]


class Multiplier(NamedTuple):
    """Multipliers under gradient ascent."""

    value: Array  # [C], zero or more
    optimiser: Any


def optimiser(rule: Rule, rate: float) -> optax.GradientTransformation:
    """Plain ascent, or Adam's."""
    return {"plain": optax.sgd, "adam": optax.adam}[rule](rate)


def init_ascent(count: int, rule: Rule, rate: float) -> Multiplier:
    """Zero multipliers."""
    value = jnp.zeros(count, jnp.float32)
    return Multiplier(value, optimiser(rule, rate).init(value))


def ascend(
    state: Multiplier,
    violation: Float[Array, " C"],
    rule: Rule,
    rate: float,
    maximum: float = jnp.inf,
) -> Multiplier:
    """Lambda <- proj(lambda + rate violation), the gradient of lambda (J_C - d)."""
    value, moments = descend(
        optimiser(rule, rate), -violation, state.value, state.optimiser
    )
    return Multiplier(jnp.clip(value, 0.0, maximum), moments)


class Pid(NamedTuple):
    """What a PID controller remembers; zeros before the first batch."""

    integral: Array  # [C], zero or more
    error: Array  # [C] smoothed violation
    cost: Array  # [C] smoothed violation, by the derivative's own memory
    past: Array  # [D, C] the last D values of `cost`, oldest first
    started: Array  # [] bool


def init_pid(count: int, delay: int) -> Pid:
    """Nothing seen yet."""
    zero = jnp.zeros(count, jnp.float32)
    past = jnp.zeros((delay, count), jnp.float32)
    return Pid(zero, zero, zero, past, jnp.zeros((), bool))


def control(
    state: Pid,
    violation: Float[Array, " C"],
    *,
    proportional: float,
    integral: float,
    derivative: float,
    error_memory: float,
    cost_memory: float,
) -> tuple[Pid, Float[Array, " C"]]:
    """Return the new state and lambda = (K_P error + I + K_D (rise)_+)_+.

    I <- (I + K_I violation)_+; error and cost are exponential averages, and the rise
    is the cost's over the last D iterations. Both averages start at the first value,
    so a fresh controller sees no rise.
    """
    total = jnp.maximum(0.0, state.integral + integral * violation)
    error = _average(state.error, violation, error_memory, state.started)
    cost = _average(state.cost, violation, cost_memory, state.started)
    first = jnp.broadcast_to(cost, state.past.shape)
    past = jnp.where(state.started, state.past, first)
    rise = jnp.maximum(0.0, cost - past[0])
    multiplier = jnp.maximum(0.0, proportional * error + total + derivative * rise)
    past = jnp.concatenate([past[1:], cost[None]])
    return Pid(total, error, cost, past, jnp.ones((), bool)), multiplier


def _average(old: Array, new: Array, memory: float, started: Array) -> Array:
    return jnp.where(started, memory * old + (1.0 - memory) * new, new)
