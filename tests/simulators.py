"""Simulators and Gymnasium environments for tests, some of them ill. No JAX here."""

from __future__ import annotations

import importlib
import itertools
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium import spaces

from ecop.simulators.player import Result
from ecop.types import Box, Constraint, HostStep, Spec

SPEC = Spec(2, Box(1), 6, (Constraint("work", 3.0),))


class Counter:
    """Adds up its actions and a random number of its seed; misbehaves on request.

    The fault happens in step 3 of the episode with seed 1, as long as the file `once`
    does not exist; without a file it happens always.
    """

    def __init__(self, fault: str = "", once: str = "") -> None:
        self.fault = fault
        self.once = once

    def reset(self, seed: int) -> np.ndarray:
        if seed == 1 and self.fault == "reset":
            self.misbehave()
        self.rng = np.random.default_rng(seed)
        self.seed, self.h, self.total = seed, 0, 0.0
        return np.array([self.total, self.h], np.float32)

    def step(self, action: np.ndarray) -> Result:
        if self.seed == 1 and self.h == 3 and self.fault not in ("", "reset"):
            self.misbehave()
        self.h += 1
        self.total += float(action[0]) + self.rng.normal()
        observation = np.array([self.total, self.h], np.float32)
        ended = 1 if self.seed == 5 and self.h == 2 else 0
        return Result(observation, self.total, np.abs(action), ended)

    def misbehave(self) -> None:
        if self.once:
            if Path(self.once).exists():
                return
            Path(self.once).touch()
        if self.fault in ("raise", "reset"):
            raise ZeroDivisionError("the cart fell off")
        if self.fault == "hang":
            time.sleep(1000)
        if self.fault == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.fault == "exit":
            os._exit(7)

    def close(self) -> None:
        pass


class Make(NamedTuple):
    """A factory that can be sent to a worker."""

    fault: str = ""
    once: str = ""

    def __call__(self) -> Counter:
        return Counter(self.fault, self.once)


class Counted(Counter):
    """Counts its own steps."""

    steps = 0
    closed = False

    def step(self, action: np.ndarray) -> Result:
        self.steps += 1
        return super().step(action)

    def close(self) -> None:
        self.closed = True


class MakeMarked(NamedTuple):
    """Leaves a file for every simulator made."""

    folder: str

    def __call__(self) -> Counter:
        Path(self.folder, f"{os.getpid()}-{time.monotonic_ns()}").touch()
        return Counter()


class Noted(Counter):
    """Writes down its resets and its first steps."""

    def __init__(self, file: str) -> None:
        super().__init__()
        self.file = file

    def reset(self, seed: int) -> np.ndarray:
        self.note("reset", seed)
        return super().reset(seed)

    def step(self, action: np.ndarray) -> Result:
        if self.h == 0:
            self.note("step", self.seed)
        return super().step(action)

    def note(self, what: str, seed: int) -> None:
        with open(self.file, "a") as file:
            file.write(f"{what} {seed}\n")


class MakeNoted(NamedTuple):
    file: str

    def __call__(self) -> Noted:
        return Noted(self.file)


class MakeUnsteady(NamedTuple):
    """Every episode fails in its step 3, once."""

    folder: str

    def __call__(self) -> Counter:
        made = Counter()
        step = made.step

        def unsteady(action: np.ndarray) -> Result:
            file = Path(self.folder, str(made.seed))
            if made.h == 3 and not file.exists():
                file.touch()
                raise ZeroDivisionError
            return step(action)

        made.step = unsteady
        return made


class Slow(Counter):
    """Takes 0.1 s for a step."""

    def step(self, action: np.ndarray) -> Result:
        time.sleep(0.1)
        return super().step(action)


class Wide:
    """Shows the end of a long action."""

    def reset(self, seed: int) -> np.ndarray:
        return np.full(50_000, seed, np.float32)

    def step(self, action: np.ndarray) -> Result:
        return Result(action[-50_000:], float(action[0]), [])

    def close(self) -> None:
        pass


class Misshapen(Counter):
    """Has an observation too long, or two costs where there is one."""

    def __init__(self, illness: str) -> None:
        super().__init__()
        self.illness = illness

    def reset(self, seed: int) -> np.ndarray:
        first = super().reset(seed)
        return np.zeros(3) if self.illness == "observation" else first

    def step(self, action: np.ndarray) -> Result:
        return super().step(action)._replace(costs=[1.0, 2.0])


class MakeDying(NamedTuple):
    """A SUMO task whose process is killed in step 7 of its first episode, once."""

    task: str
    file: str

    def __call__(self) -> Any:
        module = importlib.import_module(f"ecop.envs.sumo.{self.task.lower()}")
        made = getattr(module, self.task)()
        taken, step = itertools.count(), made.step

        def dying(action: np.ndarray) -> Result:
            if next(taken) == 7 and not Path(self.file).exists():
                Path(self.file).touch()
                os.kill(os.getpid(), signal.SIGKILL)
            return step(action)

        made.step = dying
        return made


