"""How collection scales with actors and workers, and where the driver saturates.

    python benchmarks/scaling.py sleep [--actors 1 2 4 8 16 32 64] [--where ray local]
    python benchmarks/scaling.py hosts [--tasks Grid Bottleneck]   # on an idle machine
    python benchmarks/scaling.py driver                            # the model's parts

sleep: simulators that sleep 10 ms per step (faulty.py): they need no core, so what is
missing to actors times the rate of one bare simulator is what the machinery costs.
hosts: decisions per second of bare simulators, one process per core, beside collection
with as many workers and actors.
driver: processor time of the driver per episode and per batch, and of an update; with
them the model of docs/scaling.md, checked against the points of `sleep`.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

import ecop
import faulty
from ecop.learning import normaliser
from ecop.learning.networks import Policy
from ecop.rollout import Actor, collect_host
from ecop.simulators.cores import cores
from ecop.simulators.on_ray import Actors, connected
from ecop.simulators.pool import SimulatorPool
from ecop.simulators.processes import Processes
from ecop.training import Learner, TrainConfig, init_seeds

SLEEP = 0.01  # s per step
ROUNDS = 3
EACH = 8  # episodes per actor and batch


class Point(NamedTuple):
    """What was measured with some actors."""

    seconds: float  # of a batch
    processor: float  # s of the driver's processor time
    everyone: float  # s of processor time of all that it started, too
    episodes: int
    steps: int


def collection(env: Any) -> Callable[[int], int]:
    """A function that collects some episodes and returns their steps."""
    policy = Policy(env.spec)
    actor = Actor(
        policy.init(jax.random.key(0)), normaliser.init(env.spec.observation_size)
    )
    collect = collect_host(env, policy)
    number, key = itertools.count(), jax.random.key(1)

    def go(count: int) -> int:
        i = next(number)
        now, later = (jax.random.fold_in(key, i + k) for k in range(2))
        episodes = collect([actor], [now], [count], [later])[0]
        return int(np.asarray(episodes.alive).sum())

    return go


def measure(env: Any, episodes: int, rounds: int = ROUNDS) -> Point:
    """The median batch, after one that starts all workers."""
    go = collection(env)
    go(episodes)
    go(episodes)
    points = []
    for _ in range(rounds):
        before = time.perf_counter(), time.process_time(), descendants()
        steps = go(episodes)
        after = time.perf_counter(), time.process_time(), descendants()
        spent, worked, theirs = (b - a for a, b in zip(before, after, strict=True))
        points.append(Point(spent, worked, worked + theirs, episodes, steps))
    return sorted(points)[len(points) // 2]


def descendants() -> float:
    """Seconds of processor time of all processes that this one started (Linux)."""
    spent, children = {}, {}
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (entry / "stat").read_text().rpartition(")")[2].split()
            spent[int(entry.name)] = int(words[11]) + int(words[12])
            children.setdefault(int(words[1]), []).append(int(entry.name))
    found, total = children.get(os.getpid(), []), 0
    while found:
        pid = found.pop()
        total += spent[pid]
        found = found + children.get(pid, [])
    return total / os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def crewed(env: SimulatorPool, where: str, count: int) -> Iterator[None]:
    """Let some processes of this machine, or actors of Ray, play."""
    if where == "local":
        with env.played_by(Processes(count)):
            yield
        return
    with (
        connected(None, count) as ray,
        contextlib.closing(Actors(ray, count)) as crew,
        env.played_by(crew),
    ):
        yield


def walk(sleep: float, horizon: int) -> SimulatorPool:
    os.environ["FAULTY_SLEEP"] = str(sleep)
    return faulty.walk(horizon)


def bare_step(sleep: float) -> float:
    """Seconds of a step of one bare simulator."""
    simulator = walk(sleep, 50)._player.make()
    simulator.reset(0)
    start = time.perf_counter()
    for _ in range(200):
        simulator.step(np.zeros(1, np.float32))
    return (time.perf_counter() - start) / 200


def sleeping(actors: list[int], where: list[str]) -> None:
    horizon = 50
    step = bare_step(SLEEP)
    print(f"bare simulator: {1e3 * step:.2f} ms per step, {EACH} episodes per actor")
    print("| where | actors | steps/s | efficiency | driver, ms per episode |")
    print("|---|---|---|---|---|")
    for place in where:
        for count in actors:
            env = walk(SLEEP, horizon)
            with crewed(env, place, count):
                point = measure(env, EACH * count)
            rate = point.steps / point.seconds
            share = rate * step / count
            driver = 1e3 * point.processor / point.episodes
            print(
                f"| {place} | {count} | {rate:,.0f} | {100 * share:.1f} % | "
                f"{driver:.2f} |",
                flush=True,
            )


BARE = """
import importlib, sys, time
import numpy as np
module = importlib.import_module("ecop.envs.sumo." + sys.argv[1].lower())
simulator = getattr(module, sys.argv[1])()
size = getattr(module, sys.argv[1].lower())(workers=0).spec.action.size
rng = np.random.default_rng(0)
def episode(seed):
    simulator.reset(seed)
    for _ in range(module.HORIZON):
        simulator.step(rng.uniform(-1.0, 1.0, size))
