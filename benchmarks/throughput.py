"""Where the time goes: environment steps per second, phases, growth with the horizon.

    python benchmarks/throughput.py [--task PointCircle] [--seeds 1 5]
    python benchmarks/throughput.py --sumo
    python benchmarks/throughput.py --task AntCircle     # or AntReach, Humanoid
    python benchmarks/throughput.py --task AntVelocity   # and its kind

Run it on an idle machine. Figures of one run may be compared with each other, not with
those of another run.
"""

from __future__ import annotations

import argparse
import importlib
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import ecop
from ecop.rollout import Actor, collect_jax, collector
from ecop.training import (
    DISPATCH,
    Learner,
    TrainConfig,
    init_seeds,
    run_seeds,
    stack,
)


def seconds(call: Callable[..., Any], *arguments: Any, repeat: int = 10) -> float:
    """Best mean of three: seconds per call, after one call to compile."""
    jax.block_until_ready(call(*arguments))
    best = float("inf")
    for _ in range(3):
        start = time.perf_counter()
        for _ in range(repeat):
            result = call(*arguments)
        jax.block_until_ready(result)
        best = min(best, (time.perf_counter() - start) / repeat)
    return best


def build(task: str, algorithm: Any, **options: Any) -> Learner:
    horizon = options.get("horizon")
    env = ecop.make(task, **({} if horizon is None else {"horizon": horizon}))
    return Learner(env, env.spec, algorithm, TrainConfig(**options))


