"""What a learner reaches, measured without sampling: e-COP against the exact optimum.

A trained policy is turned into its table pi_h(a|s) [H, S, A] and evaluated exactly, so
the only randomness left is that of the training itself.

**Units of the multiplier.** With `units="dimensionless"` e-COP descends

    -(1/H) sum_h E[ratio A_h] / sd(A) + lambda (1/H) sum_h E[ratio A_C,h] / scale + ...

At a stationary point dJ / sd(A) = lambda dJ_C / scale, so lambda sd(A) / scale is the
price of the limit in reward per cost: what the linear program calls the multiplier
(`shadow_price`). sd(A) is the batch's standard deviation of the reward advantage,
`scale` the running one of the cost advantage. They contain the noise of the sampled
returns, so they are read from the batch, not computed exactly. With `units="paper"`
lambda is the price itself. With `penalty="paper"` the multiplier enters twice when the
limit is broken: any lambda between half the price and the price can be at rest.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ecop.algorithms.ecop import ECOP
from ecop.envs.tabular import Tables, TabularEnv, tables_of
from ecop.errors import UserError
from ecop.exact.cmdp import TabularCMDP
from ecop.exact.values import evaluate_exact
from ecop.rollout import Actor, collect_jax, distribution
from ecop.training import Learner, TrainConfig
from ecop.types import Batch, TrainState


def policy_table(learner: Learner, state: TrainState) -> np.ndarray:
    """Return the trained policy as probabilities [H, S, A] in float64."""
    if not isinstance(learner.env, TabularEnv):
        raise UserError("Only the policy of a tabular task can be written as a table.")
    return _probabilities(_log_table(learner, state))


def evaluate_learned(
    learner: Learner, states: list[TrainState]
) -> list[tuple[float, np.ndarray]]:
    """Return the exact J and J_C [C] of each seed's policy; no sampling."""
    return [
        evaluate_exact(learner.env.cmdp, policy_table(learner, state))
        for state in states
    ]


def _probabilities(log_table: jax.Array) -> np.ndarray:
    """Return probabilities [H, S, A] in float64 that sum to 1 there too."""
    table = np.exp(np.asarray(log_table, np.float64))
    return table / table.sum(axis=-1, keepdims=True)


def _log_table(learner: Learner, state: TrainState) -> jax.Array:
    """Log probabilities [H, S, A] of all actions in all states at all steps."""
    actor = Actor(state.policy, state.normaliser)
    every = jnp.eye(learner.spec.observation_size, dtype=jnp.float32)

    def at(h: jax.Array) -> jax.Array:
        found: Any = distribution(learner.policy, actor, every, h)
        return found.log_probs

    return lax.map(at, jnp.arange(learner.spec.horizon))


def shadow_price(algorithm: ECOP, multiplier: jax.Array, batch: Batch) -> jax.Array:
    """Return e-COP's multipliers [C] in reward per cost; `batch` in its own units."""
    if algorithm.units == "paper":
        return multiplier
    reward = jnp.broadcast_to(batch.reward_scale, batch.cost_scale.shape)
    return multiplier * reward / batch.cost_scale


def limit_units(cmdp: TabularCMDP) -> np.ndarray:
    """Return the limits [C], and 1 where a limit is zero or infinite."""
    return np.array([d if 0 < d < np.inf else 1.0 for d in cmdp.limits])


def with_unit_limits(cmdp: TabularCMDP) -> TabularCMDP:
    """Return the same problem with costs divided by their limits, where they can be.

    e-COP does not notice (tested), and CMDPs that differ in their limits only then
    share one compiled program.
    """
    unit = limit_units(cmdp)
    costs = cmdp.costs / unit[:, None, None, None]
    limits = tuple(d / u for d, u in zip(cmdp.limits, unit, strict=True))
    return replace(cmdp, costs=costs, limits=limits)


class Course(NamedTuple):
    """One training run at its marks M, evaluated exactly."""

    iterations: np.ndarray  # [M]
    values: np.ndarray  # [M]
    costs: np.ndarray  # [M, C]
    prices: np.ndarray  # [M, C] multiplier in reward per cost, mean since the last mark
    entropies: np.ndarray  # [M] of the policy, mean since the last mark


@dataclass(frozen=True)
class Trainer:
    """e-COP on CMDPs of one shape: the tables are arguments of one compiled program."""

    algorithm: ECOP
    config: TrainConfig
    marks: int = 40

    def run(self, cmdp: TabularCMDP, seed: int) -> Course:
        """Train one seed; evaluate exactly after every 1/marks of the iterations."""
        scaled = with_unit_limits(cmdp)
        init, advance = self._program(scaled)
        tables = tables_of(scaled)
        unit = limit_units(cmdp)
        state = init(jnp.uint32(seed))
        ends = (
            np.linspace(0, self.config.iterations, self.marks + 1).round().astype(int)
        )
        rows = []
        for start, end in pairwise(ends):
            state, table, price, entropy = advance(
                tables, state, jnp.int32(end - start)
            )
            value, costs = evaluate_exact(cmdp, _probabilities(table))
            prices = np.zeros(len(unit))
            prices[list(cmdp.enforced)] = np.asarray(price, np.float64)
            rows.append((end, value, costs, prices / unit, float(entropy)))
        return Course(*(np.array(column) for column in zip(*rows, strict=True)))

    @cached_property
    def _programs(self) -> dict[Any, Any]:
        return {}

    def _program(self, cmdp: TabularCMDP) -> Any:
        if cmdp.spec not in self._programs:
            self._programs[cmdp.spec] = self._compile(cmdp)
        return self._programs[cmdp.spec]

    def _compile(self, cmdp: TabularCMDP) -> Any:
        def learner_of(tables: Tables) -> Learner:
            env = TabularEnv(cmdp, tables)
            return Learner(env, cmdp.spec, self.algorithm, self.config)

        def advance(tables: Tables, state: TrainState, count: jax.Array) -> Any:
            learner = learner_of(tables)
            collect = collect_jax(learner.env, learner.policy, self.config.episodes)

            def body(_: jax.Array, carry: Any) -> Any:
                state, prices, entropy = carry
                actor = Actor(state.policy, state.normaliser)
                episodes = collect(actor, learner.keys(state)[0])
                batch = learner.batch(state, episodes)[0]
                state, metrics = learner.learn(state, episodes)
                price = shadow_price(self.algorithm, metrics["multipliers"], batch)
                return state, prices + price, entropy + metrics["entropy"]

            zero = jnp.zeros(len(cmdp.enforced), jnp.float32)
            carry = (state, zero, jnp.float32(0.0))
            state, prices, entropy = lax.fori_loop(0, count, body, carry)
            steps = count.astype(jnp.float32)
            return state, _log_table(learner, state), prices / steps, entropy / steps

        init = jax.jit(learner_of(tables_of(cmdp)).init)
        return init, jax.jit(advance)