class CountersAtOnce:
    """Counters as one batched task; all end at a given step, if any."""

    def __init__(self, end: int | None = None) -> None:
        self.spec, self.end, self.steps = SPEC, end, 0

    def reset(self, seeds: np.ndarray) -> np.ndarray:
        self.counters = [Counter() for _ in seeds]
        self.failed = np.zeros(len(seeds), bool)
        pairs = zip(self.counters, seeds.tolist(), strict=True)
        return np.stack([counter.reset(seed) for counter, seed in pairs])

    def step(self, actions: np.ndarray) -> HostStep:
        self.steps += 1
        pairs = zip(self.counters, actions, strict=True)
        results = [counter.step(action) for counter, action in pairs]
        observation, reward, costs, ended = map(np.array, zip(*results, strict=True))
        self.failed |= (ended > 0) | (self.steps == self.end)
        return HostStep(observation, reward, costs, self.failed.copy())

    def close(self) -> None:
        pass


class Nested(Counter):
    """Starts a process of its own and hangs in its first step."""

    def __init__(self, pid_file: str) -> None:
        super().__init__()
        self.pid_file = pid_file

    def step(self, action: np.ndarray) -> Result:
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        Path(self.pid_file).write_text(f"{os.getpid()} {child.pid}")
        time.sleep(600)
        raise AssertionError


class MakeNested(NamedTuple):
    pid_file: str

    def __call__(self) -> Nested:
        return Nested(self.pid_file)


def jax_free() -> Counter:
    """A factory that refuses a process that has imported JAX."""
    assert "jax" not in sys.modules
    return Counter()


class Gym(gymnasium.Env):
    """A walk that reports its cost in one of the known ways; a Dict observation."""

    def __init__(self, way: str = "cost", end: int | None = None) -> None:
        self.way, self.end = way, end
        self.observation_space = spaces.Dict(
            {"x": spaces.Box(-9, 9, (2,), np.float64), "side": spaces.Discrete(2)}
        )
        self.action_space = spaces.Box(np.float32(2), np.float32(6), (1,))
        if way == "attributes":
            self.cost_names, self.cost_limits = ("a", "b"), (4.0, 5.0)
            self.horizon = 6

    def observe(self) -> dict[str, Any]:
        return {"x": self.x.copy(), "side": int(self.x[0] > 0)}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.x, self.h = self.np_random.uniform(-1, 1, 2), 0
        return self.observe(), {}

    def step(self, action) -> Any:
        assert self.action_space.contains(action), action
        self.x = np.clip(self.x + 0.1 * (float(action[0]) - 4.0), -9, 9)
        self.h += 1
        pay = float(action[0])
        infos = {
            "cost": {"cost": pay},
            "costs": {"costs": np.array([pay, 1.0])},
            "attributes": {"costs": np.array([pay, 1.0])},
            "named": {"cost_a": pay, "cost_b": 1.0},
            "sparse": {"cost_b": 1.0} | ({"cost_a": pay} if self.h == 2 else {}),
        }
        info = infos.get(self.way, {"speed": 1.0})
        reward: Any = np.array([1.0, -pay]) if self.way == "vector" else 1.0
        truncated = self.h == self.end
        if self.way == "tuple":
            return self.observe(), reward, pay, False, truncated, info
        return self.observe(), reward, False, truncated, info


def make_gym() -> Gym:
    return Gym()


def work(obs, action, next_obs, info, t) -> float:
    return float(action[0])


class Sick(Gym):
    """Draws from the global generator, has a clock, forgets its last cost."""

    def __init__(self, illness: str) -> None:
        super().__init__()
        self.illness = illness
        self.observation_space = spaces.Box(-99, 99, (2,))

    def observe(self) -> Any:
        x = self.x.copy()
        if self.illness == "clock":
            x[1] = 3.0 * self.h - 1.0
        if self.illness == "nan" and self.h == 2:
            x[1] = np.nan
        if self.illness == "seed":
            x[0] += np.random.normal()  # noqa: NPY002
        return x.astype(np.float32)

    def step(self, action) -> Any:
        *rest, info = super().step(action)
        if self.illness == "last" and self.h == 6:
            info["cost"] = 0.0
        return *rest, info


class Screen(gymnasium.Env):
    """Images, a Discrete action, a cost in info."""

    observation_space = gymnasium.spaces.Box(0, 255, (12, 10, 3), np.uint8)
    action_space = gymnasium.spaces.Discrete(2)
    horizon = 3

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.look(), {}

    def look(self):
        return self.np_random.integers(0, 256, (12, 10, 3), np.uint8)

    def step(self, action):
        return self.look(), float(action), False, False, {"cost": float(action)}


def make_screen() -> Screen:
    return Screen()
