"""MuJoCo tasks against the limit: control steps per second, in one interleaved run.

The limit is bare `mj_step` on all cores, half of the robots each. All rows of an
integrator step the same robots from the same states with the same actions, and falls
do not end an episode here. Gymnasium's own environments know RK4 only.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import gymnasium
import jax
import numpy as np

import ecop
from ecop.config import resolve
from ecop.envs.mujoco import physics, torso
from ecop.rollout import Actor, collect_host
from ecop.training import Learner, init_seeds, run_seeds

BATCH, STEPS, ROUNDS = 32, 60, 5
CORES = os.cpu_count() or 1
THEIRS = {"AntCircle": "Ant-v5", "AntReach": "Ant-v5", "Humanoid": "Humanoid-v5"}
SEEDS = np.arange(BATCH, dtype=np.uint32)


def bare(
    env: Any, actions: np.ndarray, seeds: np.ndarray, cores: int
) -> Callable[[], None]:
    """Nothing but mj_step, on so many cores."""
    mujoco = physics.library()
    model, substeps = env.robots.model, env.robots.substeps
    full = model.actuator_ctrlrange[:, 1]
    env.reset(seeds)
    start = env.robots.position.copy(), env.robots.velocity.copy()
    batch = len(seeds)
    data = [mujoco.MjData(model) for _ in seeds]
    pool = ThreadPoolExecutor(cores)

    def share(first: int) -> None:
        for i in range(first, batch, cores):
            mujoco.mj_resetData(model, data[i])
            data[i].qpos[:], data[i].qvel[:] = start[0][i], start[1][i]
        for action in actions:
            for i in range(first, batch, cores):
                data[i].ctrl[:] = full * action[i]
                mujoco.mj_step(model, data[i], nstep=substeps)

    return lambda: [None for _ in pool.map(share, range(cores))] and None


def stepping(env: Any, actions: np.ndarray, seeds: np.ndarray) -> Callable[[], None]:
    """Our task: physics, observation, reward, cost, failure."""

    def go() -> None:
        env.reset(seeds)
        for action in actions:
            env.step(action)

    return go


def collecting(env: Any) -> Callable[[], None]:
    """The same with the policy in the loop: what training calls."""
    algorithm, config, _ = resolve("AntCircle", "ecop", given={"seeds": 1})
    learner = Learner(env, env.spec, algorithm, config)
    collect = collect_host(env, learner.policy)
    state = init_seeds(learner)[0]
    actor = Actor(state.policy, state.normaliser)
    return lambda: (
        jax.block_until_ready(collect([actor], [state.key], [BATCH])) and None
    )


def training(env: Any, seeds: int) -> Iterator[int]:
    """Whole iterations of e-COP; yields control steps."""
    algorithm, config, _ = resolve("AntCircle", "ecop", given={"seeds": seeds})
    learner = Learner(env, env.spec, algorithm, config)
    states = init_seeds(learner)
    for _ in run_seeds(learner, states, [1] * 1000):
        yield seeds * config.episodes * env.spec.horizon


def vectorised(name: str, kind: str, actions: np.ndarray) -> Callable[[], None]:
    """Gymnasium's vector environments of the same robot."""

    def make() -> Any:
        return gymnasium.make(name, terminate_when_unhealthy=False)

    makers = [make] * BATCH
    envs = (
        gymnasium.vector.SyncVectorEnv(makers)
        if kind == "SyncVectorEnv"
        else gymnasium.vector.AsyncVectorEnv(makers, context="fork")
    )
    full = envs.single_action_space.high[0]  # pyright: ignore

    def go() -> None:
        envs.reset(seed=0)
        for action in actions:
            envs.step(full * action)

    return go


def compare(task: str) -> None:
    torso.healthy = lambda robots, low, high: np.ones(len(robots.position), bool)
    rng = np.random.default_rng(0)
    size = ecop.make(task).spec.action.size
    actions = rng.uniform(-0.5, 0.5, (STEPS, BATCH, size)).astype(np.float32)
    rows: dict[str, tuple[Callable[[], Any], str]] = {}
    for kind in ("SyncVectorEnv", "AsyncVectorEnv"):  # first: they start processes
        rows[f"Gymnasium {kind}, RK4"] = (
            vectorised(THEIRS[task], kind, actions),
            "rk4",
        )
    for integrator in ("rk4", "euler"):
        env = ecop.make(task, horizon=STEPS, integrator=integrator)
        name = {"rk4": "RK4", "euler": "Euler"}[integrator]
        rows[f"bare mj_step, {name}"] = bare(env, actions, SEEDS, CORES), integrator
        rows[f"{task}, {name}"] = stepping(env, actions, SEEDS), integrator
        other = ecop.make(task, horizon=STEPS, integrator=integrator)
        rows[f"{task} with the policy, {name}"] = collecting(other), integrator
        for seeds in (1, 3):
            env = ecop.make(task, horizon=STEPS, integrator=integrator)
            steps = training(env, seeds)
            what = f"e-COP, {seeds} seed{'s' * (seeds > 1)}, whole iterations, {name}"
            rows[what] = (lambda steps=steps: next(steps)), integrator

    for go, _ in rows.values():
        go()
    pace: dict[str, list[float]] = {name: [] for name in rows}
    for _ in range(ROUNDS):
        for name, (go, _) in rows.items():
            start = time.perf_counter()
            steps = go() or BATCH * STEPS
            pace[name].append(steps / (time.perf_counter() - start))
    limit = {
        "rk4": np.median(pace["bare mj_step, RK4"]),
        "euler": np.median(pace["bare mj_step, Euler"]),
    }
    print(f"{task}, batch {BATCH}, {os.cpu_count()} cores, median of {ROUNDS} rounds")
    for name, (_, integrator) in rows.items():
        middle = np.median(pace[name])
        print(f"{name:48} {middle:8,.0f} /s {100 * middle / limit[integrator]:5.0f} %")
