"""What training looks like: a live table in terminals and notebooks, or plain lines."""

from __future__ import annotations

import os
import sys
import time
from collections import deque
from html import escape
from statistics import fmean
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ecop.showing import table_html
from ecop.watching import Quiet, Watch

RECENT = 20  # iterations that the speed and the time left are estimated from
OFTEN = 0.1  # s between two drawings of a table


def progress(title: str) -> Watch:
    """The display that fits where standard output goes."""
    console = Console()
    if console.is_jupyter:
        return Unharmed(NotebookWatch(title))
    return Unharmed(LiveWatch(title) if sys.stdout.isatty() else PlainWatch())


def say(text: str, where: Any = None) -> None:
    """Print to somebody who may have gone: training does not depend on it."""
    where = where or sys.stdout
    try:
        print(text, file=where, flush=True)
    except OSError:  # the buffer would fail again at the end of the process
        os.dup2(os.open(os.devnull, os.O_WRONLY), where.fileno())


class Unharmed:
    """A watch whose terminal or pipe may go away: it is silent from then on."""

    def __init__(self, watch: Watch) -> None:
        self.watch = watch

    def note(self, text: str) -> None:
        """Pass it on."""
        self.call("note", text)

    def began(self, run: Any) -> None:
        """Pass it on."""
        self.call("began", run)

    def progress(self, lines: list[dict[str, Any]], total: int) -> None:
        """Pass it on."""
        self.call("progress", lines, total)

    def advanced(self, run: Any) -> str | None:
        """Pass it on."""
        return self.call("advanced", run)

    def ended(self, run: Any) -> None:
        """Pass it on."""
        self.call("ended", run)

    def call(self, method: str, *args: Any) -> Any:
        """Call the watch, unless it failed before."""
        try:
            return getattr(self.watch, method)(*args)
        except OSError:
            self.watch = Quiet()
            say("")


class PlainWatch(Quiet):
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
            f"cost {costs or '-'}  kl {mean(lines, 'kl'):.4f}  {self.pace.text(total)}",
            flush=True,
        )


COLUMNS = ("seed", "reward", "cost / limit", "multiplier", "beta", "KL")
Cell = list[tuple[str, str]]  # pieces of text, each with a colour or none


class TableWatch(Quiet):
    """A table that is redrawn in place, one row per seed."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.pace = Pace()
        self.drawn = 0.0
        self.waiting: tuple[list[dict[str, Any]], int] | None = None

    def progress(self, lines: list[dict[str, Any]], total: int) -> None:
        """Redraw the table, unless that was done just now."""
        self.pace.update(lines)
        self.waiting = lines, total
        if time.perf_counter() - self.drawn >= OFTEN:
            self.redraw()

    def ended(self, run: Any) -> None:
        """Draw what was not drawn yet."""
        if self.waiting is not None:
            self.redraw()

    def redraw(self) -> None:
        """Draw the newest metrics."""
        assert self.waiting is not None
        lines, total = self.waiting
        self.waiting, self.drawn = None, time.perf_counter()
        title = f"{self.title}  ·  iteration {lines[0]['iteration']}/{total}"
        self.draw(title, [row(line) for line in lines], self.pace.text(total))

    def draw(self, title: str, rows: list[list[Cell]], below: str) -> None:
        """Show the table."""
        raise NotImplementedError


def row(line: dict[str, Any]) -> list[Cell]:
    """The cells of a seed."""
    pairs = zip(line["costs"], line["limits"], strict=True)
    return [
        [(str(line["seed"]), "")],
        [(f"{line['reward']:.2f}", "")],
        [part for pair in pairs for part in coloured(*pair)],
        [("  ".join(f"{value:.3f}" for value in line["multipliers"]), "")],
        [(f"{line['beta']:.2f}" if "beta" in line else "-", "")],
        [(f"{line['kl']:.4f}", "")],
    ]


def coloured(cost: float, limit: float | None) -> Cell:
    """Cost against limit, green within it and red above."""
    if limit is None:
        return [(f"{cost:.2f} / off  ", "")]
    colour = "green" if cost <= limit else "red"
    return [(f"{cost:.2f}", colour), (f" / {limit:g}  ", "")]


class LiveWatch(TableWatch):
    """In a terminal."""

    def __init__(self, title: str) -> None:
        super().__init__(title)
        self.console = Console()
        self.live: Live | None = None

    def note(self, text: str) -> None:
        """Print it above the table."""
        self.console.print(text, markup=False, highlight=False)

    def draw(self, title: str, rows: list[list[Cell]], below: str) -> None:
        """Show the table."""
        if self.live is None:
            self.live = Live(console=self.console, auto_refresh=False)
            self.live.start()
        table = Table(title=Text(title), caption=Text(below))
        for name in COLUMNS:
            table.add_column(name, justify="right")
        for cells in rows:
            table.add_row(*(Text.assemble(*cell) for cell in cells))
        self.live.update(table, refresh=True)

    def ended(self, run: Any) -> None:
        """Leave the last table where it is."""
        super().ended(run)
        if self.live is not None:
            self.live.stop()
            self.live = None


class NotebookWatch(TableWatch):
    """In a cell of a notebook."""

    handle: Any = None

    def note(self, text: str) -> None:
        """Print it."""
        print(text, flush=True)

    def draw(self, title: str, rows: list[list[Cell]], below: str) -> None:
        """Show the table."""
        from IPython.display import HTML, display

        cells = [["".join(map(span, cell)) for cell in line] for line in rows]
        shown = HTML(table_html(title, COLUMNS, cells, below))
        if self.handle is None:
            self.handle = display(shown, display_id=True)
        else:
            self.handle.update(shown)


def span(piece: tuple[str, str]) -> str:
    """A piece of text as HTML."""
    text, colour = piece
    mark = f'<span style="color:{colour}">' if colour else ""
    return f"{mark}{escape(text)}{'</span>' if colour else ''}"


class Pace:
    """Steps per second and time left, from the metrics of the latest iterations."""

    def __init__(self) -> None:
        self.recent: deque[tuple[int, int, float]] = deque(maxlen=RECENT)
        self.busy: float | None = None

    def update(self, lines: list[dict[str, Any]]) -> None:
        """Take the newest metrics in."""
        line = lines[0]
        self.busy = line.get("busy")
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

    def text(self, total: int) -> str:
        """Both in words, and how busy simulators are, if there are any."""
        words = f"{self.speed:,.0f} steps/s  {clock(self.left(total))} left"
        busy = "" if self.busy is None else f"  simulators busy {self.busy:.0%}"
        return words + busy

    def _rate(self, entry: int) -> float:
        # The first call contains the compilation; the rate is counted from its end.
        first, newest = self.recent[0], self.recent[-1]
        seconds = newest[2] - first[2]
        if seconds <= 0:
            return newest[entry] / newest[2] if newest[2] else 0.0
        return (newest[entry] - first[entry]) / seconds


def mean(lines: list[dict[str, Any]], name: str) -> Any:
    """Mean over seeds of a metric or of each entry of a list of them."""
    values = [line[name] for line in lines]
    if isinstance(values[0], list):
        return [fmean(entry) for entry in zip(*values, strict=True)]
    return fmean(values)


def clock(seconds: float | None) -> str:
    """Hours, minutes and seconds."""
    if seconds is None:
        return "?"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
