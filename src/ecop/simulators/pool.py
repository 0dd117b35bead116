"""Simulators that play whole episodes: here, in worker processes, or on a cluster.

A `Simulator` runs one episode at a time; a `SimulatorPool` plays any number of them as
a task, in this process (workers=0), in others of this machine (processes.py) or on Ray
(on_ray.py), with the same results to the bit. Episodes cross between processes, not
steps: a worker gets the policies once per batch, then seeds and noise, a few episodes
at a time, and sends back what was played. Whoever has nothing left to play resets its
simulators for the seeds that come next.

The episodes of a worker that raises, hangs or dies are played again, from their start,
by a fresh one or by another. If that befalls an episode twice, `SimulatorError` shows
the worker's traceback. That a machine was lost is not held against an episode.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
import traceback
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import numpy as np

from ecop.errors import UserError
from ecop.simulators.forms import Forms
from ecop.simulators.player import Cue, Player, Simulator
from ecop.simulators.processes import Fault, Processes
from ecop.simulators.wire import encode, pack, unpack
from ecop.simulators.worker import SHARE, START_TIMEOUT, flat
from ecop.types import HostPolicy, Part, Played, Record, Spec

LIVE = (
    8  # simulators at once in a process: more would save little time, but hold memory
)
SLICE = 0.2  # s, between two looks at whether a worker is alive
LOSSES = 5  # innocent faults per worker in a row, after which there is no hope
ENDS = ("terminated", "truncated")  # how an episode can end before the horizon

log = logging.getLogger("ecop.simulators.pool")


class SimulatorError(RuntimeError):
    """A simulator failed for good; the message holds its traceback."""


class Line(Protocol):
    """The way to a worker, here or on another machine."""

    slack: float  # s that its answers may take beyond what the simulators may

    def tell(self, message: bytes) -> None:
        """Send a message."""
        ...

    def give(self, policies: Any, messages: Sequence[bytes]) -> None:
        """Send parts; the policies are what `publish` returned."""
        ...

    def hear(self) -> list[bytes]:
        """Its messages, which `wait` has announced; Fault if it is lost."""
        ...

    def look(self) -> None:
        """Fault if it is lost."""
        ...

    def leave(self) -> None:
        """Ask it to close its simulators and end."""
        ...

    def end(self) -> Any:
        """End it, with all it started."""
        ...


class Crew(Protocol):
    """Where workers come from."""

    @property
    def size(self) -> int:
        """How many there should be now."""
        ...

    def hire(self, start: bytes) -> Any:
        """The line to one more, which will play when it has started."""
        ...

    def publish(self, policies: bytes) -> Any:
        """Make policies known to all."""
        ...

    def wait(self, lines: Sequence[Any], seconds: float) -> Sequence[Any]:
        """The lines with something to say, within some seconds."""
        ...


class Worker:
    """What is known of a worker.

    Attributes:
        placed: whether it was heard of at all; a cluster may have no room yet
        started: whether it has imported the simulator
        hand: numbers of the parts that it has and has not finished
        kept: those that it gets next, as it has reset simulators for them
        ahead: seeds that it was asked to do so for
        spent: seconds that it played or reset, since it started
        counted: how many of them are in the shares of time so far
    """

    def __init__(self, line: Line, timeout: float) -> None:
        self.line, self.timeout = line, timeout
        self.placed = self.started = False
        self.hand: list[int] = []
        self.kept: deque[int] = deque()
        self.ahead: list[int] = []
        self.spent = self.counted = 0.0
        self.heard = time.monotonic()

    def hear(self) -> Iterator[tuple[dict[str, Any], list[np.ndarray]]]:
        """What it has to say."""
        for message in self.line.hear():
            self.heard, self.placed = time.monotonic(), True
            head, arrays = unpack(message)
            if head["kind"] == "error":
                raise Fault(f"{self.line} raised an error {head['error']}")
            if head["kind"] == "lost":
                raise Fault(head["error"])
            self.started |= head["kind"] == "started"
            yield head, arrays

    def look(self) -> None:
        """See whether it is still there, if something is to be heard of it."""
        self.line.look()
        patience = self.timeout if self.started else START_TIMEOUT
        allowed = (1.0 + SHARE) * patience + self.line.slack
        silent = time.monotonic() - self.heard > allowed
        if silent and (self.hand or (self.placed and not self.started)):
            raise Fault(f"{self.line} did not answer and was killed.")

    def give(self, policies: Any, parts: dict[int, Part]) -> None:
        """Let it play parts, by their numbers."""
        if not self.hand:
            self.heard = time.monotonic()
        self.hand += parts
        self.line.give(policies, [_message(n, part) for n, part in parts.items()])


def _message(number: int, part: Part) -> bytes:
    plain = {"number": number, "seed": part.seed, "policy": part.policy}
    return pack({"kind": "part", **plain}, [part.noise])


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
        busy: share of the time since the last batch that workers were at work
        recipe: name and options to build the same pool again, where that is possible
        unknown: what must be known before training, a sentence; None: nothing more
        python: interpreter of the workers; None: this one
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
        unknown: str | None = None,
        python: str | None = None,
    ) -> None:
        longest = threading.TIMEOUT_MAX / (1.0 + SHARE)
        if workers < 0 or not 0 < timeout < longest:
            raise UserError("workers must be zero or more, and timeout positive.")
        if live < 1:
            raise UserError(f"live must be at least 1, not {live}.")
        workers = max(workers, 1) if python else workers
        self.spec = spec
        self.forms = forms
        self.name = name
        self.recipe = recipe
        self.film = film
        self.unknown = unknown
        self.python = python
        self.workers = workers
        self.live = live
        self.timeout = timeout
        self.ends: dict[str, int] = dict.fromkeys(ENDS, 0)
        self.faults = 0
        self.busy = 0.0
        self._player = Player(make, spec, live)
        self._crew: Crew | None = None
        self._start = b""
        self._workers: list[Worker] = []
        self._done: float | None = None  # when the last batch was
        if workers:
            self._employ(Processes(workers, python))

    def play(
        self, policies: list[HostPolicy], parts: list[Part], ahead: Sequence[int] = ()
    ) -> list[Record]:
        """Play all parts; the records come in their order.

        ahead: seeds that the next batch will probably begin with
        """
        begun = time.monotonic()
        if self._crew is None or not parts:
            records = self._here(policies, parts)
            worked, size = time.monotonic() - begun, 1
        else:
            records = self._elsewhere(policies, parts, ahead)
            worked, size = self._worked(), len(self._workers)
        now = time.monotonic()
        since = begun if self._done is None else self._done
        self.busy, self._done = min(worked / (size * max(now - since, 1e-9)), 1.0), now
        for record in records:
            if record.ended:
                self._count(ENDS[record.ended - 1])
        return records

    @contextlib.contextmanager
    def played_by(self, crew: Crew) -> Iterator[None]:
        """Let another crew play meanwhile."""
        before = self._crew
        self._employ(crew)
        try:
            yield
        finally:
            self.close()
            self._crew = before

    def close(self) -> None:
        """End all workers and close all simulators; a later `play` starts anew."""
        leaving = [worker for worker in self._workers if worker.started]
        for worker in leaving:
            worker.line.leave()
            worker.heard, worker.hand = time.monotonic(), [0]
        with contextlib.suppress(Fault):
            while leaving and self._crew is not None:
                ready = self._crew.wait([worker.line for worker in leaving], SLICE)
                for worker in list(leaving):
                    said: list[str] = []
                    try:
                        if worker.line in ready:
                            said = [head["kind"] for head, _ in worker.hear()]
                        worker.look()
                    except Fault:
                        said = ["closed"]
                    if "closed" in said:
                        leaving.remove(worker)
        self._end_all()
        self._player.close()

    def _employ(self, crew: Crew) -> None:
        self._end_all()
        plain = {"factory": encode(self._player.make), "spec": encode(self.spec)}
        plain |= {"live": self.live, "timeout": self.timeout}
        self._crew, self._start = crew, pack({"kind": "start", **plain}, ())

    def _end_all(self) -> None:
        for worker in self._workers:
            worker.line.end()
        self._workers, self._done = [], None

    def _count(self, end: str) -> None:
        if end == "truncated" and not self.ends[end]:
            log.warning(
                "The environment truncated an episode before the horizon of %d steps; "
                "such episodes end there and are counted as failed.",
                self.spec.horizon,
            )
        self.ends[end] += 1

    def _worked(self) -> float:
        """Seconds that the workers were at work since this was last asked."""
        worked = sum(worker.spent - worker.counted for worker in self._workers)
        for worker in self._workers:
            worker.counted = worker.spent
        return worked

    def _here(self, policies: list[HostPolicy], parts: list[Part]) -> list[Record]:
        cues = (Cue(n, part, policies[part.policy]) for n, part in enumerate(parts))
        try:
            records = dict(self._player.play(lambda _: next(cues, None)))
        except Exception as error:
            where = self._player.where
            text = "".join(traceback.format_exception(error))
            raise SimulatorError(f"The simulator failed ({where})\n{text}") from error
        return [records[n] for n in range(len(parts))]

    def _elsewhere(
        self, policies: list[HostPolicy], parts: list[Part], ahead: Sequence[int]
    ) -> list[Record]:
        assert self._crew is not None
        head, arrays = flat(policies)
        published = self._crew.publish(pack({"kind": "policies", **head}, arrays))
        try:
            records = Batch(self, self._crew, published, parts, ahead).play()
        except BaseException:  # what is under way belongs to no batch
            self._end_all()
            raise
        return [records[n] for n in range(len(parts))]


class Batch:
    """Parts on their way to workers, and records on their way back."""

    def __init__(
        self,
        pool: SimulatorPool,
        crew: Crew,
        policies: Any,
        parts: list[Part],
        ahead: Sequence[int],
    ) -> None:
        self.pool, self.crew, self.policies = pool, crew, policies
        self.parts, self.ahead = parts, deque(ahead)
        self.workers = pool._workers
        self.records: dict[int, Record] = {}
        self.guilty: Counter[int] = Counter()  # faults by part, or by ~place
        self.losses = 0
        numbers = {part.seed: n for n, part in enumerate(parts)}
        for worker in self.workers:
            found = [numbers.pop(seed, None) for seed in worker.ahead]
            worker.kept, worker.ahead = deque(n for n in found if n is not None), []
        kept = {n for worker in self.workers for n in worker.kept}
        self.todo = deque(n for n in range(len(parts)) if n not in kept)

    def play(self) -> dict[int, Record]:
        """All records, by number."""
        due = 0.0
        while len(self.records) < len(self.parts):
            now = time.monotonic()
            if now >= due:
                due = now + SLICE
                self.muster()
                self.attend(Worker.look, self.workers)
                self.hand_out(self.workers)
            lines = {worker.line: worker for worker in self.workers}
            ready = self.crew.wait(list(lines), SLICE)
            self.hand_out(self.attend(self.listen, [lines[line] for line in ready]))
        self.hand_out(self.workers)
        return self.records

    def attend(
        self, how: Callable[[Worker], None], workers: list[Worker]
    ) -> list[Worker]:
        """Look at workers or listen to them; replace the lost, return the others."""
        well = []
        for worker in list(workers):
            try:
                how(worker)
                well.append(worker)
            except Fault as fault:
                self.mend(self.workers.index(worker), fault)
        return well

    def muster(self) -> None:
        """As many workers as there should be; those without a place may go."""
        wanted = min(self.crew.size, len(self.parts))
        while len(self.workers) < wanted:
            self.workers.append(self.hire())
        waiting = [worker for worker in self.workers if not worker.placed]
        for worker in waiting[: max(len(self.workers) - wanted, 0)]:
            worker.line.end()
            self.workers.remove(worker)

    def hire(self) -> Worker:
        """A fresh worker."""
        return Worker(self.crew.hire(self.pool._start), self.pool.timeout)

    def hand_out(self, workers: list[Worker]) -> None:
        """Give parts to whoever can take some, then seeds to whoever has nothing left.

        One in four more than a worker can play at once, at least one, so that it never
        waits for us; towards the end, where that would keep them from others, none.
        """
        live, ready = self.pool.live, sum(worker.started for worker in self.workers)
        share = -(-len(self.parts) // max(ready, 1))
        for worker in workers:
            if not worker.started:
                continue
            spare = max(live // 4, 1) if len(self.todo) > ready else 0
            room = min(live + spare, share) - len(worker.hand)
            given: dict[int, Part] = {}
            while len(given) < room and (worker.kept or self.todo):
                number = (worker.kept or self.todo).popleft()
                given[number] = self.parts[number]
            if given:
                worker.give(self.policies, given)
            if self.ahead and not (worker.hand or worker.ahead or self.todo):
                most = min(live, -(-len(self.ahead) // ready))
                worker.ahead = [self.ahead.popleft() for _ in range(most)]
                worker.line.tell(pack({"kind": "ahead", "seeds": worker.ahead}, ()))

    def listen(self, worker: Worker) -> None:
        """Take in what a worker says."""
        for said, arrays in worker.hear():
            if said["kind"] == "record":
                self.records[said["number"]] = Record(*arrays, ended=said["ended"])
                worker.hand.remove(said["number"])
                worker.spent = said["spent"]
                self.losses = 0

    def mend(self, place: int, fault: Fault) -> None:
        """Put a fresh worker in the place of a lost one; its parts are played again."""
        lost = self.workers[place]
        lost.line.end()
        if fault.innocent:
            self.losses += 1
        else:
            begun = lost.hand[: self.pool.live]  # the others were in the queue
            self.guilty.update(begun or [~place])
        if max(self.guilty.values(), default=0) > 1:
            raise SimulatorError(
                f"The simulator failed twice in the same episodes. {fault}"
            )
        if self.losses > LOSSES * len(self.workers):
            raise SimulatorError(f"Workers were lost {self.losses} times. {fault}")
        self.pool.faults += 1
        again = [*lost.hand, *lost.kept]
        self.todo.extendleft(reversed(again))
        log.warning(
            "%s\nA fresh worker takes its place; %d episode(s) are played again.",
            *(fault, len(again)),
        )
        self.workers[place] = self.hire()
