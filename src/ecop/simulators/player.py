"""Episodes on simulators of this process: a few at once, only the living are stepped.

A `Player` holds at most `live` simulators. Each step is one call for all actions, then
one call per simulator; where an episode ends, the next one starts in its place. An
episode has the same bits in any company (`acting`). No JAX here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from ecop.errors import UserError
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


Feed = Callable[[bool], Cue | None]  # (whether to wait) -> the next one, if any


class Episode:
    """An episode under way, with what it earned and paid so far."""

    def __init__(self, cue: Cue, simulator: Simulator) -> None:
        self.cue = cue
        self.simulator = simulator
        self.rewards: list[float] = []
        self.costs: list[tuple[float, ...]] = []


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
        self.episodes: list[Episode] = []
        self.now: Cue | Episode | None = None  # what is being reset or stepped

    @property
    def where(self) -> str:
        """What is going on, for a message."""
        if self.now is None:
            return "at its start"
        if isinstance(self.now, Cue):
            return f"in reset(seed={self.now.part.seed})"
        h, seed = len(self.now.rewards), self.now.cue.part.seed
        return f"in step {h} of the episode with seed {seed}"

    def play(self, feed: Feed) -> Iterator[tuple[int, Record]]:
        """Play what `feed` gives; yield number and record as episodes end."""
        self._leave()
        pulse, episodes, horizon = self.pulse, self.episodes, self.spec.horizon
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
            for i, episode in enumerate(episodes):
                self.now = episode
                if pulse is not None:
                    pulse()
                seen[i], reward, costs, ended = episode.simulator.step(given[i])
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

    def close(self) -> None:
        """Close all simulators."""
        self._leave()
        while self.idle:
            self.idle.pop().close()

    def _begin(self, cue: Cue) -> np.ndarray:
        """Start an episode; return its first observation [O]."""
        self.now = None
        self._pulse()
        if not self.idle:
            made = self.make()
            self.prepare = made.prepare if isinstance(made, Preparing) else None
            self.idle.append(made)
        self.episodes.append(Episode(cue, self.idle.pop()))
        self.now = cue
        self._pulse()
        observation = self.episodes[-1].simulator.reset(cue.part.seed)
        if np.shape(observation) != (self.spec.observation_size,):
            raise UserError(
                f"The observation has the shape {np.shape(observation)}, where the "
                f"task has {self.spec.observation_size} entries."
            )
        return observation

    def _pulse(self) -> None:
        if self.pulse is not None:
            self.pulse()

    def _record(
        self, episode: Episode, told: tuple[np.ndarray, np.ndarray], ended: int
    ) -> Record:
        costs, wanted = np.array(episode.costs, np.float32), self.spec.cost_names
        if costs.shape != (len(episode.costs), len(wanted)):
            raise UserError(
                f"The steps of an episode gave costs of shape {costs.shape[1:]} where "
                f"{len(wanted)} were expected."
            )
        return Record(*told, np.array(episode.rewards, np.float32), costs, ended)

    def _leave(self) -> None:
        """Give up the episodes that a fault or an interrupt has left under way."""
        self.idle += [episode.simulator for episode in self.episodes]
        self.episodes.clear()