def end_to_end(task: str, seeds: int, iterations: int) -> None:
    learner = build(task, ecop.ECOP(), seeds=seeds)
    states = init_seeds(learner)
    start = time.perf_counter()
    jax.block_until_ready(learner.advance(states[0], jnp.int32(1)))
    compiling = time.perf_counter() - start
    counts = [DISPATCH] * (iterations // DISPATCH)
    start = time.perf_counter()
    for _ in run_seeds(learner, states, counts):
        pass
    spent = time.perf_counter() - start
    steps = sum(counts) * seeds * learner.episodes * learner.spec.horizon
    print(
        f"{seeds} seed(s): {steps / spent:,.0f} environment steps/s end to end "
        f"(compilation {compiling:.1f} s)"
    )


def batch_of(learner: Learner, state: Any, episodes: Any) -> tuple[Any, Any]:
    """An algorithm's batch, and the targets of the critics."""
    x = learner.seen(state, episodes)
    advantages, values = learner.advantages(state.critics, x, episodes)
    batch, _ = learner.batch(state, episodes, x, advantages)
    return batch, advantages + values


def phases(task: str) -> None:
    learner = build(task, ecop.ECOP())
    state = jax.jit(learner.init)(jnp.uint32(0))
    collect = collect_jax(learner.env, learner.policy, learner.episodes)
    key, critic_key, update_key = learner.keys(state)
    actor = Actor(state.policy, state.normaliser)
    run = jax.jit(collect)
    episodes = run(actor, key)
    batched = jax.jit(partial(batch_of, learner))
    batch, target = batched(state, episodes)
    update = jax.jit(learner.algorithm.update, static_argnums=1)
    fit = jax.jit(learner.critics.fit)
    parts = {
        "collect": seconds(run, actor, key),
        "advantages": seconds(batched, state, episodes),
        "e-COP update": seconds(
            update, update_key, learner.policy, state.policy, state.algorithm, batch
        ),
        "critic fit": seconds(
            fit, critic_key, state.critics, batch.observation, target, batch.alive
        ),
    }
    total = sum(parts.values())
    for name, part in parts.items():
        print(f"{name:14} {1e3 * part:6.1f} ms  {100 * part / total:3.0f} %")
    raw_rollout(task)


def raw_rollout(task: str) -> None:
    many = 200
    learner = build(task, ecop.ECOP())
    state = jax.jit(learner.init)(jnp.uint32(0))
    actor = Actor(state.policy, state.normaliser)
    raw = jax.jit(collect_jax(learner.env, learner.policy, many))
    key = learner.keys(state)[0]
    alone = many * learner.spec.horizon / seconds(raw, actor, key, repeat=3)
    cores = os.cpu_count() or 1

    def on_all_cores() -> Any:
        return list(
            pool.map(lambda _: jax.block_until_ready(raw(actor, key)), range(cores))
        )

    with ThreadPoolExecutor(cores) as pool:
        spent = seconds(on_all_cores, repeat=3)
    both = cores * many * learner.spec.horizon / spent
    print(
        f"raw rollout of {task}, {many} episodes per call: {alone:,.0f} steps/s, "
        f"one call per core: {both:,.0f} steps/s"
    )


def growth(task: str) -> None:
    chosen = ecop.ECOP().backward_steps
    print(f"seconds of one update by horizon: literal pass | {chosen} backward steps")
    for horizon in (50, 100, 200, 400, 800):
        row = []
        for steps in (0, chosen):
            learner = build(task, ecop.ECOP(backward_steps=steps), horizon=horizon)
            state = jax.jit(learner.init)(jnp.uint32(0))
            key, _, update_key = learner.keys(state)
            collect = collect_jax(learner.env, learner.policy, learner.episodes)
            episodes = jax.jit(collect)(Actor(state.policy, state.normaliser), key)
            batch, _ = jax.jit(partial(batch_of, learner))(state, episodes)
            update = jax.jit(learner.algorithm.update, static_argnums=1)
            arguments = (update_key, learner.policy, state.policy, state.algorithm)
            row.append(seconds(update, *arguments, batch, repeat=2))
        print(f"H = {horizon:4}: {row[0]:8.4f} | {row[1]:8.4f}")


def sumo(task: str, episodes: int) -> None:
    """Decisions per second of one core, and the share of SUMO in it."""
    module = importlib.import_module(f"ecop.envs.sumo.{task.lower()}")
    simulator = getattr(module, task)()
    rng = np.random.default_rng(0)
    horizon, size = module.HORIZON, getattr(module, task.lower())().spec.action.size
    inside = 0.0
    step = simulator.sumo.simulationStep

    def timed() -> None:
        nonlocal inside
        start = time.process_time()
        step()
        inside += time.process_time() - start

    simulator.sumo.simulationStep = timed
    start = time.process_time()
    for seed in range(episodes):
        simulator.reset(seed)
        for _ in range(horizon):
            simulator.step(rng.uniform(-1.0, 1.0, size))
    spent = time.process_time() - start
    simulator.sumo.simulationStep = step
    simulator.close()
    print(
        f"{task}: {episodes * horizon / spent:,.0f} decisions/s of a core "
        f"({spent / episodes:.2f} s per episode), {100 * inside / spent:.0f} % in SUMO"
    )


def sumo_collect(task: str, workers: int, episodes: int) -> None:
    """Decisions per second of a whole collection, by the clock, after compiling."""
    env = ecop.make(task, workers=workers)
    learner = Learner(env, env.spec, ecop.ECOP(), TrainConfig(seeds=1))
    state = init_seeds(learner)[0]
    collect = collector(env, learner.policy, episodes)
    arguments = stack([(Actor(state.policy, state.normaliser), state.key)])
    collect(*arguments)
    start = time.perf_counter()
    collect(*arguments)
    rate = episodes * env.spec.horizon / (time.perf_counter() - start)
    env.close()
    place = f"{workers} worker(s)" if workers else "in this process"
    print(f"{task}, {place}: {rate:,.0f} decisions/s, with the policy")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--task", default="PointCircle")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 5])
    parser.add_argument("--iterations", type=int, default=50)
    parser.add_argument("--sumo", action="store_true", help="Grid and Bottleneck only")
    arguments = parser.parse_args()
    if arguments.sumo:
        for task in ("Grid", "Bottleneck"):
            sumo(task, 10)
            for workers in (0, 1, 2, 3, 4):
                sumo_collect(task, workers, 12)
        return
    if arguments.task in ("AntCircle", "AntReach", "Humanoid"):
        import robots

        return robots.compare(arguments.task)
    if arguments.task.endswith("Velocity"):
        import velocity

        return velocity.compare(arguments.task)
    for count in arguments.seeds:
        end_to_end(arguments.task, count, arguments.iterations)
    phases(arguments.task)
    if arguments.task != "Navigation":
        raw_rollout("Navigation")
    growth(arguments.task)


if __name__ == "__main__":
    main()
