"""A walk whose simulator sleeps, and misbehaves when a file asks it to. No JAX here.

FAULTY_SLEEP: seconds per step. FAULTY_FOLDER: where files named hang, raise and die are
looked for; whoever removes one does what its name says, at most once in an episode,
since a second time would end training. Episodes do not depend on it.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import numpy as np

from ecop.simulators.player import Result
from ecop.simulators.pool import SimulatorPool
from ecop.types import Box, Constraint, Spec

HORIZON = 50


class Walk:
    """A noisy walk that earns by being near 1 and pays for speed."""

    def __init__(self) -> None:
        self.sleep = float(os.environ.get("FAULTY_SLEEP", "0"))
        self.folder = os.environ.get("FAULTY_FOLDER", "")

    def reset(self, seed: int) -> np.ndarray:
        """Start at random."""
        self.rng = np.random.default_rng(seed)
        self.struck = Path(self.folder, f"struck-{seed}")
        self.x = self.rng.normal(size=2)
        return self.x.astype(np.float32)

    def step(self, action: np.ndarray) -> Result:
        """Move by the action; sleep; see what is asked for."""
        if self.folder and not self.struck.exists():
            self.misbehave()
        if self.sleep:
            time.sleep(self.sleep)
        speed = 0.3 * float(np.tanh(action[0]))
        self.x = 0.95 * self.x + [speed, 0.1 * self.rng.normal()]
        reward = -((float(self.x[0]) - 1.0) ** 2)
        return Result(self.x.astype(np.float32), reward, [abs(speed)])

    def misbehave(self) -> None:
        """Do what a file asks for, if this is the one that finds it."""
        for fault in ("hang", "raise", "die"):
            try:
                Path(self.folder, fault).unlink()
            except FileNotFoundError:
                continue
            self.struck.touch()
            if fault == "hang":
                time.sleep(1e6)
            if fault == "die":
                os.kill(os.getpid(), signal.SIGKILL)
            raise RuntimeError("asked to")

    def close(self) -> None:
        """Nothing to release."""


def walk(horizon: int = HORIZON) -> SimulatorPool:
    """The task; a step that takes more than 3 s counts as hung."""
    spec = Spec(2, Box(1), horizon, (Constraint("speed", 5.0),))
    return SimulatorPool(Walk, spec, timeout=3.0, live=1)
