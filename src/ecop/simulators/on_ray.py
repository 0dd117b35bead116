"""Workers on a Ray cluster: the same processes, each behind an actor.

An actor starts the process that a local pool starts and passes messages on, so an
episode has the same bits on any node, a simulator never shares a process with Ray, and
what it started ends with it. Policies go through the object store, once to each node;
all else are the messages of wire.py as bytes. An actor that is lost, with its node or
alone, is replaced; one that finds no free CPU waits for a node to join.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from queue import Empty, SimpleQueue
from typing import Any

import numpy as np

from ecop.errors import UserError
from ecop.simulators.cores import cores
from ecop.simulators.processes import GRACE, Fault, Process
from ecop.simulators.wire import pack

LOOK = 1.0  # s, between two looks at how many CPUs the cluster has
ANSWER = 10.0  # s, for a cluster to take a connection
PATIENCE = 60.0  # s without any actor, after which that is said
FAILED = "creation task"  # in what Ray says if a node cannot start an actor
CONCURRENT = 8  # calls of an actor at once; one of them always listens

log = logging.getLogger("ecop.simulators.pool")


def need_ray() -> Any:
    """Ray, or one sentence that says how to get it."""
    try:
        return importlib.import_module("ray")
    except ImportError:
        raise UserError(
            "Ray is not installed; pip install 'ecop[ray]', or leave --on ray away."
        ) from None


@contextlib.contextmanager
def connected(address: str | None, cpus: int | None) -> Iterator[Any]:
    """Ray, connected to a cluster; a connection that is there already is used.

    address: of a cluster; None: RAY_ADDRESS, else one is started on this machine
    cpus: of a cluster that is started here; None: the cores that may be used
    """
    ray = need_ray()
    if ray.is_initialized():
        yield ray
        return
    address = address or os.environ.get("RAY_ADDRESS") or "local"
    options = {"num_cpus": cpus or cores()} if address == "local" else {}
    refuse_silent(address)
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    before = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(
            address=address,
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.ERROR,
            **options,
        )
    except (OSError, RuntimeError, ValueError) as error:
        raise UserError(
            f"There is no Ray cluster to use at '{address}': {first_line(error)}"
        ) from None
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, before)  # Ray's handler would end us unsaved
    try:
        yield ray
    finally:
        ray.shutdown()


def refuse_silent(address: str) -> None:
    """Refuse host:port if nobody answers there: Ray itself would try for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not (host and port.isdecimal()):
        return
    try:
        socket.create_connection((host, int(port)), ANSWER).close()
    except (OSError, OverflowError) as error:
        raise UserError(
            f"There is no Ray cluster to use at '{address}': {first_line(error)}"
        ) from None


def first_line(error: BaseException) -> str:
    """What an error says, without the rest of its story."""
    return (str(error).strip() or type(error).__name__).split("\n")[0]


class Relay:
    """What runs in an actor: a worker process, and the messages to it and from it."""

    def __init__(self, start: bytes, folders: Sequence[str]) -> None:
        # After its own, so that a node's packages come first; a shared disk has them.
        sys.path += [x for x in folders if x not in sys.path and os.path.isdir(x)]
        self.process = Process(start)
        self.version = 0  # of the policies that it has
        self.informed = threading.Condition()
        self.outbox: SimpleQueue[bytes] = SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()

    def exchange(
        self,
        version: int,
        policies: np.ndarray | None,
        messages: Sequence[bytes],
        listen: bool,
    ) -> list[bytes]:
        """Pass messages on, after the policies that they are of; listen if asked to.

        Ray may start a call before an earlier one whose policies are on their way.
        """
        with self.informed:
            if policies is not None:
                self.process.tell(policies)
                self.version = version
                self.informed.notify_all()
            self.informed.wait_for(lambda: self.version >= version)
            for message in messages:
                self.process.tell(message)
        return self._hear() if listen else []

    def end(self) -> None:
        """End the process, with all it started."""
        self.process.end()

    def _hear(self) -> list[bytes]:
        """Wait for messages of the process; all that are there."""
        messages = [self.outbox.get()]
        with contextlib.suppress(Empty):
            while True:
                messages.append(self.outbox.get_nowait())
        return messages

    def _read(self) -> None:
        try:
            while True:
                for message in self.process.hear():
                    self.outbox.put(message)
        except Fault as fault:
            self.outbox.put(pack({"kind": "lost", "error": str(fault)}, ()))