episode(0)
print("ready", flush=True)
sys.stdin.readline()
for seed in range(int(sys.argv[2])):
    episode(seed)
"""


def bare_hosts(task: str, count: int, episodes: int) -> float:
    """Decisions per second of bare simulators, each in a process of its own."""
    command = [sys.executable, "-c", BARE, task, str(episodes)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    children: list[Any] = [subprocess.Popen(command, **pipes) for _ in range(count)]
    for child in children:
        child.stdout.readline()
    start = time.perf_counter()
    for child in children:
        child.stdin.write("\n")
        child.stdin.flush()
    for child in children:
        child.wait()
    horizon = ecop.make(task, workers=0).spec.horizon
    return count * episodes * horizon / (time.perf_counter() - start)


def hosts(tasks: list[str]) -> None:
    print("| task | processes | bare | local | local / bare | Ray | Ray / bare |")
    print("|---|---|---|---|---|---|---|")
    for task in tasks:
        episodes = 40 if task == "Grid" else 16
        for count in (1, 2):
            bare = bare_hosts(task, count, episodes)
            rates = []
            for place in ("local", "ray"):
                env = ecop.make(task, workers=0)
                with crewed(env, place, count):
                    point = measure(env, episodes * count)
                rates.append(point.steps / point.seconds)
            cells = [f"{rate:,.0f} | {rate / bare:.2f}" for rate in rates]
            print(
                f"| {task} | {count} | {bare:,.0f} | {' | '.join(cells)} |", flush=True
            )


class Parts(NamedTuple):
    """What the model is made of: seconds of a processor."""

    episode: float  # of the driver, to hand one out and take it in
    everyone: float  # of all, for an episode: driver, actors, simulators, Ray
    update: float  # of the driver, for an episode of 50 steps


def model(parts: Parts, actors: int, episodes: int, length: float, here: int) -> float:
    """Seconds to collect a batch of episodes of `length` seconds each.

    The slowest of three decides: the actors, the driver, which serves one after
    another, and, where all share one machine, its cores.
    """
    played = -(-episodes // actors) * length
    shared = parts.everyone * episodes / here if here else 0.0
    return max(played, parts.episode * episodes, shared)


def driver_parts() -> Parts:
    """Processor time of short episodes, each heard by itself; time of an update."""
    env = walk(0.002, 50)
    with crewed(env, "ray", 8):
        point = measure(env, 128, 5)
    return Parts(point.processor / 128, point.everyone / 128, update())


def update() -> float:
    env = walk(0.0, 50)
    learner = Learner(env, env.spec, ecop.ECOP(), TrainConfig(seeds=1))
    state = init_seeds(learner)[0]
    actor, key = Actor(state.policy, state.normaliser), learner.keys(state)[0]
    times = []
    for count in (40, 400):
        episodes = collect_host(env, learner.policy)([actor], [key], [count])[0]
        learn = jax.jit(learner.learn)
        jax.block_until_ready(learn(state, episodes))
        start = time.perf_counter()
        for _ in range(3):
            jax.block_until_ready(learn(state, episodes))
        times.append((time.perf_counter() - start) / 3)
    return (times[1] - times[0]) / 360


def driver_model() -> None:
    parts = driver_parts()
    print(
        f"per episode: driver {1e3 * parts.episode:.2f} ms, all together "
        f"{1e3 * parts.everyone:.2f} ms; update {1e3 * parts.update:.2f} ms; load "
        f"{os.getloadavg()[0]:.1f} on {cores()} cores"
    )
    print(
        "| sleep, ms | actors | episodes | measured, s | model, s | measured / model |"
    )
    print("|---|---|---|---|---|---|")
    for sleep, count in itertools.product((0.01, 0.002, 0.0005), (8, 32)):
        step = bare_step(sleep)
        env = walk(sleep, 50)
        with crewed(env, "ray", count):
            point = measure(env, EACH * count)
        said = model(parts, count, EACH * count, 50 * step, cores())
        print(
            f"| {1e3 * sleep:g} | {count} | {EACH * count} | {point.seconds:.3f} | "
            f"{said:.3f} | {point.seconds / said:.2f} |",
            flush=True,
        )
    print("| seconds of an episode | actors that one driver can serve |")
    print("|---|---|")
    for length in (0.03, 0.14, 1.0, 10.0, 100.0):
        print(f"| {length:g} | {length / parts.episode:,.0f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("what", choices=["sleep", "hosts", "driver"])
    counts = [1, 2, 4, 8, 16, 32, 64]
    parser.add_argument("--actors", type=int, nargs="+", default=counts)
    parser.add_argument("--where", nargs="+", default=["local", "ray"])
    parser.add_argument("--tasks", nargs="+", default=["Grid", "Bottleneck"])
    arguments = parser.parse_args()
    if arguments.what == "sleep":
        sleeping(arguments.actors, arguments.where)
    elif arguments.what == "hosts":
        hosts(arguments.tasks)
    else:
        driver_model()


if __name__ == "__main__":
    main()
