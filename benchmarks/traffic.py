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


def action(speed: float, lanes: tuple[int, ...] = (0, 1, 2, 3)) -> np.ndarray:
    """The same speed on some lanes of the four-lane edges, free on the others."""
    wanted = np.full(bottleneck.CONTROLS, bottleneck.LIMIT_SPEED)
    wanted[: bottleneck.CONTROLLED_START[3]].reshape(2, 4, 2)[:, lanes] = speed
    span = bottleneck.LIMIT_SPEED - bottleneck.LEAST_SPEED
    return 2.0 * (wanted - bottleneck.LEAST_SPEED) / span - 1.0


def hysteresis(low: int, high: int, slow: float, fast: float) -> Policy:
    """Pace slowly from `high` vehicles in and after the merge until `low` are left."""
    state = {"slow": False}

    def act(sim: bottleneck.Bottleneck, rng: np.random.Generator, h: int) -> Any:
        behind = sum(v.lane[:2] in ("e3", "e4") for v in sim.vehicles.values())
        state["slow"] = behind > high or (state["slow"] and behind > low)
        return action(slow if state["slow"] else fast)

    return act


BOTTLENECK: dict[str, Callable[[], Policy]] = {
    "random": lambda: lambda sim, rng, h: rng.uniform(-1, 1, bottleneck.CONTROLS),
    "idle (free speed)": lambda: lambda sim, rng, h: np.ones(bottleneck.CONTROLS),
    "hold 1 m/s": lambda: lambda sim, rng, h: action(1.0),
    "pace 2.5 m/s": lambda: lambda sim, rng, h: action(2.5),
    "pace 3 m/s": lambda: lambda sim, rng, h: action(3.0),
    "pace 4 m/s": lambda: lambda sim, rng, h: action(4.0),
    "pace 5.2 m/s": lambda: lambda sim, rng, h: action(5.2),
    "pace 6 m/s": lambda: lambda sim, rng, h: action(6.0),
    "pace 8 m/s": lambda: lambda sim, rng, h: action(8.0),
    "close three lanes": lambda: lambda sim, rng, h: action(1.0, (1, 2, 3)),
    "actuated 1 or 3.5 m/s": lambda: hysteresis(8, 12, 1.0, 3.5),
    "actuated 2 or 6 m/s": lambda: hysteresis(8, 12, 2.0, 6.0),
    "actuated 5.2 or 9 m/s": lambda: hysteresis(6, 10, 5.2, 9.0),
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