class Remote:
    """The line to an actor."""

    slack = 4.0 * GRACE  # the network and a busy node

    def __init__(self, crew: Actors, relay: Any) -> None:
        self.crew, self.relay = crew, relay
        self.version = 0  # of the policies that it was given
        self.listening = False
        self.heard: Any = None
        self.listen()

    def tell(self, message: bytes) -> None:
        """Send a message."""
        self._call(0, None, [message])

    def give(self, policies: tuple[int, Any], messages: Sequence[bytes]) -> None:
        """Send parts; the policies are fetched by the actor's node, once."""
        version, reference = policies
        known, self.version = self.version == version, version
        self._call(version, None if known else reference, list(messages))

    def hear(self) -> list[bytes]:
        """What has arrived."""
        self.listening = False
        self.crew.deaf.add(self)
        try:
            return self.heard.result()
        except self.crew.ray.exceptions.RayError as error:
            if FAILED in str(error):
                raise Fault(f"An actor could not start: {error}") from None
            text = f"An actor was lost: {first_line(error)}"
            raise Fault(text, innocent=True) from None

    def listen(self) -> None:
        """Let the next messages come, if nothing that was sent does so already."""
        if not self.listening:
            self._call(0, None, [])

    def look(self) -> None:
        """Nothing to see: Ray says so by itself when an actor is gone."""

    def leave(self) -> None:
        """Ask it to close its simulators and end."""
        self.tell(pack({"kind": "close"}, ()))

    def end(self) -> None:
        """End the process, then the actor."""
        self.crew.dismiss(self)

    def _call(self, version: int, policies: Any, messages: list[bytes]) -> None:
        listen, self.listening = not self.listening, True
        answer = self.relay.exchange.remote(version, policies, messages, listen)
        if listen:
            answer.future().add_done_callback(self._arrived)

    def _arrived(self, future: Any) -> None:
        """Called by a thread of Ray's."""
        self.heard = future
        self.crew.heard.put(self)

    def __str__(self) -> str:
        return "The process of an actor"


class Actors:
    """A crew of actors, one per CPU of the cluster, or as many as asked for."""

    def __init__(self, ray: Any, count: int | None = None) -> None:
        self.ray, self.count = ray, count
        self.heard: SimpleQueue[Remote] = SimpleQueue()
        self.deaf: set[Remote] = set()  # that were heard and may not be listened to
        self._relay = ray.remote(Relay).options(
            num_cpus=1, max_restarts=0, max_concurrency=CONCURRENT
        )
        self._version = 0
        self._seen = (0.0, 1)  # when the cluster was looked at, and its CPUs
        self._leaving: list[tuple[float, Any, Any]] = []
        self._last = time.monotonic()  # when somebody was heard, or it was said

    @property
    def size(self) -> int:
        """Actors that there should be; nodes may have joined or left."""
        if self.count is not None:
            return self.count
        if time.monotonic() - self._seen[0] > LOOK:
            found = int(self.ray.cluster_resources().get("CPU", 0))
            self._seen = time.monotonic(), max(found, 1)
        return self._seen[1]

    def hire(self, start: bytes) -> Remote:
        """Start an actor; it waits if no node has a free CPU."""
        return Remote(self, self._relay.remote(start, [*sys.path, os.getcwd()]))

    def publish(self, policies: bytes) -> tuple[int, Any]:
        """Put policies into the object store, from where nodes fetch them."""
        self._version += 1
        return self._version, self.ray.put(np.frombuffer(policies, np.uint8))

    def wait(self, lines: Sequence[Remote], seconds: float) -> Sequence[Remote]:
        """Those from which something has arrived, within some seconds."""
        self._bury()
        for line in self.deaf & set(lines):
            line.listen()
        self.deaf.clear()
        found: dict[Remote, None] = {}
        with contextlib.suppress(Empty):
            found[self.heard.get(timeout=seconds)] = None
            while True:
                found[self.heard.get_nowait()] = None
        known = set(lines)
        ready = [line for line in found if line in known]
        now = time.monotonic()
        if ready:
            self._last = now
        elif now - self._last > PATIENCE:
            self._last = now
            log.warning(
                "Nothing was heard from the cluster for %d s: are there free CPUs?",
                PATIENCE,
            )
        return ready

    def dismiss(self, line: Remote) -> None:
        """End the process of an actor, then the actor, which may not answer."""
        ended = line.relay.end.remote().future()
        self._leaving.append((time.monotonic() + GRACE, ended, line.relay))

    def close(self) -> None:
        """End the actors that were dismissed."""
        while self._leaving:
            self._bury()
            time.sleep(0.01)

    def _bury(self) -> None:
        """End dismissed actors whose processes have ended, or did not in time."""
        now = time.monotonic()
        for leaving in list(self._leaving):
            due, ended, relay = leaving
            if ended.done() or now > due:
                self._leaving.remove(leaving)
                self.ray.kill(relay)
