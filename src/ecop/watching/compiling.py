"""Who looks on is told that a program is being compiled, if it is."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

AFTER = 1.5  # s; a program that was compiled before is found and loaded sooner
LOWERED = "/jax/core/compile/jaxpr_to_mlir_module_duration"  # is over: it begins
COMPILED = "/jax/core/compile/backend_compile_duration"
FOUND = "/jax/compilation_cache/cache_hits"


class Listener:
    """Tells of the first compilation that lasts; others are not worth a word."""

    def __init__(self) -> None:
        self.tell: Callable[[], None] | None = None
        self.timers: dict[int, threading.Timer] = {}  # by thread that compiles

    def event(self, event: str, **_: Any) -> None:
        """Called by JAX, in the thread that compiles."""
        if self.tell is None or event not in (LOWERED, COMPILED, FOUND):
            return
        thread = threading.get_ident()
        if thread in self.timers:
            self.timers.pop(thread).cancel()
        if event == LOWERED:
            self.timers[thread] = timer = threading.Timer(AFTER, self.lasts)
            timer.daemon = True
            timer.start()

    def lasted(self, event: str, duration_secs: float, **_: Any) -> None:
        """The same, of events that have a length."""
        self.event(event)

    def lasts(self) -> None:
        """A compilation is under way for a while."""
        tell, self.tell = self.tell, None
        if tell is not None:
            tell()


@cache
def listener() -> Listener:
    """The one that JAX calls."""
    import jax

    ours = Listener()
    jax.monitoring.register_event_listener(ours.event)
    jax.monitoring.register_event_duration_secs_listener(ours.lasted)
    return ours


@contextlib.contextmanager
def heard(tell: Callable[[], None]) -> Iterator[None]:
    """Call `tell` once if a compilation takes a while; what is cached is only read."""
    ours = listener()
    ours.tell = tell
    try:
        yield
    finally:
        ours.tell = None
