"""Scripted policies on Grid and Bottleneck, to see whether the constraints matter.

    python benchmarks/traffic.py Grid Bottleneck --episodes 10

Each policy is a function of the simulator. Trained policies are compared with these by
`ecop train` and `ecop evaluate`.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from ecop.envs import bottleneck, grid

Policy = Callable[[Any, np.random.Generator, int], np.ndarray]


# Grid


def fixed(north: int, east: int) -> Policy:
    """Green for so many seconds, by axis."""
    since = np.zeros(4)

    def act(sim: grid.Grid, rng: np.random.Generator, h: int) -> np.ndarray:
        since[:] = np.where((sim.yellow > 0) | (h == 0), 0, since + 1)
        return np.where(since >= np.where(sim.axis == 0, north, east), 1.0, -1.0)

    return act


def fixed_then_long(green: int, last: int) -> Policy:
    """Green for so many seconds; in the last steps, east-west stays green."""
    short = fixed(green, green)

    def act(sim: grid.Grid, rng: np.random.Generator, h: int) -> np.ndarray:
        hold = (sim.axis == 1) & (h >= grid.HORIZON - last)
        return np.where(hold, -1.0, short(sim, rng, h))

    return act


def waiting(sim: grid.Grid) -> np.ndarray:
    """Vehicles that stand in front of each light, by axis [4, 2]."""
    halting = sim.sumo.edge.getLastStepHaltingNumber
    counts = np.zeros((4, 2))
    for light, name in enumerate(grid.LIGHTS):
        column, row = int(name[0]), int(name[1])
        counts[light, 0] = halting(f"N{column}_{row}") + halting(f"S{column}_{1 - row}")
        counts[light, 1] = halting(f"E{row}_{column}") + halting(f"W{row}_{1 - column}")
    return counts


def actuated(least: int, most: int) -> Policy:
    """Switch when more vehicles wait than are served, within bounds."""
    since = np.zeros(4)

    def act(sim: grid.Grid, rng: np.random.Generator, h: int) -> np.ndarray:
        since[:] = np.where((sim.yellow > 0) | (h == 0), 0, since + 1)
        counts, rows = waiting(sim), np.arange(4)
        more = counts[rows, 1 - sim.axis] > counts[rows, sim.axis]
        return np.where((since >= most) | ((since >= least) & more), 1.0, -1.0)

    return act


GRID: dict[str, Callable[[], Policy]] = {
    "random": lambda: lambda sim, rng, h: rng.uniform(-1, 1, 4),
    "idle (never switch)": lambda: lambda sim, rng, h: -np.ones(4),
    "always switch": lambda: lambda sim, rng, h: np.ones(4),
    "fixed 2 s": lambda: fixed(2, 2),
    "fixed 2 s, long from step 175 on": lambda: fixed_then_long(2, 25),
    "fixed 2 s / 3 s": lambda: fixed(2, 3),
    "fixed 4 s": lambda: fixed(4, 4),
    "fixed 10 s": lambda: fixed(10, 10),
    "fixed 25 s": lambda: fixed(25, 25),
    "fixed 6 s / 25 s": lambda: fixed(6, 25),
    "fixed 10 s / 25 s": lambda: fixed(10, 25),
    "actuated 2..5 s": lambda: actuated(2, 5),
    "actuated 4..20 s": lambda: actuated(4, 20),
    "actuated 10..40 s": lambda: actuated(10, 40),
}


# Bottleneck


SIDES = (1, 2, 3)


def shut(*lanes: str) -> np.ndarray:
    """Stop on these lanes, go on the others."""
    closed = [
        name in lanes for name, n in bottleneck.CONTROLLED.items() for _ in range(n)
    ]
    return np.where(closed, -1.0, 1.0)


def gates(closed: tuple[int, ...]) -> np.ndarray:
    """Stop on some of the side lanes, go on the others and after the first merge."""
    return shut(*(f"e{edge}_{lane}" for edge in (1, 2) for lane in closed))


def sometimes(share: float) -> Policy:
    """Every segment of the side lanes is open with this probability."""

    def act(sim: bottleneck.Bottleneck, rng: np.random.Generator, h: int) -> Any:
        free = rng.random(bottleneck.CONTROLS) < share
        return np.where(free, 1.0, gates(SIDES))

    return act


def fixed_time(closed: int, free: int) -> Policy:
    """The side lanes stop for some steps, then go for some."""

    def act(sim: bottleneck.Bottleneck, rng: np.random.Generator, h: int) -> Any:
        return gates(SIDES if h % (closed + free) < closed else ())

    return act


def patient(most: float, count: int) -> Policy:
    """Open a side lane while so many of its human drivers have waited so long."""

    def act(sim: bottleneck.Bottleneck, rng: np.random.Generator, h: int) -> Any:
        slow = [
            int(v.lane[-1])
            for v in sim.vehicles.values()
            if not v.controlled and v.slow > most and v.lane[:2] in ("e0", "e1", "e2")
        ]
        return gates(tuple(k for k in SIDES if slow.count(k) < count))

    return act


BOTTLENECK: dict[str, Callable[[], Policy]] = {
    "random": lambda: lambda sim, rng, h: rng.uniform(-1, 1, bottleneck.CONTROLS),
    "idle (always go)": lambda: lambda sim, rng, h: gates(()),
    "always stop": lambda: lambda sim, rng, h: -np.ones(bottleneck.CONTROLS),
    "close one side lane": lambda: lambda sim, rng, h: gates((3,)),
    "close two side lanes": lambda: lambda sim, rng, h: gates((2, 3)),
    "close all side lanes": lambda: lambda sim, rng, h: gates(SIDES),
    "close one and the last gate of two": lambda: (
        lambda sim, rng, h: shut("e1_1", "e2_1", "e3_1")
    ),
    "sides open at random, 10 %": lambda: sometimes(0.1),
    "sides open at random, 15 %": lambda: sometimes(0.15),
    "sides open at random, 20 %": lambda: sometimes(0.2),
    "sides open at random, 30 %": lambda: sometimes(0.3),
    "fixed time, closed 8 s, open 4 s": lambda: fixed_time(4, 2),
    "fixed time, closed 20 s, open 4 s": lambda: fixed_time(10, 2),
    "fixed time, closed 40 s, open 10 s": lambda: fixed_time(20, 5),
    "actuated, one waits 8 s": lambda: patient(8.0, 1),
    "actuated, three wait 8 s": lambda: patient(8.0, 3),
    "actuated, six wait 8 s": lambda: patient(8.0, 6),
}

TASKS: dict[str, tuple[type, dict[str, Callable[[], Policy]]]] = {
    "Grid": (grid.Grid, GRID),
    "Bottleneck": (bottleneck.Bottleneck, BOTTLENECK),
}


def play(sim: Any, policy: Policy, seed: int, horizon: int) -> tuple[float, float]:
    """Reward and cost of one episode."""
    sim.reset(seed)
    rng = np.random.default_rng(seed)
    total = np.zeros(2)
    for h in range(horizon):
        out = sim.step(policy(sim, rng, h))
        total += [out.reward, out.costs[0]]
    return total[0], total[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("tasks", nargs="+", choices=list(TASKS))
    parser.add_argument("--episodes", type=int, default=10)
    arguments = parser.parse_args()
    for task in arguments.tasks:
        kind, policies = TASKS[task]
        sim = kind()
        print(f"| {task} | reward | cost | CPU s per episode |\n|---|---|---|---|")
        for name, make in policies.items():
            start = time.process_time()
            rows = np.array(
                [play(sim, make(), seed, 200) for seed in range(arguments.episodes)]
            )
            spent = (time.process_time() - start) / arguments.episodes
            error = rows.std(axis=0, ddof=1) / np.sqrt(len(rows))
            print(
                f"| {name} | {rows[:, 0].mean():.1f} ± {error[0]:.1f} "
                f"| {rows[:, 1].mean():.1f} ± {error[1]:.1f} | {spent:.2f} |",
                flush=True,
            )
        sim.close()


if __name__ == "__main__":
    main()
