"""The Safe Velocity suite against the limit: control steps per second, interleaved.

The limit is bare `mj_step` on all cores, each robot on its own, none waiting for
another. A task waits for all of them after every step, because the policy does. Falls
do not end an episode here, though it is still looked for them.
"""

from __future__ import annotations

import os
import time
from dataclasses import replace
from typing import Any

import numpy as np

import ecop
from ecop.envs.mujoco.robots import Robot
from robots import bare, stepping

BATCHES, VERSIONS, ROUNDS = (2, 32), ("v4", "v5"), 7
STEPS = 3200  # of all robots together


def tireless(robot: Robot) -> Robot:
    """The robot whose falls do not count."""
    rule = robot.healthy
    return replace(robot, healthy=lambda state: rule(state) | True)


def compare(task: str) -> None:
    rows: dict[tuple[str, int], Any] = {}
    for batch in BATCHES:
        seeds = np.arange(batch, dtype=np.uint32)
        for version in VERSIONS:
            env = ecop.make(task, version=version)
            env.robot = tireless(env.robot)
            shape = STEPS // batch, batch, env.spec.action.size
            actions = np.random.default_rng(0).uniform(-1.0, 1.0, shape)
            actions = actions.astype(np.float32)
            rows[f"bare mj_step, {version}", batch] = bare(env, actions, seeds)
            rows[f"{task}, {version}", batch] = stepping(env, actions, seeds)
    pace: dict[Any, list[float]] = {row: [] for row in rows}
    for _ in range(1 + ROUNDS):
        for row, go in rows.items():
            start = time.perf_counter()
            go()
            pace[row].append(STEPS / (time.perf_counter() - start))
    middle = {row: float(np.median(values[1:])) for row, values in pace.items()}
    print(f"{task}, {os.cpu_count()} cores, median of {ROUNDS} rounds")
    for name, batch in rows:
        limit = middle[f"bare mj_step, {name[-2:]}", batch]
        rate = middle[name, batch]
        print(f"{name:28} batch {batch:2} {rate:8,.0f} /s {100 * rate / limit:5.0f} %")
