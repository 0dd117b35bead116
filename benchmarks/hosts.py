"""What a step of a Gymnasium environment costs: ours, a bare loop, Gymnasium's vector.

    python benchmarks/hosts.py [--rounds 5] [HalfCheetah-v5 ...]

Microseconds per living step (a step that an episode takes; resets are paid by them), in
one process, median of rounds in which all rows take turns:

    bare       one environment, its actions drawn beforehand, nothing else
    Sync       gymnasium.vector.SyncVectorEnv of 8, actions drawn beforehand
    Sync, act  the same with our NumPy policy for its actions
    ours       `ecop.from_gymnasium` with a cost function, workers=0: policy, cost and
               the whole episodes of a batch as arrays, ready for the learner

All act at random in the same way: ours is the first policy of a run. Figures of one run
may be compared with each other, not with those of another run.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import gymnasium
import jax
import numpy as np

import ecop
from ecop.interop.gymnasium_in import action_form
from ecop.learning import normaliser
from ecop.learning.networks import Policy
from ecop.rollout import Actor, collect_host, exporter
from ecop.simulators.acting import act_together
from ecop.types import Box

TASKS = ("HalfCheetah-v5", "Hopper-v5", "Pendulum-v1", "CartPole-v1")
COUNT = 8  # environments of the vector
STEPS = 16_000  # of a round, about


def energy(obs: Any, action: Any, next_obs: Any, info: Any, t: int) -> float:
    return 1.0


def make(name: str) -> gymnasium.Env:
    return gymnasium.make(name, disable_env_checker=True)


def drawn(name: str, policy: Policy, rows: int) -> Any:
    """Actions [T, rows] as the environment wants them, distributed as the policy's."""
    noise = policy.noise(jax.random.key(1), (STEPS // rows, rows))
    if isinstance(policy.spec.action, Box):
        actions = np.exp(policy.initial_log_std) * np.asarray(noise)
    else:
        actions = np.argmax(noise, axis=-1).astype(np.int32)
    to_actions = action_form(make(name).action_space)
    return [np.asarray(to_actions(part)) for part in actions]


def bare(name: str, policy: Policy) -> Callable[[], int]:
    env = make(name)
    rows = [part[0] for part in drawn(name, policy, 1)]
    actions = rows if isinstance(policy.spec.action, Box) else [int(a) for a in rows]

    def go() -> int:
        env.reset(seed=0)
        for action in actions:
            _, _, terminated, truncated, _ = env.step(action)
            if terminated or truncated:
                env.reset()
        return len(actions)

    return go


def sync(name: str, policy: Policy, acting: bool) -> Callable[[], int]:
    envs = gymnasium.vector.SyncVectorEnv([lambda: make(name)] * COUNT)
    actions = drawn(name, policy, COUNT)
    plain, spread = exporter(policy)(actor(policy))
    noise = spread * np.asarray(policy.noise(jax.random.key(1), (STEPS, COUNT)))
    to_actions = action_form(make(name).action_space)
    single = noise[: len(actions)]

    def go() -> int:
        living, over = 0, np.zeros(COUNT, bool)
        seen, _ = envs.reset(seed=0)
        for given, rows in zip(actions, single, strict=True):
            if acting:
                seen = np.asarray(seen, np.float32)
                given = to_actions(act_together(plain, seen, 0, rows))
            seen, _, terminated, truncated, _ = envs.step(given)
            living += COUNT - int(over.sum())  # where one is over, a step is a reset
            over = terminated | truncated
        return living

    return go


def actor(policy: Policy) -> Actor:
    params = policy.init(jax.random.key(0))
    return Actor(params, normaliser.init(policy.spec.observation_size))


def ours(env: Any, policy: Policy) -> Callable[[], int]:
    collect = collect_host(env, policy)
    acting, key = actor(policy), jax.random.key(2)
    first = collect([acting], [key], [COUNT])[0]
    count = int(STEPS * COUNT / np.asarray(first.alive).sum())

    def go() -> int:
        episodes = collect([acting], [key], [count])[0]
        return int(np.asarray(episodes.alive).sum())

    return go


def compare(name: str, rounds: int) -> None:
    env = ecop.from_gymnasium(name, costs=energy, limits=[1.0])
    policy = Policy(env.spec)  # with the default hidden layers
    rows = {
        "bare": bare(name, policy),
        "Sync": sync(name, policy, acting=False),
        "Sync, act": sync(name, policy, acting=True),
        "ours": ours(env, policy),
    }
    cost: dict[str, list[float]] = {row: [] for row in rows}
    for go in rows.values():
        go()
    for _ in range(rounds):
        for row, go in rows.items():
            start = time.perf_counter()
            steps = go()
            cost[row].append(1e6 * (time.perf_counter() - start) / steps)
    env.close()
    middle = {row: float(np.median(values)) for row, values in cost.items()}
    figures = " | ".join(f"{value:6.1f}" for value in middle.values())
    ratios = [middle["ours"] / middle[row] for row in list(rows)[:3]]
    print(f"| {name:14} | {figures} | " + " | ".join(f"{r:.2f}" for r in ratios) + " |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("tasks", nargs="*", default=TASKS)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    print(
        "| us per step | bare | Sync | Sync, act | ours | ours / bare | / Sync | ",
        end="",
    )
    print("/ Sync, act |")
    for name in arguments.tasks:
        compare(name, arguments.rounds)


if __name__ == "__main__":
    main()
