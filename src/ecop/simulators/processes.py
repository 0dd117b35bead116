"""Worker processes of this machine: how they are started, heard and ended.

A worker is the leader of its own process group; it ends, with all it started, when its
parent is gone, and a call of a simulator that outlasts the time-out ends it too. It is
started by name, not through `__main__`: a script needs no guard, and nothing here
imports JAX. Messages are JSON and raw arrays (wire.py). POSIX only.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import subprocess
import sys
import uuid
import weakref
from collections.abc import Sequence
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from typing import Any

from ecop.simulators import guard
from ecop.simulators.wire import pack

GRACE = 5.0  # s, for a worker to end by itself after its time-out

log = logging.getLogger("ecop.simulators.pool")


class Fault(Exception):
    """A worker is lost; the message says what became of it.

    Attributes:
        innocent: whether its simulator had no part in it, as when a machine is lost
    """

    def __init__(self, text: str, *, innocent: bool = False) -> None:
        super().__init__(text)
        self.innocent = innocent


class Process:
    """A process that plays, and the line to it."""

    slack = GRACE  # s that its answers may take beyond what the simulators may

    def __init__(self, start: bytes) -> None:
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
        self.policies: Any = None  # that it has
        self.tell(start)

    def tell(self, message: Any) -> None:
        """Send bytes; `hear` finds out if it is gone."""
        with contextlib.suppress(OSError):
            self.connection.send_bytes(message)

    def give(self, policies: Any, messages: Sequence[bytes]) -> None:
        """Send parts, and their policies if it does not have them."""
        if self.policies is not policies:
            self.tell(policies)
            self.policies = policies
        for message in messages:
            self.tell(message)

    def hear(self) -> list[bytes]:
        """What it has to say; waits for it."""
        try:
            return [self.connection.recv_bytes()]
        except (EOFError, OSError):
            raise Fault(self.obituary()) from None

    def look(self) -> None:
        """See whether it is still there, if it says nothing."""
        if self.process.poll() is not None and not self.connection.poll():
            raise Fault(self.obituary())

    def obituary(self) -> str:
        """What is known of its death."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(GRACE)
        last = b""
        with contextlib.suppress(OSError):
            last = os.read(self.trace, 2**16)
        text = last.decode(errors="replace")
        code = self.process.poll()
        if text.startswith("Timeout"):
            return f"{self} hung, here:\n{text}"
        if code is not None and code < 0:
            name = signal.Signals(-code).name
            return f"{self} was killed by {name}.\n{text}".rstrip()
        return f"{self} ended with exit code {code}.\n{text}".rstrip()

    def leave(self) -> None:
        """Ask it to close its simulators and end."""
        self.tell(pack({"kind": "close"}, ()))

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


class Processes:
    """A crew of processes on this machine."""

    def __init__(self, size: int) -> None:
        self.size = size

    def hire(self, start: bytes) -> Process:
        """Start one more."""
        return Process(start)

    def publish(self, policies: bytes) -> bytes:
        """What `give` wants of the policies of a batch."""
        return policies

    def wait(self, lines: Sequence[Process], seconds: float) -> Sequence[Process]:
        """Those that have something to say, within some seconds."""
        ready = wait([line.connection for line in lines], seconds)
        return [line for line in lines if line.connection in ready]
