"""The nouns of the library: what an environment is, what a batch holds.

Axes have letters, always in this order: S seeds, N episodes, H steps, C constraints;
O is the observation size, A the action size. This module imports no JAX, so that
files of host environments (NumPy simulators) can use it in worker processes.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass, replace
from typing import (
    TYPE_CHECKING,
    Any,
    Literal,
    NamedTuple,
    Protocol,
    Union,
    runtime_checkable,
)

from ecop.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import jax
    import numpy as np

    from ecop.drawing.scenes import Film


@dataclass(frozen=True)
class Box:
    """Continuous actions; the environment clips them to [-1, 1]."""

    size: int

    @property
    def freedom(self) -> int:
        """Entries in which two distributions over actions can differ."""
        return self.size


@dataclass(frozen=True)
class Discrete:
    """Actions 0 .. n-1."""

    n: int

    @property
    def freedom(self) -> int:
        """Entries in which two distributions over actions can differ."""
        return self.n - 1


@dataclass(frozen=True)
class MultiDiscrete:
    """Several choices at once, of 0 .. size-1 each; an action is a vector of them."""

    sizes: tuple[int, ...]

    @property
    def n(self) -> int:
        """Options of all choices together."""
        return sum(self.sizes)

    @property
    def freedom(self) -> int:
        """Entries in which two distributions over actions can differ."""
        return self.n - len(self.sizes)


Action = Union[Box, Discrete, MultiDiscrete]


@dataclass(frozen=True)
class Constraint:
    """E[sum over the episode of this cost] <= limit; an infinite limit is off.

    bound: no episode can cost more, nor less than 0; infinite: unknown
    """

    name: str
    limit: float
    bound: float = math.inf


@dataclass(frozen=True)
class Spec:
    """What an algorithm must know of a task.

    image: height, width and channels, if the observation [O] is an image, row by row
    """

    observation_size: int
    action: Action
    horizon: int
    constraints: tuple[Constraint, ...] = ()
    image: tuple[int, int, int] | None = None

    def __post_init__(self) -> None:
        if self.horizon < 1:
            raise UserError(f"The horizon must be at least 1, not {self.horizon}.")
        if self.image and math.prod(self.image) != self.observation_size:
            raise UserError(
                f"An image of {self.image} has {math.prod(self.image)} entries, not "
                f"{self.observation_size}."
            )

    @property
    def cost_names(self) -> tuple[str, ...]:
        """Names of all costs the task reports, in the order of its cost vector."""
        return tuple(constraint.name for constraint in self.constraints)

    @property
    def limits(self) -> tuple[float, ...]:
        """Limits of all costs, infinite where the constraint is switched off."""
        return tuple(constraint.limit for constraint in self.constraints)

    @property
    def enforced(self) -> tuple[int, ...]:
        """Indices of the costs with a finite limit: the m constraints of the paper."""
        return tuple(i for i, limit in enumerate(self.limits) if math.isfinite(limit))

    def with_limits(self, limits: tuple[float, ...]) -> Spec:
        """Return this spec with other limits; refuse limits that make no sense."""
        if len(limits) != len(self.constraints):
            names = ", ".join(self.cost_names) or "none"
            raise UserError(
                f"The task has {len(self.constraints)} cost(s) ({names}) but "
                f"{len(limits)} limit(s) were given; give one limit per cost."
            )
        for name, limit in zip(self.cost_names, limits, strict=True):
            if math.isnan(limit) or limit < 0:
                raise UserError(
                    f"The limit of '{name}' must be zero or more, not {limit}; "
                    "use 'inf' to switch the constraint off."
                )
        pairs = zip(self.constraints, limits, strict=True)
        return replace(
            self, constraints=tuple(replace(c, limit=float(v)) for c, v in pairs)
        )


class Step(NamedTuple):
    """What one step of a JAX environment returns (one episode, no batch axis)."""

    state: Any
    observation: jax.Array  # [O]
    reward: jax.Array  # []
    costs: jax.Array  # [C]
    failed: jax.Array  # [] bool: absorbing from here on


class HostStep(NamedTuple):
    """What one step of a host environment returns for its B episodes."""

    observation: np.ndarray  # [B, O]
    reward: np.ndarray  # [B]
    costs: np.ndarray  # [B, C]
    failed: np.ndarray  # [B] bool


class JaxEnv(Protocol):
    """A task as pure functions; `rollout` maps and scans them.

    `spec` holds the task's default limits.
    """

    spec: Spec

    def reset(self, key: jax.Array) -> tuple[Any, jax.Array]:
        """Return the first state and its observation [O]."""
        ...

    def step(self, key: jax.Array, state: Any, action: jax.Array) -> Step:
        """Advance one step; never called after the horizon."""
        ...


@runtime_checkable
class HostEnv(Protocol):
    """A host task that is stepped in batches, NumPy in and out, as MuJoCo's are."""

    spec: Spec

    def reset(self, seeds: np.ndarray) -> np.ndarray:
        """Start one episode per seed [B] uint32; return observations [B, O]."""
        ...

    def step(self, actions: np.ndarray) -> HostStep:
        """Advance all episodes; failed ones ignore their action.

        Never called after all have failed, nor after the horizon.
        """
        ...

    def close(self) -> None:
        """Release what the simulator holds."""
        ...


