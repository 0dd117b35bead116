"""Simulators in worker processes: whole episodes, faults mended once, no orphans.

A `Simulator` runs one episode at a time; a `SimulatorPool` plays any number of them as
a task, in this process (workers=0) or in spawned ones, with the same results to the
bit. Episodes cross between processes, not steps: a worker gets the policies once per
batch, then seeds and noise, a few episodes at a time, and sends back what was played.

A worker that raises, hangs or dies is replaced once per batch: the fresh one plays the
episodes that it had not finished again, from their start. If that fails too,
`SimulatorError` shows the worker's traceback. A worker is the leader of its own process
group; it ends, with all it started, when its parent is gone, and a call of a simulator
that outlasts the time-out ends it too.

Workers are started by name, not through `__main__`: a script needs no guard, and
nothing here imports JAX. Messages are JSON and raw arrays, never pickles, so what makes
a simulator goes by name too (wire.py). POSIX only; elsewhere use workers=0.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import subprocess
import sys
import threading
import time
import traceback
import uuid
import weakref
from collections import deque
from collections.abc import Callable
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from typing import Any

import numpy as np

from ecop.errors import UserError
from ecop.simulators import guard
from ecop.simulators.forms import Forms
from ecop.simulators.player import Cue, Player, Simulator
from ecop.simulators.wire import encode, pack, unpack
from ecop.simulators.worker import SHARE, START_TIMEOUT, flat
from ecop.types import HostPolicy, Part, Played, Record, Spec

LIVE = (
    8  # simulators at once in a process: more would save little time, but hold memory
)
GRACE = 5.0  # s, for a worker to end by itself after its time-out
SLICE = 0.2  # s, between two looks at whether a worker is alive
ENDS = ("terminated", "truncated")  # how an episode can end before the horizon

log = logging.getLogger("ecop.simulators.pool")


class SimulatorError(RuntimeError):
    """A simulator failed for good; the message holds its traceback."""


class Fault(Exception):
    """A worker did not answer; the message says what became of it."""


class Worker:
    """A process that plays.

    Attributes:
        started: whether it has imported the simulator
        informed: whether it has the policies of this batch
        hand: numbers of the parts that it has and has not finished
        again: those that its predecessor had
    """

    def __init__(self, timeout: float, **start: Any) -> None:
        self.timeout = timeout
        mark = uuid.uuid4().hex
        ours, theirs = Pipe()
        trace, trace_end = os.pipe()
        os.set_blocking(trace, False)
        code = (
            f"import sys; sys.path[:] = {sys.path!r}; "
            "from ecop.simulators.worker import serve; "
            f"serve({theirs.fileno()}, {trace_end})"
        )
        self.process = subprocess.Popen(
            [sys.executable, "-c", code],
            stdin=subprocess.DEVNULL,
            pass_fds=(theirs.fileno(), trace_end),
            start_new_session=True,
            env={**os.environ, guard.MARK: mark},
        )
        theirs.close()
        os.close(trace_end)
        self.connection = ours
        self.end = weakref.finalize(self, _end, self.process, ours, trace, mark)
        self.trace = trace
        self.started = self.informed = False
        self.hand: list[int] = []
        self.again: deque[int] = deque()
        self.heard = time.monotonic()
        self.send("start", timeout=timeout, **start)

    @property
    def patience(self) -> float:
        """Seconds that a call of a simulator may take, or the start."""
        return self.timeout if self.started else START_TIMEOUT

    def send(self, kind: str, *arrays: np.ndarray, **plain: Any) -> None:
        """Tell it something; `hear` finds out if it is gone."""
        with contextlib.suppress(OSError):
            self.connection.send_bytes(pack({"kind": kind, **plain}, arrays))

    def give(self, number: int, part: Part) -> None:
        """Let it play a part."""
        if not self.hand:
            self.heard = time.monotonic()
        self.hand.append(number)
        plain = {"number": number, "seed": part.seed, "policy": part.policy}
        self.send("part", part.noise, **plain)

    def hear(self) -> tuple[dict[str, Any], list[np.ndarray]]:
        """What it has to say, which `wait` has announced."""
        try:
            head, arrays = unpack(self.connection.recv_bytes())
        except (EOFError, OSError):
            raise Fault(self.obituary()) from None
        self.heard = time.monotonic()
        if head["kind"] == "error":
            raise Fault(f"{self} raised an error {head['error']}")
        if head["kind"] == "started":
            self.started = True
        return head, arrays

    def look(self) -> None:
        """See whether it is still there, if it says nothing."""
        if self.process.poll() is not None and not self.connection.poll():
            raise Fault(self.obituary())
        silence = time.monotonic() - self.heard
        if silence > (1.0 + SHARE) * self.patience + GRACE:
            raise Fault(f"{self} did not answer and was killed.")

    def obituary(self) -> str:
        """What is known of a worker's death."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(GRACE)
        last = b""
        with contextlib.suppress(OSError):
            last = os.read(self.trace, 2**16)
        text = last.decode(errors="replace")
        code = self.process.poll()
        if text.startswith("Timeout"):
            return f"{self} hung for {self.patience:g} s, here:\n{text}"
        if code is not None and code < 0:
            name = signal.Signals(-code).name
            return f"{self} was killed by {name}.\n{text}".rstrip()
        return f"{self} ended with exit code {code}.\n{text}".rstrip()

    def close(self) -> None:
        """Let the simulators close; then end the process in any case."""
        if self.end.alive and self.process.poll() is None:
            self.send("close")
            self.heard = time.monotonic()
            with contextlib.suppress(Fault):
                while True:
                    if not self.connection.poll(SLICE):
                        self.look()
                    elif self.hear()[0]["kind"] == "closed":
                        break
        self.end()

    def __str__(self) -> str:
        return f"Worker process {self.process.pid}"


