"""Worker processes of this machine: how they are started, heard and ended.

A worker is the leader of its own process group; it ends, with all it started, when its
parent is gone, and a call of a simulator that outlasts the time-out ends it too. It is
started by name, not through `__main__`: a script needs no guard, and nothing here
imports JAX. Messages are JSON and raw arrays (wire.py), so a worker may be of another
Python, with packages that ours could not have beside it. POSIX only.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import subprocess
import sys
import sysconfig
import uuid
import weakref
from collections.abc import Sequence
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from typing import Any

import numpy as np

from ecop.errors import UserError
from ecop.simulators import guard
from ecop.simulators.wire import decode, encode, pack, unpack

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


def interpreter(python: Any) -> str:
    """The path of another Python, given as such or as its virtual environment."""
    if not isinstance(python, (str, os.PathLike)):
        raise UserError(f"python must be the path of an interpreter, not {python!r}.")
    path = os.path.abspath(os.path.expanduser(python))  # no links followed: venvs
    path = os.path.join(path, "bin", "python") if os.path.isdir(path) else path
    if not (os.path.isfile(path) and os.access(path, os.X_OK)):
        raise UserError(f"There is no Python at '{path}'.")
    return path


def program(handles: tuple[int, int], *, foreign: bool) -> str:
    """What a worker runs; another Python finds our source, but none of our packages."""
    if not foreign:
        path, serve = f"sys.path[:] = {sys.path!r}", "ecop.simulators.worker"
        return f"import sys; {path}; from {serve} import serve; serve(*{handles})"
    home = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    return FOREIGN.format(
        trace=handles[1],
        folders=own_folders(),
        file=os.path.join(home, "__init__.py"),
        home=home,
        handles=handles,
    )


FOREIGN = """
import os, sys

def fail(text):
    os.write({trace}, text.encode())
    os._exit(1)

if sys.version_info < (3, 8):
    fail("Workers need Python 3.8 or newer, not %d.%d." % sys.version_info[:2])
from importlib.util import module_from_spec, spec_from_file_location
sys.path += {folders!r}
spec = spec_from_file_location("ecop", {file!r}, submodule_search_locations=[{home!r}])
sys.modules["ecop"] = module_from_spec(spec)
spec.loader.exec_module(sys.modules["ecop"])
try:
    from ecop.simulators.worker import serve
except ImportError as error:
    fail("Workers need NumPy: %s." % error)
serve(*{handles})
"""


def own_folders() -> list[str]:
    """Folders of the path that are the user's, not of installed packages."""
    installed = {os.path.realpath(path) for path in sysconfig.get_paths().values()}
    packages = ("site-packages", "dist-packages", "lib-dynload")
    return [
        path
        for path in map(os.path.abspath, sys.path)
        if os.path.isdir(path)
        and os.path.realpath(path) not in installed
        and os.path.basename(path) not in packages
    ]


def surroundings(*, foreign: bool) -> dict[str, str]:
    """Variables of a worker; another Python gets none that leads to our packages."""
    ours = ("PYTHONHOME", "PYTHONPATH") if foreign else ()
    return {name: value for name, value in os.environ.items() if name not in ours}


def ask(python: str, call: Any) -> tuple[Any, list[np.ndarray]]:
    """What a call returns in another Python: plain values and arrays."""
    line = Process(pack({"kind": "ask", "call": encode(call)}, ()), python)
    try:
        head, arrays = unpack(line.hear()[0])
    except Fault as fault:
        raise UserError(f"'{python}' cannot be used: {fault}") from None
    finally:
        line.end()
    if head["kind"] == "refused":
        raise UserError(f"{head['error']} (in '{python}')")
    if head["kind"] == "error":
        raise UserError(f"The environment failed in '{python}':\n{head['error']}")
    return decode(head["value"]), arrays


class Process:
    """A process that plays, and the line to it."""

    slack = GRACE  # s that its answers may take beyond what the simulators may

    def __init__(self, start: bytes, python: str | None = None) -> None:
        mark = uuid.uuid4().hex
        ours, theirs = Pipe()
        trace, trace_end = os.pipe()
        os.set_blocking(trace, False)
        handles = theirs.fileno(), trace_end
        self.process = subprocess.Popen(
            [python or sys.executable, "-c", program(handles, foreign=bool(python))],
            stdin=subprocess.DEVNULL,
            pass_fds=handles,
            start_new_session=True,
            env={**surroundings(foreign=bool(python)), guard.MARK: mark},
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

    def __init__(self, size: int, python: str | None = None) -> None:
        self.size, self.python = size, python

    def hire(self, start: bytes) -> Process:
        """Start one more."""
        return Process(start, self.python)

    def publish(self, policies: bytes) -> bytes:
        """What `give` wants of the policies of a batch."""
        return policies

    def wait(self, lines: Sequence[Process], seconds: float) -> Sequence[Process]:
        """Those that have something to say, within some seconds."""
        ready = wait([line.connection for line in lines], seconds)
        return [line for line in lines if line.connection in ready]