class HostPolicy(NamedTuple):
    """A policy as plain arrays, for NumPy and for the way to other processes.

    `simulators.acting` says what they mean. T is H where parameters differ from step to
    step, otherwise 1.
    """

    mean: np.ndarray  # [O], of the observations
    scale: np.ndarray  # [O]
    weights: tuple[np.ndarray, ...]  # [T, I, J] of each layer
    biases: tuple[np.ndarray, ...]  # [T, J] of each layer
    gate: np.ndarray  # [T, J] of the first layer's units; [1, 0] for none
    head: Literal["normal", "spread", "choice", "script"]
    image: tuple[int, ...] = ()  # height, width, channels of the observation, if any
    filters: tuple[np.ndarray, ...] = ()  # [1, 9 I + 1, J], the last row the bias
    choices: tuple[int, ...] = ()  # sizes, where several are made at once
    # Of a memory of U units: [1, O + 1, 3 U], the last row the bias, and [1, U, 3 U].
    recurrent: tuple[np.ndarray, ...] = ()


class Part(NamedTuple):
    """An episode to be played; it is a function of these and of nothing else."""

    seed: int
    policy: int  # index into a list of policies
    noise: np.ndarray  # [H, ...] one row per step


class Record(NamedTuple):
    """An episode as it was played: the L steps up to its end."""

    observation: np.ndarray  # [L, O] before each step
    action: np.ndarray  # [L, A] or [L] int32
    reward: np.ndarray  # [L]
    costs: np.ndarray  # [L, C]
    ended: int  # 0: at the horizon, 1: terminated, 2: truncated before the horizon


@runtime_checkable
class Playing(Protocol):
    """A host task that plays whole episodes by itself, as a `SimulatorPool` does."""

    spec: Spec
    busy: float  # share of the time since the last batch that simulators were at work

    def play(
        self, policies: list[HostPolicy], parts: list[Part], ahead: Sequence[int] = ()
    ) -> list[Record]:
        """Play all parts; the records come in their order.

        ahead: seeds that the next batch will probably begin with
        """
        ...

    def close(self) -> None:
        """Release what the simulators hold."""
        ...


if sys.version_info >= (3, 10):  # workers of an older Python have no use for it
    HostTask = HostEnv | Playing


class Played(NamedTuple):
    """One episode of H steps, up to its end, as NumPy arrays."""

    seed: int
    action: np.ndarray  # [H, A] or [H] int
    reward: np.ndarray  # [H]
    costs: np.ndarray  # [H, C]
    states: Any  # of a JAX task [H], before each step; of a host task None


@runtime_checkable
class Filmed(Protocol):
    """A task of either kind that can show an episode; not every task can."""

    def film(self, episode: Played) -> Film:
        """What is to be seen; a host task replays the episode by seed and actions."""
        ...


class Episodes(NamedTuple):
    """N whole episodes as collected; steps after a failure are dead (alive 0).

    Where all have failed early the steps after the last failure may be left out.
    """

    observation: jax.Array  # [N, H, O] as the environment gave it
    action: jax.Array  # [N, H, A], int for choices, or [N, H] int
    reward: jax.Array  # [N, H], 0 where dead
    costs: jax.Array  # [N, H, C], 0 where dead
    alive: jax.Array  # [N, H] float 0/1: the step was taken
    failed: jax.Array  # [N] bool: the episode ended before the horizon


class Batch(NamedTuple):
    """Episodes ready for an algorithm; C counts the enforced constraints only."""

    observation: jax.Array  # [N, H, O] normalised, as the policy sees it
    action: jax.Array  # [N, H, A], int for choices, or [N, H] int
    log_prob: jax.Array  # [N, H] under the policy that acted
    alive: jax.Array  # [N, H]
    adv: jax.Array  # [N, H] in reward units
    cost_adv: jax.Array  # [N, H, C] in cost units
    cost_error: jax.Array  # [C] standard error of the mean cost return
    violation: jax.Array  # [C] mean cost return - limit, in cost units
    reward_scale: jax.Array  # [] std of adv; 1 if that is 0
    cost_scale: jax.Array  # [C] running std of cost_adv; 1 if that is 0
    rate: jax.Array | float = 1.0  # [] the schedule's factor of step lengths


class TrainState(NamedTuple):
    """All that training carries from one iteration to the next, for one seed."""

    key: jax.Array  # the seed's key; every random number is folded from it
    iteration: jax.Array  # [] int32
    steps: jax.Array  # [] int32: environment steps so far
    length: jax.Array  # [] mean steps of an episode of the last batch; H at first
    policy: Any  # parameters of the policy network
    critics: Any  # learning.critics.CriticState
    normaliser: Any  # learning.normaliser.Normaliser of observations
    cost_scale: Any  # learning.averages.Average [C] of the cost advantage's std
    algorithm: Any  # the algorithm's own state