def _end(
    process: subprocess.Popen[bytes], connection: Connection, trace: int, mark: str
) -> None:
    connection.close()
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    os.close(trace)
    process.wait()
    left = guard.end_marked(mark)
    if left:
        log.warning("Processes that the environment started are left: %s.", left)


class SimulatorPool:
    """Simulators as a task: `play` gives whole episodes.

    Attributes:
        spec: the task
        workers: processes to play in; 0: this one
        live: simulators at once in each process
        ends: episodes that ended before the horizon, by kind
        faults: workers that were replaced
        forms: what its observations and actions are outside of the library
        name: what reports call the task
        recipe: name and options to build the same pool again, where that is possible
        film: how the task shows an episode; without one the pool is not `Filmed`

    """

    def __init__(
        self,
        make: Callable[[], Simulator],
        spec: Spec,
        *,
        workers: int = 0,
        timeout: float = 60.0,
        live: int = LIVE,
        film: Callable[[Played], Any] | None = None,
        forms: Forms | None = None,
        name: str = "SimulatorPool",
        recipe: tuple[str, dict[str, Any]] | None = None,
    ) -> None:
        longest = threading.TIMEOUT_MAX / (1.0 + SHARE)
        if workers < 0 or not 0 < timeout < longest:
            raise UserError("workers must be zero or more, and timeout positive.")
        if live < 1:
            raise UserError(f"live must be at least 1, not {live}.")
        self.spec = spec
        self.forms = forms
        self.name = name
        self.recipe = recipe
        self.film = film
        self.workers = workers
        self.live = live
        self.timeout = timeout
        self.ends: dict[str, int] = dict.fromkeys(ENDS, 0)
        self.faults = 0
        self._factory = encode(make) if workers else None
        self._player = Player(make, spec, live)
        self._workers: list[Worker] = []

    def play(self, policies: list[HostPolicy], parts: list[Part]) -> list[Record]:
        """Play all parts; the records come in their order."""
        play = self._elsewhere if self.workers and parts else self._here
        records = play(policies, parts)
        for record in records:
            if record.ended:
                self._count(ENDS[record.ended - 1])
        return records

    def close(self) -> None:
        """End all workers and close all simulators; a later `play` starts anew."""
        for worker in self._workers:
            worker.close()
        self._workers = []
        self._player.close()

    def _count(self, end: str) -> None:
        if end == "truncated" and not self.ends[end]:
            log.warning(
                "The environment truncated an episode before the horizon of %d steps; "
                "such episodes end there and are counted as failed.",
                self.spec.horizon,
            )
        self.ends[end] += 1

    def _here(self, policies: list[HostPolicy], parts: list[Part]) -> list[Record]:
        cues = (Cue(n, part, policies[part.policy]) for n, part in enumerate(parts))
        try:
            records = dict(self._player.play(lambda _: next(cues, None)))
        except Exception as error:
            where = self._player.where
            text = "".join(traceback.format_exception(error))
            raise SimulatorError(f"The simulator failed ({where})\n{text}") from error
        return [records[n] for n in range(len(parts))]

    def _elsewhere(self, policies: list[HostPolicy], parts: list[Part]) -> list[Record]:
        count = min(self.workers, len(parts))
        while len(self._workers) < count:
            self._workers.append(self._worker())
        try:
            return self._direct(count, policies, parts)
        except BaseException:  # what is under way belongs to no batch
            for worker in self._workers:
                worker.end()
            self._workers = []
            raise

    def _direct(
        self, count: int, policies: list[HostPolicy], parts: list[Part]
    ) -> list[Record]:
        """Hand out the parts, collect the records, replace whom a fault befell."""
        head, arrays = flat(policies)
        todo = deque(range(len(parts)))
        records: dict[int, Record] = {}
        # One in four more than it can play at once, so that it never waits for us.
        window = min(self.live + self.live // 4, -(-len(parts) // count))
        mended: set[int] = set()
        for worker in self._workers[:count]:
            worker.informed = False
        while len(records) < len(parts):
            busy = []
            for worker in self._workers[:count]:
                source = worker.again or todo
                while worker.started and source and len(worker.hand) < window:
                    if not worker.informed:
                        worker.send("policies", *arrays, **head)
                        worker.informed = True
                    number = source.popleft()
                    worker.give(number, parts[number])
                    source = worker.again or todo
                if worker.hand or source:
                    busy.append(worker)
            ready = wait([worker.connection for worker in busy], SLICE)
            for worker in busy:
                try:
                    if worker.connection not in ready:
                        worker.look()
                        continue
                    said, data = worker.hear()
                    if said["kind"] == "record":
                        records[said["number"]] = Record(*data, ended=said["ended"])
                        worker.hand.remove(said["number"])
                except Fault as fault:
                    self._mend(self._workers.index(worker), fault, mended)
        return [records[n] for n in range(len(parts))]

    def _worker(self) -> Worker:
        plain = {"factory": self._factory, "spec": encode(self.spec)}
        return Worker(self.timeout, live=self.live, **plain)

    def _mend(self, i: int, fault: Fault, mended: set[int]) -> None:
        """Put a fresh worker in the place of a lost one, once per batch."""
        lost = self._workers[i]
        lost.end()
        if i in mended:
            raise SimulatorError(
                f"The simulator failed twice in the same episodes. {fault}"
            )
        mended.add(i)
        self.faults += 1
        fresh = self._worker()
        fresh.again.extend([*lost.hand, *lost.again])
        log.warning(
            "%s\nA fresh worker plays its %d episode(s) again.",
            *(fault, len(fresh.again)),
        )
        self._workers[i] = fresh
