"""What training looks like in a terminal: a live table, or plain lines elsewhere."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from statistics import fmean
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.table import Table

from ecop.api import Faulted, Quiet, Run, Stopped
from ecop.errors import Diverged

RECENT = 20  # iterations that the speed and the time left are estimated from
STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
WAITS = """
Stopping: the iteration under way is finished and saved first. Once more ends at once.
"""


def fit(title: str, folder: Path, work: Any) -> int:
    """Train under a display; print the result, or how to go on."""
    shown = watch(title)
    with ended_at_once():
        try:
            with shown if isinstance(shown, LiveWatch) else nullcontext():
                run = work(Unharmed(shown))
        except (Diverged, Faulted) as error:
            say(f"ecop: {error}", sys.stderr)
            return 1
        except Stopped as stop:
            say(str(stop))
            return 130
    trust = " --trust" if ":" in run.config.task else ""
    commands = f"  ecop evaluate {folder}{trust}\n  ecop plot {folder}"
    say(f"Done: {folder}\n{commands}")
    return 0


def say(text: str, where: Any = None) -> None:
    """Print to somebody who may have gone: training does not depend on it."""
    where = where or sys.stdout
    try:
        print(text, file=where, flush=True)
    except OSError:  # the buffer would fail again at the end of the process
        os.dup2(os.open(os.devnull, os.O_WRONLY), where.fileno())


class Unharmed:
    """A watch whose terminal or pipe may go away: it is silent from then on."""

    def __init__(self, watch: PlainWatch | LiveWatch) -> None:
        self.watch: Any = watch

    def note(self, text: str) -> None:
        """Pass it on."""
        self.call("note", text)

    def progress(self, lines: list[dict[str, Any]], total: int) -> None:
        """Pass it on."""
        self.call("progress", lines, total)

    def advanced(self, run: Run) -> None:
        """Pass it on."""
        self.call("advanced", run)

    def call(self, method: str, *args: Any) -> None:
        """Call the watch, unless it failed before."""
        try:
            getattr(self.watch, method)(*args)
        except OSError:
            self.watch = Quiet()
            say("")


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


class PlainWatch:
    """One line every few seconds, for logs and pipes."""

    def __init__(self, *, every: float = 5.0) -> None:
        self.every = every
        self.last = 0.0
        self.pace = Pace()

    def note(self, text: str) -> None:
        """Print it."""
        print(text, flush=True)

    def progress(self, lines: list[dict[str, Any]], total: int) -> None:
        """Print the mean over seeds, unless the last line is recent."""
        self.pace.update(lines)
        now = time.perf_counter()
        iteration = lines[0]["iteration"]
        if now - self.last < self.every and iteration < total:
            return
        self.last = now
        costs = " ".join(
            f"{cost:.2f}/{'off' if limit is None else f'{limit:g}'}"
            for cost, limit in zip(
                mean(lines, "costs"), lines[0]["limits"], strict=True
            )
        )
        print(
            f"iteration {iteration}/{total}  reward {mean(lines, 'reward'):.2f}  "
            f"cost {costs or '-'}  kl {mean(lines, 'kl'):.4f}  "
            f"{self.pace.speed:,.0f} steps/s  {clock(self.pace.left(total))} left"
            + busy(lines, "  "),
            flush=True,
        )

    def advanced(self, run: Run) -> None:
        """Nothing to show."""


class LiveWatch:
    """A table that is redrawn in place, one row per seed."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.console = Console()
        self.pace = Pace()
        self.live = Live(console=self.console, auto_refresh=False)

    def __enter__(self) -> LiveWatch:
        self.live.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self.live.stop()

    def note(self, text: str) -> None:
        """Print it above the table."""
        self.console.print(text)

    def progress(self, lines: list[dict[str, Any]], total: int) -> None:
        """Redraw the table."""
        self.pace.update(lines)
        iteration = lines[0]["iteration"]
        table = Table(
            title=f"{self.title}  ·  iteration {iteration}/{total}",
            caption=f"{self.pace.speed:,.0f} steps/s  ·  "
            f"{clock(self.pace.left(total))} left" + busy(lines, "  ·  "),
        )
        for name in ("seed", "reward", "cost / limit", "multiplier", "beta", "KL"):
            table.add_column(name, justify="right")
        for line in lines:
            table.add_row(
                str(line["seed"]),
                f"{line['reward']:.2f}",
                "  ".join(
                    coloured(cost, limit)
                    for cost, limit in zip(line["costs"], line["limits"], strict=True)
                ),
                "  ".join(f"{value:.3f}" for value in line["multipliers"]),
                f"{line['beta']:.2f}" if "beta" in line else "-",
                f"{line['kl']:.4f}",
            )
        self.live.update(table, refresh=True)

    def advanced(self, run: Run) -> None:
        """Nothing to show."""


class Pace:
    """Steps per second and time left, from the metrics of the latest iterations."""

    def __init__(self) -> None:
        self.recent: deque[tuple[int, int, float]] = deque(maxlen=RECENT)

    def update(self, lines: list[dict[str, Any]]) -> None:
        """Take the newest metrics in."""
        line = lines[0]
        steps = line["env_steps"] * len(lines)
        self.recent.append((line["iteration"], steps, line["seconds"]))

    @property
    def speed(self) -> float:
        """Environment steps per second, all seeds together."""
        return self._rate(1)

    def left(self, total: int) -> float | None:
        """Seconds until iteration `total`, None while it cannot be told."""
        rate = self._rate(0)
        return (total - self.recent[-1][0]) / rate if rate else None

    def _rate(self, entry: int) -> float:
        # The first call contains the compilation; the rate is counted from its end.
        first, newest = self.recent[0], self.recent[-1]
        seconds = newest[2] - first[2]
        if seconds <= 0:
            return newest[entry] / newest[2] if newest[2] else 0.0
        return (newest[entry] - first[entry]) / seconds


def watch(title: str) -> PlainWatch | LiveWatch:
    """The display that fits where standard output goes."""
    return LiveWatch(title) if sys.stdout.isatty() else PlainWatch()


def mean(lines: list[dict[str, Any]], name: str) -> Any:
    """Mean over seeds of a metric or of each entry of a list of them."""
    values = [line[name] for line in lines]
    if isinstance(values[0], list):
        return [fmean(entry) for entry in zip(*values, strict=True)]
    return fmean(values)


def busy(lines: list[dict[str, Any]], before: str) -> str:
    """The share of its time that a pool of simulators is at work, if there is one."""
    share = lines[0].get("busy")
    return "" if share is None else f"{before}simulators busy {100 * share:.0f} %"


def coloured(cost: float, limit: float | None) -> str:
    """Cost against limit, green within it and red above."""
    if limit is None:
        return f"{cost:.2f} / off"
    colour = "green" if cost <= limit else "red"
    return f"[{colour}]{cost:.2f}[/] / {limit:g}"


def clock(seconds: float | None) -> str:
    """Hours, minutes and seconds."""
    if seconds is None:
        return "?"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
