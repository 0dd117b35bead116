"""Watches that end training when there is nothing left to gain."""

from __future__ import annotations

from collections import deque
from statistics import fmean
from typing import Any

from ecop.errors import UserError
from ecop.watching import Quiet

WINDOW = 10  # iterations that are averaged: one batch alone is noise


class StopOnPlateau(Quiet):
    """Stops when all limits are kept and the reward has not risen for a while.

    Both are means of the last 10 iterations: costs of every seed, rewards of all seeds
    together. Only rewards that were earned within the limits count.

    iterations: how long the reward may go without a new best
    """

    def __init__(self, iterations: int = 50) -> None:
        if iterations < 1:
            raise UserError(f"iterations must be at least 1, not {iterations}.")
        self.iterations = iterations
        self.seen = 0  # lines of metrics
        self.recent: deque[list[dict[str, Any]]] = deque(maxlen=WINDOW)
        self.best: float | None = None
        self.since = 0  # the iteration of the best

    def advanced(self, run: Any) -> str | None:
        """Take the new iterations in; say so if it is time."""
        seeds, reason = len(run.states), None
        for start in range(self.seen, len(run.metrics), seeds):
            reason = self.one(run.metrics[start : start + seeds])
        self.seen = len(run.metrics)
        return reason

    def one(self, lines: list[dict[str, Any]]) -> str | None:
        """Take the lines of an iteration in."""
        self.recent.append(lines)
        if len(self.recent) < WINDOW or not self.kept():
            return None
        iteration = lines[0]["iteration"]
        reward = fmean(line["reward"] for rows in self.recent for line in rows)
        if self.best is None or reward > self.best:
            self.best, self.since = reward, iteration
        if iteration - self.since < self.iterations:
            return None
        return (
            f"Stopped after iteration {iteration}: all limits are kept and the reward "
            f"has not risen for {iteration - self.since} iterations."
        )

    def kept(self) -> bool:
        """Whether every seed keeps all limits on average."""
        for lines in zip(*self.recent, strict=True):
            for i, limit in enumerate(lines[0]["limits"]):
                if limit is not None and fmean(x["costs"][i] for x in lines) > limit:
                    return False
        return True
