"""Episodes on simulators of this process: a few at once, only the living are stepped.

A `Player` holds at most `live` simulators. Each step is one call for all actions, then
one call per simulator; where an episode ends, the next one starts in its place. An
episode has the same bits in any company (`acting`). No JAX here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from ecop.simulators import guard
from ecop.simulators.acting import Company
from ecop.types import HostPolicy, Part, Record, Spec


class Result(NamedTuple):
    """What one step of a simulator returns."""

    observation: np.ndarray  # [O]
    reward: float
    costs: Sequence[float] | np.ndarray  # [C]
    ended: int = 0  # 0: goes on, 1: terminated, 2: truncated


class Simulator(Protocol):
    """One episode at a time; an episode is a function of its seed and actions."""

    def reset(self, seed: int) -> np.ndarray:
        """Start an episode; return its first observation [O]."""
        ...

    def step(self, action: Any) -> Result:
        """Advance one step; never called after an end or the horizon."""
        ...

    def close(self) -> None:
        """Release what the simulator holds."""
        ...


@runtime_checkable
class Preparing(Protocol):
    """A simulator whose `step` gets actions in a form of its own."""

    def prepare(self, actions: np.ndarray) -> Sequence[Any]:
        """Turn the actions of several simulators, [B, A] or [B] int32, into it."""
        ...


class Cue(NamedTuple):
    """A part, its number, and who plays it."""

    number: int
    part: Part
    policy: HostPolicy


KINDS = "fiub"  # of the types of numbers that an observation may have


class Episode:
    """An episode under way, with what it earned and paid so far."""

    def __init__(self, cue: Cue, simulator: Simulator) -> None:
        self.cue = cue
        self.simulator = simulator
        self.rewards: list[float] = []
        self.costs: list[tuple[float, ...]] = []


def name_of(simulator: Simulator) -> str:
    """What a message calls it."""
    kind = type(simulator)
    return kind.__name__ if kind.__str__ is object.__str__ else str(simulator)


class Player:
    """Plays parts on at most `live` simulators, which are made when needed and kept."""

    def __init__(
        self,
        make: Callable[[], Simulator],
        spec: Spec,
        live: int,
        pulse: Callable[[], None] | None = None,
    ) -> None:
        self.make = make
        self.spec = spec
        self.live = live
        self.pulse = pulse  # called before every call of a simulator
        self.prepare: Callable[[np.ndarray], Sequence[Any]] | None = None
        self.idle: list[Simulator] = []
        self.early: dict[int, tuple[Simulator, np.ndarray]] = {}  # reset, by seed
        self.episodes: list[Episode] = []
        self.now: int | Episode | None = None  # the seed of a reset, or who is stepped

    @property
    def where(self) -> str:
        """What is going on, for a message."""
        if self.now is None:
            return "at its start"
        if isinstance(self.now, int):
            return f"in reset(seed={self.now})"
        h, seed = len(self.now.rewards), self.now.cue.part.seed
        return f"in step {h} of the episode with seed {seed}"

    def play(self, feed: Callable[[bool], Cue | None]) -> Iterator[tuple[int, Record]]:
        """Play what `feed` gives; yield number and record as episodes end.

        feed: (whether to wait) -> the next one, if any
        """
        self._leave()
        pulse, episodes, horizon = self.pulse, self.episodes, self.spec.horizon
        shape = (self.spec.observation_size,)
        company: Any = None
        while True:
            while len(episodes) < self.live:
                cue = feed(not episodes)
                if cue is None:
                    break
                if not episodes:
                    company = Company(self.live, cue.policy, cue.part.noise)
                row = len(episodes)
                company.join(row, cue.policy, cue.part.noise)
                company.observation[row] = self._begin(cue)
            if not episodes:
                return
            actions = company.act(len(episodes))
            given = actions if self.prepare is None else self.prepare(actions)
            seen, over = company.observation, []
            with guard.staying("The environment"):
                for i, episode in enumerate(episodes):
                    self.now = episode
                    if pulse is not None:
                        pulse()
                    x, reward, costs, ended = episode.simulator.step(given[i])
                    if getattr(x, "shape", None) != shape or x.dtype.kind not in KINDS:
                        x = guard.observation(x, *shape, name_of(episode.simulator))
                    seen[i] = x
                    episode.costs.append(tuple(costs))
                    episode.rewards.append(reward)
                    if ended or len(episode.rewards) == horizon:
                        over.append((i, ended))
            for i, ended in reversed(over):
                episode, mover = episodes[i], episodes.pop()
                record = self._record(episode, company.record(i), ended)
                self.idle.append(episode.simulator)
                if mover is not episode:
                    episodes[i] = mover
                    company.move(i, len(episodes))
                yield episode.cue.number, record

    def begin_early(self, seed: int) -> bool:
        """Reset a simulator for an episode that will be played; False for no room."""
        held = len(self.episodes) + len(self.early)
        if held >= self.live or seed in self.early:
            return False
        self.early[seed] = self._reset(seed)
        return True

    def close(self) -> None:
        """Close all simulators."""
        self._leave()
        self._forget_early()
        with guard.staying("The environment"):
            while self.idle:
                self.idle.pop().close()

    def _begin(self, cue: Cue) -> np.ndarray:
        """Start an episode; return its first observation [O]."""
        seed = cue.part.seed
        if seed not in self.early and not self.idle:
            self._forget_early()
        simulator, first = self.early.pop(seed, None) or self._reset(seed)
        self.episodes.append(Episode(cue, simulator))
        return first

    def _reset(self, seed: int) -> tuple[Simulator, np.ndarray]:
        """A simulator at the start of an episode, and what is seen there."""
        self.now = None
        self._pulse()
        if not self.idle:
            with guard.staying("The environment"):
                made = self.make()
            self.prepare = made.prepare if isinstance(made, Preparing) else None
            self.idle.append(made)
        simulator, self.now = self.idle[-1], seed
        self._pulse()
        with guard.staying("The environment"):
            first = simulator.reset(seed)
        size = self.spec.observation_size
        seen = guard.observation(first, size, name_of(simulator))
        return self.idle.pop(), seen

    def _forget_early(self) -> None:
        """Give up simulators that were reset for what does not come."""
        self.idle += [simulator for simulator, _ in self.early.values()]
        self.early.clear()

    def _pulse(self) -> None:
        if self.pulse is not None:
            self.pulse()

    def _record(
        self, episode: Episode, told: tuple[np.ndarray, np.ndarray], ended: int
    ) -> Record:
        rewards, costs = (
            np.array(episode.rewards, float),
            np.array(episode.costs, float),
        )
        wanted = len(episode.rewards), len(self.spec.constraints)
        if rewards.shape != wanted[:1] or costs.shape != wanted:
            raise guard.Misbehaved(
                f"The steps of an episode gave rewards of shape {rewards.shape[1:]} "
                f"and costs of shape {costs.shape[1:]} where {wanted[1]} were expected."
            )
        self._refuse_nonfinite(episode, told[0], rewards, costs)
        return Record(
            *told, rewards.astype(np.float32), costs.astype(np.float32), ended
        )

    def _refuse_nonfinite(
        self,
        episode: Episode,
        observation: np.ndarray,
        rewards: np.ndarray,
        costs: np.ndarray,
    ) -> None:
        """Refuse what float32 lacks, as of the first step that gave such a number."""
        parts = {"reward": rewards[:, None], "costs": costs}
        parts["observation"] = observation[1:]  # of the step before; the first is good
        bad = {
            int(np.argmin(good)): name
            for name, rows in parts.items()
            if not (good := (np.abs(rows) <= guard.MOST).all(axis=1)).all()
        }
        if bad:
            h, name = min(bad.items())
            self.now = episode
            del episode.rewards[h:]  # so `where` is the step that it was
            guard.numbers(parts[name][h], f"{name} of {name_of(episode.simulator)}")

    def _leave(self) -> None:
        """Give up the episodes that a fault or an interrupt has left under way."""
        self.idle += [episode.simulator for episode in self.episodes]
        self.episodes.clear()
