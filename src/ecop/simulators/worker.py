"""What runs in a worker process: it plays the parts it is sent until its parent ends.

A worker is the leader of its own process group; it ends, with all it started, when its
parent is gone, and a call of a simulator that outlasts the time-out ends it too. It may
be of another Python than the parent (3.8 or newer) with NumPy alone.
"""

from __future__ import annotations

import contextlib
import faulthandler
import itertools
import os
import select
import signal
import threading
import time
import traceback
from multiprocessing.connection import Connection
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

import numpy as np

from ecop.errors import UserError
from ecop.simulators import guard
from ecop.simulators.player import Cue, Player
from ecop.simulators.wire import decode, encode, pack, unpack
from ecop.types import HostPolicy, Part

if TYPE_CHECKING:
    from collections.abc import Callable

    Message = tuple[dict[str, Any], list[np.ndarray]]

START_TIMEOUT = 120.0  # s, to import the simulator
SHARE = 0.1  # of the time-out: how often it is set anew, and how late it may be

GONE: Message = ({"kind": "close"}, [])  # what a parent says by its end


def flat(policies: list[HostPolicy]) -> tuple[dict[str, Any], list[np.ndarray]]:
    """Policies as they travel."""
    arrays = [
        (p.mean, p.scale, p.gate, *p.weights, *p.biases, *p.filters, *p.recurrent)
        for p in policies
    ]
    first = policies[0]
    head = {
        "heads": [p.head for p in policies],
        "depth": len(first.weights),
        "image": first.image,
        "choices": first.choices,
        "filters": len(first.filters),
        "size": len(arrays[0]),
    }
    return head, [array for part in arrays for array in part]


def unflat(head: dict[str, Any], arrays: list[np.ndarray]) -> list[HostPolicy]:
    """Undo `flat`."""
    depth, size, policies = head["depth"], head["size"], []
    image, choices = tuple(head["image"]), tuple(head["choices"])
    for i, kind in enumerate(head["heads"]):
        mean, scale, gate, *rest = arrays[i * size :][:size]
        cuts = 0, depth, 2 * depth, 2 * depth + head["filters"], len(rest)
        parts = (tuple(rest[a:b]) for a, b in itertools.pairwise(cuts))
        weights, biases, filters, recurrent = parts
        more = image, filters, choices, recurrent
        policies.append(HostPolicy(mean, scale, weights, biases, gate, kind, *more))
    return policies


class Watch:
    """Ends this process, with its traceback, if the next call of it does not come.

    A call costs nothing but a look at the clock; ten times in a time-out it also sets
    the alarm anew and tells the parent that all is well.
    """

    def __init__(self, handle: int, timeout: float, tell: Callable[[], None]) -> None:
        self.handle, self.timeout, self.tell = handle, timeout, tell
        self.due = 0.0

    def __call__(self) -> None:
        """Begin another call of a simulator."""
        now = time.monotonic()
        if now >= self.due:
            self.due = now + SHARE * self.timeout
            seconds = (1.0 + SHARE) * self.timeout
            faulthandler.dump_traceback_later(seconds, exit=True, file=self.handle)
            self.tell()

    def rest(self) -> None:
        """Wait for nothing until the next call."""
        faulthandler.cancel_dump_traceback_later()
        self.due = 0.0


def serve(connection_handle: int, trace_handle: int) -> None:
    """Play for the parent until it says close, closes the connection or is gone."""
    for handle in (connection_handle, trace_handle):
        os.set_inheritable(handle, False)
    threading.Thread(target=_end_with_parent, args=(trace_handle,), daemon=True).start()
    faulthandler.enable(trace_handle)
    with guard.alone():
        _serve(Connection(connection_handle), trace_handle)


def _serve(connection: Connection, trace_handle: int) -> None:
    # A thread reads, so that the parent never waits for a simulator to send us more.
    inbox: SimpleQueue[Message] = SimpleQueue()
    threading.Thread(target=_read, args=(connection, inbox), daemon=True).start()

    def send(kind: str, *arrays: np.ndarray, **plain: Any) -> None:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            connection.send_bytes(pack({"kind": kind, **plain}, arrays))

    head, _ = inbox.get()
    if head["kind"] == "close":
        return
    if head["kind"] == "ask":
        _answer(head["call"], send)
        return
    player: Player | None = None
    watch = Watch(trace_handle, START_TIMEOUT, lambda: send("pulse"))
    policies: list[HostPolicy] = []
    ahead: list[int] = []  # seeds to reset simulators for when there is nothing to play
    idle = 0.0  # s, waiting for something to play

    def feed(wait: bool) -> Cue | None:
        nonlocal policies, ahead, idle
        while True:
            try:
                head, arrays = inbox.get_nowait()
            except Empty:
                if not wait:
                    return None
                if ahead and player is not None and player.begin_early(ahead.pop(0)):
                    continue
                watch.rest()
                start = time.monotonic()
                head, arrays = inbox.get()
                idle += time.monotonic() - start
            if head["kind"] == "close":
                return None
            if head["kind"] == "part":
                part = Part(head["seed"], head["policy"], arrays[0])
                return Cue(head["number"], part, policies[part.policy])
            if head["kind"] == "ahead":
                ahead = head["seeds"]
            else:
                policies = unflat(head, arrays)

    try:
        watch()
        with guard.staying("The environment"):
            make = decode(head["factory"])
        player = Player(make, decode(head["spec"]), head["live"], watch)
        watch.timeout = head["timeout"]
        watch.rest()
        born = time.monotonic()
        send("started")
        for number, (*arrays, ended) in player.play(feed):
            spent = time.monotonic() - born - idle
            send("record", *arrays, number=number, ended=ended, spent=spent)
        watch()
        player.close()
        watch.rest()
        send("closed")
    except Exception:
        watch.rest()
        where = "" if player is None else f"({player.where})\n"
        send("error", error=where + traceback.format_exc())


def _answer(call: Any, send: Callable[..., None]) -> None:
    """Call what is asked for; it returns what `encode` takes, and arrays."""
    try:
        with guard.staying("The environment"):
            value, arrays = decode(call)()
        send("answer", *arrays, value=encode(value))
    except UserError as error:
        send("refused", error=str(error))
    except Exception:
        send("error", error=traceback.format_exc())


def _read(connection: Connection, inbox: SimpleQueue[Message]) -> None:
    with contextlib.suppress(EOFError, OSError):
        while True:
            inbox.put(unpack(connection.recv_bytes()))
    inbox.put(GONE)


def _end_with_parent(handle: int) -> None:
    """Kill this process group when nobody holds the other end of the pipe."""
    watch = select.poll()
    watch.register(handle, 0)
    watch.poll()
    guard.end_marked(os.environ.get(guard.MARK, ""))
    os.killpg(0, signal.SIGKILL)
