"""Training on the command line: under a display, with signals that are answered."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from ecop.api import Faulted, Run, Stopped
from ecop.errors import Diverged
from ecop.watching.progress import say

STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
WAITS = """
Stopping: the iteration under way is finished and saved first. Once more ends at once.
"""


def fit(folder: Path, work: Callable[[], Run]) -> int:
    """Train; print where the result is, or how to go on."""
    with ended_at_once():
        try:
            run = work()
        except (Diverged, Faulted) as error:
            say(f"ecop: {error}", sys.stderr)
            return 1
        except Stopped as stop:
            say(str(stop))
            return 130
    trust = " --trust" if ":" in run.config.task else ""
    commands = f"  ecop evaluate {folder}{trust}\n  ecop plot {folder}"
    say(f"{'Saved' if run.stopped else 'Done'}: {folder}\n{commands}")
    return 0


@contextlib.contextmanager
def ended_at_once() -> Iterator[None]:
    """Say what the first Ctrl-C waits for; let a second end the process at once.

    A thread hears of signals while the main thread compiles or waits for a simulator.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    ours, theirs = os.pipe()
    os.set_blocking(theirs, False)

    def listen() -> None:
        heard = 0
        while data := os.read(ours, 64):
            heard += sum(number in STOPS for number in data)
            if heard > 1:
                time.sleep(1.0)  # for the main thread, if it can
                os._exit(130)
            if heard:
                with contextlib.suppress(OSError):
                    os.write(2, WAITS.encode())
        os.close(ours)

    before = signal.set_wakeup_fd(theirs, warn_on_full_buffer=False)
    threading.Thread(target=listen, daemon=True).start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        os.close(theirs)
