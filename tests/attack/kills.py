"""Kill -9 at every numbered file operation of train and resume: `kills.py FOLDER N`.

A process of its own: it imports JAX but never starts it, so that it can fork. What is
learned is made up, the states are functions of the iteration; every file is written by
the library's own `train` and `resume`. Prints the number of kills and what went wrong.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import shutil
import signal
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np

from ecop import api, files, runs
from ecop.errors import UserError
from ecop.training import Round
from ecop.types import Box, Constraint, Spec, TrainState

TOTAL, SEEDS = 45, 2
SPEC = Spec(3, Box(1), 10, (Constraint("work", 3.0),))
CHANGES = {"os.rename", "os.remove", "os.mkdir", "os.rmdir"}


def state(seed: int, iteration: int) -> TrainState:
    """A state that only this seed and iteration have."""
    rng = np.random.default_rng([seed, iteration])
    made: Any = TrainState
    return made(
        key=np.array([seed, 7], np.uint32),
        iteration=np.int32(iteration),
        steps=np.int32(20 * iteration),
        length=np.float32(10.0),
        policy={"w": rng.normal(size=(8, 8)).astype(np.float32)},
        critics=rng.normal(size=64).astype(np.float32),
        normaliser=np.float32(iteration),
        cost_scale=np.zeros(1, np.float32),
        algorithm=np.ones(2, np.float32),
    )


def states(iteration: int) -> list[TrainState]:
    """Of all seeds."""
    return [state(seed, iteration) for seed in range(SEEDS)]


def run_seeds(learner, before, counts):
    """Rounds without any learning."""
    done = int(before[0].iteration)
    for count in counts:
        x = np.arange(done + 1, done + count + 1, dtype=np.float32)
        metrics = {"reward": x, "costs": x[:, None], "multipliers": x[:, None]}
        metrics |= {"kl": x, "failed": x, "env_steps": (20 * x).astype(np.int32)}
        done += count
        yield Round(count, before, states(done), [metrics] * SEEDS)
        before = states(done)


def shapes(learner):
    """Of the states of all seeds."""
    return jax.tree.map(
        lambda x: jax.ShapeDtypeStruct((SEEDS, *np.shape(x)), np.asarray(x).dtype),
        state(0, 0),
    )


def made_up() -> None:
    """Put the stubs in place of all that computes."""
    api.build = lambda config, env=None: SimpleNamespace(
        env=None,
        spec=SPEC,
        algorithm=config.algorithm,
        config=config.train,
        iterations=config.train.iterations,
        open_ended=False,
    )
    api.init_seeds = lambda learner: states(0)
    api.run_seeds = run_seeds
    runs.state_shapes = shapes
    runs.jnp = SimpleNamespace(asarray=np.asarray, issubdtype=runs.jnp.issubdtype)
    runs.commit = lambda: None


class Operations:
    """Counts the operations on files and kills the process before one of them."""

    def __init__(self, last: int) -> None:
        self.last, self.count = last, 0

    def next(self) -> None:
        """One more."""
        self.count += 1
        if self.count == self.last:
            os.kill(os.getpid(), signal.SIGKILL)

    def watch(self) -> None:
        """Count what changes files from now on; data is written in three pieces."""

        def hear(event: str, args: tuple) -> None:
            writes = os.O_WRONLY | os.O_RDWR | os.O_CREAT
            if event in CHANGES or (event == "open" and args[2] & writes):
                self.next()

        def put(handle, data: bytes) -> None:
            third = max(1, len(data) // 3)
            for start in range(0, len(data), third):
                self.next()
                handle.write(data[start : start + third])
                handle.flush()
            self.next()

        files.put = put
        files.sync_folder = lambda folder: self.next()
        sys.addaudithook(hear)


def child(work, last: int) -> bool:
    """Do something in a fork that is killed before operation `last`; was it killed?"""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            Operations(last).watch()
            work()
            code = 0
        except UserError as error:
            print(error, file=sys.stderr)
            code = 2
        except BaseException as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr)
        finally:
            os._exit(code)
    status = os.waitpid(pid, 0)[1]
    if os.WIFSIGNALED(status):
        return True
    assert os.WEXITSTATUS(status) == 0, f"exit code {os.WEXITSTATUS(status)}"
    return False


def train(path: Path):
    """A new run."""
    options: Any = {"seeds": SEEDS, "iterations": TOTAL, "episodes": 2}
    return lambda: api.train("PointCircle", "pdo", out=path, watch=None, **options)


def go_on(path: Path):
    """What a user does: resume, or what its message says."""

    def work():
        try:
            api.resume(path, watch=None)
        except UserError as error:
            if "before it began" not in str(error) and path.exists():
                raise
            train(path)()

    return work


def fingerprint(path: Path):
    """All that must be the same however often the run was killed."""
    lines = [line | dict.fromkeys(runs.TIMES, 0) for line in runs.read_metrics(path)]
    config = json.loads((path / "config.json").read_text())
    found = {
        str(file.relative_to(path)): file.read_bytes()
        for file in path.glob("checkpoints/*/*")
    }
    names = sorted(str(file.relative_to(path)) for file in path.rglob("*"))
    return lines, config, found, names


class Attack:
    """Kills, and what went wrong after them."""

    def __init__(self, root: Path) -> None:
        self.root, self.kills, self.failures = root, 0, []
        child(train(root / "whole"), 0)
        self.whole = fingerprint(root / "whole")

    def killed(self, work, last: int) -> bool:
        """Kill some work once."""
        try:
            dead = child(work, last)
        except AssertionError as error:
            self.failures.append(f"killed at {last}: {error}")
            return False
        self.kills += dead
        return dead

    def check(self, path: Path, story: str) -> None:
        """Go on to the end and compare."""
        try:
            child(go_on(path), 0)
            assert fingerprint(path) == self.whole, "another result"
        except AssertionError as error:
            self.failures.append(f"{story}: {error}")
        shutil.rmtree(path, ignore_errors=True)

    def run(self, most: int) -> None:
        """Every operation of train, every one of resume, then chains at random."""
        for k in itertools.count(1):
            path = self.root / "train"
            if self.kills >= most or not self.killed(train(path), k):
                break
            self.check(path, f"train killed at {k}")
        shutil.rmtree(self.root / "train", ignore_errors=True)
        half = self.root / "half"
        child(train(half), k // 2)
        for j in itertools.count(1):
            path = shutil.copytree(half, self.root / "resume")
            if self.kills >= most or not self.killed(go_on(path), j):
                break
            self.check(path, f"resume killed at {j}")
        shutil.rmtree(self.root / "resume", ignore_errors=True)
        chance = random.Random(0)
        while self.kills < most:
            path, story = self.root / "chain", []
            work = train(path)
            for _ in range(chance.randint(2, 12)):
                story.append(chance.randint(1, max(2, k // 2)))
                if not self.killed(work, story[-1]):
                    break
                work = go_on(path)
            self.check(path, f"chain {story}")


if __name__ == "__main__":
    made_up()
    attack = Attack(Path(sys.argv[1]))
    attack.run(int(sys.argv[2]))
    print(json.dumps({"kills": attack.kills, "failures": attack.failures}))
