"""A tabular CMDP as an ordinary JAX task: every algorithm can train on it.

The observation is the state as a one-hot vector [S]; actions are `Discrete(A)`. The
next state is drawn by inverse CDF from the successors of (s, a), stored as padded
lists, so a sparse transition stays small. Reward and costs are the means r_h(s,a) and
c_h(s,a). The named problems are registered tasks: the functions at the end.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy import sparse

from ecop.exact import language as words
from ecop.exact import problems
from ecop.exact.cmdp import TabularCMDP
from ecop.types import Spec, Step


class TabularState(NamedTuple):
    """Where an episode is."""

    index: jax.Array  # [] int32: the state s
    h: jax.Array  # [] int32: steps taken so far


class Tables(NamedTuple):
    """The numbers of a CMDP as a task needs them (K successors, 1 or H matrices)."""

    successor: jax.Array  # [1 or H, S, A, K] int32
    cumulative: jax.Array  # [1 or H, S, A, K] of their probabilities
    reward: jax.Array  # [H, S, A]
    costs: jax.Array  # [H, S, A, C]
    initial: jax.Array  # [S] cumulative


def tables_of(cmdp: TabularCMDP) -> Tables:
    """Return the tables of a CMDP in float32."""
    lists = [_successors(matrix) for matrix in cmdp.transition]
    width = max(successor.shape[-1] for successor, _ in lists)
    shape = (len(lists), cmdp.states, cmdp.actions, width)
    successor = np.stack([_pad(part, width, 0) for part, _ in lists])
    cumulative = np.stack([_pad(part, width, 1) for _, part in lists])
    return Tables(
        successor=jnp.asarray(successor.reshape(shape), jnp.int32),
        cumulative=jnp.asarray(cumulative.reshape(shape), jnp.float32),
        reward=jnp.asarray(cmdp.reward, jnp.float32),
        costs=jnp.asarray(np.moveaxis(cmdp.costs, 0, -1), jnp.float32),
        initial=jnp.asarray(_closed_sum(cmdp.initial), jnp.float32),
    )


class TabularEnv:
    """A `TabularCMDP` with the interface of `JaxEnv`.

    Other `tables` of the same shapes may be given, such as the argument of a compiled
    function: one program then serves many CMDPs.
    """

    spec: Spec
    cmdp: TabularCMDP

    def __init__(self, cmdp: TabularCMDP, tables: Tables | None = None) -> None:
        self.spec = cmdp.spec
        self.cmdp = cmdp
        self.tables = tables_of(cmdp) if tables is None else tables

    def reset(self, key: jax.Array) -> tuple[TabularState, jax.Array]:
        """Draw the first state from mu."""
        index = _draw(key, self.tables.initial)
        return TabularState(index, jnp.int32(0)), self._observe(index)

    def step(self, key: jax.Array, state: TabularState, action: jax.Array) -> Step:
        """Draw s' from P_h(.|s,a); pay r_h(s,a) and c_h(s,a)."""
        index, h = state
        tables = self.tables
        at = jnp.minimum(h, jnp.int32(len(tables.successor) - 1))
        chosen = _draw(key, tables.cumulative[at, index, action])
        following = tables.successor[at, index, action, chosen]
        return Step(
            state=TabularState(following, h + jnp.int32(1)),
            observation=self._observe(following),
            reward=tables.reward[h, index, action],
            costs=tables.costs[h, index, action],
            failed=jnp.zeros((), jnp.bool_),
        )

    def _observe(self, index: jax.Array) -> jax.Array:
        return jax.nn.one_hot(index, self.spec.observation_size, dtype=jnp.float32)


def _draw(key: jax.Array, cumulative: jax.Array) -> jax.Array:
    """Return the first index whose cumulative probability [K] exceeds a uniform."""
    uniform = jax.random.uniform(key, (), jnp.float32)
    return jnp.argmax(uniform < cumulative).astype(jnp.int32)


def _closed_sum(probabilities: np.ndarray) -> np.ndarray:
    """Return cumulative sums that reach 1 exactly at the last positive probability."""
    last = np.flatnonzero(probabilities)[-1]
    cumulative = np.cumsum(probabilities)
    cumulative[last:] = 1
    return cumulative


def _successors(matrix: sparse.csr_array) -> tuple[np.ndarray, np.ndarray]:
    """Return successors and cumulative probabilities [S*A, K] of all rows."""
    matrix = matrix.copy()
    matrix.eliminate_zeros()
    counts = np.diff(matrix.indptr)
    width = int(counts.max())
    successor = np.zeros((len(counts), width), np.int64)
    cumulative = np.ones((len(counts), width))
    for row, (start, count) in enumerate(zip(matrix.indptr, counts, strict=False)):
        successor[row, :count] = matrix.indices[start : start + count]
        cumulative[row, :count] = _closed_sum(matrix.data[start : start + count])
    return successor, cumulative


def _pad(rows: np.ndarray, width: int, value: int) -> np.ndarray:
    extra = width - rows.shape[-1]
    return np.pad(rows, ((0, 0), (0, extra)), constant_values=value)


def _task(problem: Callable[..., TabularCMDP]) -> Callable[..., TabularEnv]:
    """Return a constructor of the problem as a task, with the problem's options."""

    def make(**options: Any) -> TabularEnv:
        return TabularEnv(problem(**options))

    return make


factored_ring = _task(problems.factored_ring)
media_streaming = _task(problems.media_streaming)
inventory = _task(problems.inventory)
box = _task(problems.box)
mars_rover = _task(problems.mars_rover)
peak_hours = _task(problems.peak_hours)
language = _task(words.language)


@dataclass(frozen=True)
class RandomOptions:
    """Which random table."""

    seed: int = 0
    """of the draw"""
    states: int = 6
    """number of states"""
    actions: int = 3
    """number of actions"""
    constraints: int = 1
    """number of costs"""
    tightness: float = 0.5
    """of the limits: 0 is the free optimum's cost, 1 the smallest feasible"""
    time_varying: bool = False
    """draw transitions, rewards and costs anew for each step"""
    reward_scale: float = 1.0
    """rewards are drawn between 0 and this"""
    cost_scale: float = 1.0
    """costs are drawn between 0 and this; the limits follow"""


def random_table(*, horizon: int = 5, **options: Any) -> TabularEnv:
    """A table drawn at random, by the fields of `RandomOptions`."""
    drawn = asdict(RandomOptions(**options))
    return TabularEnv(problems.random_cmdp(horizon=horizon, **drawn))
