"""The Safe Velocity suite against the limit: control steps per second, interleaved.

The limit is bare `mj_step`, each robot on its own, none waiting for another. A task
waits for all of them after every step, because the policy does. Measured by the clock
on all cores, which wants an idle machine, and by the processor's time on one, which
does not. Falls do not end an episode here, though it is still looked for them.
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
STEPS = 1600  # of all robots together


def tireless(robot: Robot) -> Robot:
    """The robot whose falls do not count."""
    rule = robot.healthy
    return replace(robot, healthy=lambda state: rule(state) | True)


def compare(task: str) -> None:
    cores = os.cpu_count() or 1
    clocks = {cores: time.perf_counter, 1: time.process_time}
    print(f"{task}, median of {ROUNDS} rounds: steps/s, share of bare mj_step")
    for threads, clock in clocks.items():
        for batch in BATCHES:
            rows = build(task, batch, threads)
            pace: dict[str, list[float]] = {row: [] for row in rows}
            for _ in range(1 + ROUNDS):
                for row, go in rows.items():
                    start = clock()
                    go()
                    pace[row].append(STEPS / (clock() - start))
            kind = "by the clock" if clock is time.perf_counter else "CPU time"
            for version in VERSIONS:
                limit, ours = (
                    float(np.median(pace[f"{who} {version}"][1:]))
                    for who in ("bare", "ours")
                )
                print(
                    f"{version}, batch {batch:2}, {threads} core(s), {kind:12} "
                    f"{limit:8,.0f} {ours:8,.0f} {100 * ours / limit:5.0f} %"
                )


def build(task: str, batch: int, threads: int) -> dict[str, Any]:
    """What is timed: bare and ours of each version."""
    seeds = np.arange(batch, dtype=np.uint32)
    rows = {}
    for version in VERSIONS:
        env = ecop.make(task, version=version, threads=threads)
        env.robot = tireless(env.robot)
        shape = STEPS // batch, batch, env.spec.action.size
        actions = np.random.default_rng(0).uniform(-1.0, 1.0, shape)
        actions = actions.astype(np.float32)
        rows[f"bare {version}"] = bare(env, actions, seeds, threads)
        rows[f"ours {version}"] = stepping(env, actions, seeds)
    return rows
