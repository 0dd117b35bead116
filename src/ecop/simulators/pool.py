"""Simulators in worker processes: whole episodes, faults mended once, no orphans.

A `Simulator` runs one episode at a time; a `SimulatorPool` runs B of them as a
`HostEnv`, in this process (workers=0) or in spawned ones, with the same results to the
bit. There is one message per worker and step.

A worker that raises, hangs or dies is replaced once per batch of episodes: the fresh
one replays the same seeds and actions. If that fails too, `SimulatorError` shows the
worker's traceback. A worker is the leader of its own process group; it ends, with all
it started, when its parent is gone, and a call that outlasts the time-out ends it too.

Workers are started by name, not through `__main__`: a script needs no guard, and
nothing here imports JAX. Messages are JSON and raw arrays, never pickles, so what makes
a simulator goes by name too (names.py). POSIX only; elsewhere use workers=0.
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
from collections.abc import Callable
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from ecop.errors import UserError
from ecop.simulators import guard
from ecop.simulators.wire import encode, pack, unpack
from ecop.simulators.worker import Batch, Simulator, Slots
from ecop.types import HostStep, Played, Spec

START_TIMEOUT = 120.0  # s, to import the simulator
GRACE = 5.0  # s, for a worker to end by itself after its time-out
SLICE = 0.2  # s, between two looks at whether a worker is alive
ENDS = ("terminated", "truncated")  # how an episode can end before the horizon

log = logging.getLogger("ecop.simulators.pool")


class SimulatorError(RuntimeError):
    """A simulator failed for good; the message holds its traceback."""


class Fault(Exception):
    """A worker did not answer; the message says what became of it."""


class Worker:
    """A process that holds some of the simulators."""

    def __init__(self, factory: Any, size: int, costs: int, timeout: float) -> None:
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
        self.waiting = 0.0
        self.send("start", START_TIMEOUT, factory=factory, size=size, costs=costs)
        self.started = False

    def send(
        self, method: str, timeout: float, *arrays: np.ndarray, **plain: Any
    ) -> None:
        """Ask for something; `receive` finds out if the worker is gone."""
        self.waiting = timeout
        head = {"method": method, "timeout": timeout, **plain}
        with contextlib.suppress(OSError):
            self.connection.send_bytes(pack(head, arrays))

    def ask(self, method: str, *arrays: np.ndarray, steps: int = 1) -> None:
        """Ask a worker that has started, or wait until it has."""
        if not self.started:
            self.receive()
            self.started = True
        self.send(method, self.timeout * steps, *arrays)

    def receive(self) -> list[np.ndarray]:
        """The answer to the last message; Fault if there is none."""
        deadline = time.monotonic() + self.waiting + GRACE
        try:
            while not self.connection.poll(SLICE):
                if self.process.poll() is not None:
                    raise EOFError
                if time.monotonic() > deadline:
                    raise Fault(f"{self} did not answer and was killed.")
            head, arrays = unpack(self.connection.recv_bytes())
        except (EOFError, OSError):
            raise Fault(self.obituary()) from None
        if head["error"]:
            raise Fault(f"{self} raised an error {head['error']}")
        return arrays

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
            return f"{self} hung for {self.waiting:g} s, here:\n{text}"
        if code is not None and code < 0:
            name = signal.Signals(-code).name
            return f"{self} was killed by {name}.\n{text}".rstrip()
        return f"{self} ended with exit code {code}.\n{text}".rstrip()

    def close(self) -> None:
        """Let the simulators close; then end the process in any case."""
        if self.end.alive and self.process.poll() is None:
            with contextlib.suppress(Fault):
                self.ask("close")
                self.receive()
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
    """B episodes at once as a `HostEnv`.

    Attributes:
        spec: the task
        ends: episodes that ended before the horizon, by kind
        faults: workers that were replaced
        recipe: name and options to build the same pool again, where that is possible
        capacity: episodes that can run at once (`per_process` limits them)
        film: how the task shows an episode; without one the pool is not `Filmed`

    """

    def __init__(
        self,
        make: Callable[[], Simulator],
        spec: Spec,
        *,
        workers: int = 0,
        timeout: float = 60.0,
        per_process: int | None = None,
        film: Callable[[Played], Any] | None = None,
        recipe: tuple[str, dict[str, Any]] | None = None,
    ) -> None:
        if workers < 0 or not 0 < timeout < threading.TIMEOUT_MAX:
            raise UserError("workers must be zero or more, and timeout positive.")
        self.spec = spec
        self.recipe = recipe
        self.film = film
        self.capacity = sys.maxsize
        if per_process is not None:
            self.capacity = per_process * max(workers, 1)
        self.timeout = timeout
        self.ends = dict.fromkeys(ENDS, 0)
        self.faults = 0
        self._count = workers
        self._factory = encode(make) if workers else None
        self._slots = Slots(make, spec.observation_size, len(spec.constraints))
        self._workers: list[Worker] = []
        self._seeds: list[np.ndarray] = []
        self._past: list[list[np.ndarray]] = []  # actions so far, by worker
        self._mended: set[int] = set()
        self._ended = np.zeros(0, bool)

    def reset(self, seeds: np.ndarray) -> np.ndarray:
        """Start one episode per seed [B]; return observations [B, O]."""
        if len(seeds) > self.capacity:
            raise UserError(
                f"{len(seeds)} episodes at once are too many for {self._count} "
                f"worker(s); run at most {self.capacity}, wave by wave."
            )
        self._ended = np.zeros(len(seeds), bool)
        self._mended = set()
        if not self._count:
            return self._locally(self._slots.reset, seeds)[0]
        self._seeds = np.array_split(seeds, min(self._count, len(seeds)))
        self._past = [[] for _ in self._seeds]
        while len(self._workers) < len(self._seeds):
            self._workers.append(self._worker())
        return self._ask("reset", self._seeds)[0]

    def step(self, actions: np.ndarray) -> HostStep:
        """Advance all episodes; those that ended stand still."""
        if not self._count:
            out = self._locally(self._slots.step, actions)
        else:
            cuts = np.cumsum([len(part) for part in self._seeds])[:-1]
            parts = np.split(actions, cuts)
            for past, part in zip(self._past, parts, strict=True):
                past.append(part)
            out = Batch(*self._ask("step", parts))
        return self._counted(out)

    def close(self) -> None:
        """End all workers and close all simulators; a later reset starts anew."""
        for worker in self._workers:
            worker.close()
        self._workers = []
        self._slots.close()

    def _worker(self) -> Worker:
        size, costs = self.spec.observation_size, len(self.spec.constraints)
        return Worker(self._factory, size, costs, self.timeout)

    def _counted(self, out: Batch) -> HostStep:
        ended = out.ended > 0
        if (out.ended == 2).any() and not self.ends["truncated"]:
            log.warning(
                "The environment truncated an episode before the horizon of %d steps; "
                "such episodes end there and are counted as failed.",
                self.spec.horizon,
            )
        for code, name in enumerate(ENDS, start=1):
            self.ends[name] += int(((out.ended == code) & ~self._ended).sum())
        self._ended = ended
        return HostStep(out.observation, out.reward, out.costs, ended)

    def _locally(self, method: Callable[..., Any], argument: np.ndarray) -> Any:
        try:
            return method(argument)
        except Exception as error:
            where = self._slots.where
            text = "".join(traceback.format_exception(error))
            raise SimulatorError(f"The simulator failed ({where})\n{text}") from error

    def _ask(self, method: str, parts: list[np.ndarray]) -> list[np.ndarray]:
        faults: dict[int, Fault] = {}
        for i, part in enumerate(parts):
            try:
                self._workers[i].ask(method, part)
            except Fault as fault:
                faults[i] = fault
        answers = []
        for i in range(len(parts)):
            try:
                if i in faults:
                    raise faults[i]
                answers.append(self._workers[i].receive())
            except Fault as fault:
                answers.append(self._mend(i, fault))
        return [np.concatenate(part) for part in zip(*answers, strict=True)]

    def _mend(self, i: int, fault: Fault) -> list[np.ndarray]:
        """Replay the episodes of a lost worker on a fresh one, once per batch."""
        self._workers[i].end()
        if i not in self._mended:
            self._mended.add(i)
            self.faults += 1
            steps = len(self._past[i])
            log.warning(
                "%s\nA fresh worker replays its %d episode(s), %d step(s) so far.",
                *(fault, len(self._seeds[i]), steps),
            )
            self._workers[i] = self._worker()
            try:
                self._workers[i].ask(
                    "replay", self._seeds[i], *self._past[i], steps=steps + 1
                )
                return self._workers[i].receive()
            except Fault as again:
                fault = again
        for worker in self._workers:
            worker.end()
        self._workers = []
        raise SimulatorError(
            f"The simulator failed twice in the same episodes. {fault}"
        )
