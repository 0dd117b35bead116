"""What runs in a worker process: one episode at a time, answers until its parent ends.

A worker is the leader of its own process group; it ends, with all it started, when its
parent is gone, and a call that outlasts the time-out ends it too.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import select
import signal
import threading
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import NamedTuple, Protocol

import numpy as np

from ecop.simulators import guard
from ecop.simulators.wire import decode, pack, unpack


class Result(NamedTuple):
    """What one step of a simulator returns."""

    observation: np.ndarray  # [O]
    reward: float
    costs: np.ndarray  # [C]
    ended: int = 0  # 0: goes on, 1: terminated, 2: truncated


class Simulator(Protocol):
    """One episode at a time; an episode is a function of its seed and actions."""

    def reset(self, seed: int) -> np.ndarray:
        """Start an episode; return its first observation [O]."""
        ...

    def step(self, action: np.ndarray) -> Result:
        """Advance one step; never called after an end or the horizon."""
        ...

    def close(self) -> None:
        """Release what the simulator holds."""
        ...


class Batch(NamedTuple):
    """One step of several episodes, as it travels between processes."""

    observation: np.ndarray  # [B, O]
    reward: np.ndarray  # [B]
    costs: np.ndarray  # [B, C]
    ended: np.ndarray  # [B] int8


class Slots:
    """Several simulators, stepped one after the other; ended ones stand still."""

    def __init__(self, make: Callable[[], Simulator], size: int, costs: int) -> None:
        self.make = make
        self.size = size
        self.costs = costs
        self.simulators: list[Simulator] = []
        self.seeds: list[int] = []
        self.h = 0
        self.where = "at its start"

    def reset(self, seeds: np.ndarray) -> tuple[np.ndarray]:
        """Start one episode per seed [B]; return observations [B, O], alone."""
        self.h, self.seeds = 0, seeds.tolist()
        rows = []
        for i, seed in enumerate(self.seeds):
            self.where = f"in reset(seed={seed})"
            with guard.staying("The environment"):
                if i == len(self.simulators):
                    self.simulators.append(self.make())
                first = self.simulators[i].reset(seed)
            rows.append(guard.observation(first, self.size, self.name(i)))
        self.observation = np.stack(rows)
        self.ended = np.zeros(len(rows), np.int8)
        return (self.observation.copy(),)

    def step(self, actions: np.ndarray) -> Batch:
        """Advance all episodes that have not ended."""
        count = len(self.seeds)
        reward, costs = np.zeros(count), np.zeros((count, self.costs))
        for i in np.flatnonzero(self.ended == 0).tolist():
            self.where = f"in step {self.h} of the episode with seed {self.seeds[i]}"
            with guard.staying("The environment"):
                out = self.simulators[i].step(actions[i])
            name = self.name(i)
            self.observation[i] = guard.observation(out.observation, self.size, name)
            reward[i] = guard.number(out.reward, f"reward of {name}")
            if np.shape(out.costs) != (self.costs,):
                raise guard.Misbehaved(
                    f"{name} gave costs of shape {np.shape(out.costs)}, not "
                    f"({self.costs},)."
                )
            costs[i] = guard.numbers(np.asarray(out.costs), f"costs of {name}")
            self.ended[i] = out.ended
        self.h += 1
        return Batch(self.observation.copy(), reward, costs, self.ended.copy())

    def name(self, i: int) -> str:
        """The environment, for a message."""
        kind = type(self.simulators[i])
        plain = kind.__str__ is object.__str__
        return kind.__name__ if plain else str(self.simulators[i])

    def replay(self, seeds: np.ndarray, *actions: np.ndarray) -> tuple[np.ndarray, ...]:
        """Start again and repeat `actions`; return what the last call returns."""
        out: tuple[np.ndarray, ...] = self.reset(seeds)
        for action in actions:
            out = self.step(action)
        return out

    def close(self) -> tuple[()]:
        """Close all simulators."""
        with guard.staying("The environment"):
            for simulator in self.simulators:
                simulator.close()
        self.simulators = []
        return ()


def serve(connection_handle: int, trace_handle: int) -> None:
    """Answer the parent's messages until it closes the connection or is gone."""
    for handle in (connection_handle, trace_handle):
        os.set_inheritable(handle, False)
    threading.Thread(target=_end_with_parent, args=(trace_handle,), daemon=True).start()
    faulthandler.enable(trace_handle)
    connection = Connection(connection_handle)
    slots: Slots | None = None
    with (
        contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError),
        guard.alone(),
    ):
        while True:
            head, arrays = unpack(connection.recv_bytes())
            error, answer = "", ()
            try:
                faulthandler.dump_traceback_later(
                    head["timeout"], exit=True, file=trace_handle
                )
                if slots is None:
                    slots = Slots(decode(head["factory"]), head["size"], head["costs"])
                else:
                    answer = getattr(slots, head["method"])(*arrays)
            except Exception:
                where = "" if slots is None else f"({slots.where})\n"
                error = where + traceback.format_exc()
            finally:
                faulthandler.cancel_dump_traceback_later()
            connection.send_bytes(pack({"error": error}, answer))
            if head["method"] == "close":
                return


def _end_with_parent(handle: int) -> None:
    """Kill this process group when nobody holds the other end of the pipe."""
    watch = select.poll()
    watch.register(handle, 0)
    watch.poll()
    guard.end_marked(os.environ.get(guard.MARK, ""))
    os.killpg(0, signal.SIGKILL)
