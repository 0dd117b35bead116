"""Gymnasium environments that misbehave. No JAX here."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

STARTED = 0


class Bad(gymnasium.Env):
    """Well until its third step."""

    def __init__(self, fault: str = "") -> None:
        global STARTED
        STARTED += 1
        self.fault, self.made = fault, STARTED
        self.observation_space = spaces.Box(-np.inf, np.inf, (3,), np.float64)
        self.action_space = spaces.Box(-1, 1, (1,))
        self.horizon = 6
        if fault == "exit when made":
            sys.exit(0)

    def reset(self, *, seed=None, options=None) -> Any:
        super().reset(seed=seed)
        self.x, self.h = self.np_random.uniform(-1, 1, 3), 0
        if self.fault == "exit in reset":
            sys.exit(0)
        if self.fault == "seed of the process":
            self.x[0] = 100.0 * self.made + os.getpid()
        return self.x.copy(), {}

    def step(self, action) -> Any:
        self.x, self.h = np.clip(self.x + action[0], -9, 9), self.h + 1
        out: list[Any] = [self.x.copy(), 1.0, False, False, {"cost": 1.0}]
        if self.h == 3:
            out = self.misbehave(*out)
        return tuple(out)

    def misbehave(self, x, reward, terminated, truncated, info) -> list[Any]:
        fault = self.fault
        if fault == "exit":
            sys.exit(0)
        if fault == "quit with a sentence":
            sys.exit("no licence")
        shapes = {"scalar": x[0], "one entry": x[:1], "column": x[:, None]}
        shapes |= {"row": x[None], "long": np.append(x, 0.0), "none": None, "text": "x"}
        shapes |= {
            "large": x * 1e300,
            "nan": x * np.nan,
            "infinite": np.full(3, np.inf),
        }
        shapes |= {"complex": x * 1j, "objects": np.array([None] * 3)}
        x = shapes.get(fault, x)
        flags = {"int": 1, "none flag": None, "text flag": "False", "array": [False]}
        terminated = flags.get(fault, terminated)
        if fault == "truncated is an int":
            truncated = 0
        rewards = {"reward nan": np.nan, "reward large": 1e300, "reward none": None}
        reward = rewards.get(fault, reward)
        if fault == "cost nan":
            info = {"cost": np.nan}
        if fault == "cost array":
            info = {"cost": np.ones(2)}
        return [x, reward, terminated, truncated, info]


def make(fault: str = "") -> Bad:
    """By name, for workers."""
    return Bad(fault)


class Daemon(Bad):
    """Starts a process in a session of its own, whose parent is gone at once."""

    def __init__(self, file: str) -> None:
        super().__init__()
        code = (
            "import os, sys, time\n"
            "if os.fork(): os._exit(0)\n"
            "os.setsid()\n"
            "open(sys.argv[1], 'a').write(f'{os.getpid()}\\n')\n"
            "time.sleep(600)\n"
        )
        before = Path(file).read_text().count("\n") if Path(file).exists() else 0
        subprocess.run([sys.executable, "-S", "-c", code, file], check=True)
        while not Path(file).exists() or Path(file).read_text().count("\n") == before:
            time.sleep(0.02)


def make_daemon(file: str) -> Daemon:
    """By name, for workers."""
    return Daemon(file)
