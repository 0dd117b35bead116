"""What others have published on tasks of ours: reward and cost, with their source.

Protocols differ: a source says what its figure is of, and what ± means there. The
robots of Gymnasium's versions 2 and 3 are close to 4 and 5, not equal to them.
"""

from __future__ import annotations

from typing import NamedTuple


class Source(NamedTuple):
    """Where figures come from."""

    name: str
    address: str
    protocol: str


class Figure(NamedTuple):
    """One published figure."""

    source: Source
    algorithm: str
    steps: int  # of the environment, of one run
    reward: float
    spread: float | None = None  # what the source writes after ±
    cost: float | None = None


TIANSHOU = Source(
    "Tianshou",
    "github.com/thu-ml/tianshou, examples/mujoco/README.md",
    "v3 robots, 10 seeds, the best mean of 10 test episodes on the way, ± deviation",
)
ZOO = Source(
    "SB3 zoo",
    "github.com/DLR-RM/rl-baselines3-zoo, benchmark.md",
    "v3 robots, 1 seed, options tuned for each task, deterministic policy, ± deviation "
    "of episodes",
)
CLEANRL = Source(
    "CleanRL",
    "docs.cleanrl.dev, PPO, ppo_continuous_action.py",
    "v4 robots, 3 seeds, episodes at the end of training, ± deviation",
)
CTRPO = Source(
    "C-TRPO",
    "github.com/milosen/ctrpo, run files",
    "Safety-Gymnasium, 5 seeds, mean of 5 epochs around that step, limit 25",
)
OMNISAFE = Source(
    "OmniSafe",
    "github.com/PKU-Alignment/omnisafe, table of on-policy algorithms",
    "Safety-Gymnasium, limit 25",
)

MILLION = 1_000_000


def _ppo(source: Source, reward: float, spread: float) -> Figure:
    return Figure(source, "PPO", MILLION, reward, spread)


def _run(algorithm: str, millions: int, reward: float, cost: float) -> Figure:
    return Figure(CTRPO, algorithm, millions * MILLION, reward, cost=cost)


def _table(algorithm: str, reward: float, cost: float) -> Figure:
    return Figure(OMNISAFE, algorithm, 10 * MILLION, reward, cost=cost)


# By suite and task.
PUBLISHED: dict[str, dict[str, tuple[Figure, ...]]] = {
    "yardstick": {
        "HalfCheetahVelocity": (
            _ppo(TIANSHOU, 5784, 1244),
            _ppo(ZOO, 5819, 664),
            _ppo(CLEANRL, 1443, 46),
        ),
        "HopperVelocity": (
            _ppo(TIANSHOU, 2609, 701),
            _ppo(ZOO, 2410, 10),
            _ppo(CLEANRL, 2383, 272),
        ),
        "Walker2dVelocity": (
            _ppo(TIANSHOU, 3589, 757),
            _ppo(ZOO, 3479, 822),
            _ppo(CLEANRL, 2288, 572),
        ),
        "AntVelocity": (_ppo(TIANSHOU, 3258, 1079), _ppo(ZOO, 1327, 452)),
        "HumanoidVelocity": (_ppo(TIANSHOU, 787, 194), _ppo(CLEANRL, 716, 49)),
    },
    "velocity": {
        "AntVelocity": (
            _run("C-TRPO", 1, 1652, 15.8),
            _run("TRPO-L", 2, 2747, 23.5),
            _run("C-TRPO", 10, 3092, 15.9),
            _run("PPO-L", 10, 3193, 26.3),
            _run("P3O", 10, 3089, 20.5),
            _table("PPO-L", 3262, 12.1),
        ),
        "HalfCheetahVelocity": (
            _run("C-TRPO", 1, 1556, 19.2),
            _run("TRPO-L", 2, 2256, 24.3),
            _run("PPO-L", 10, 3024, 21.7),
            _table("PPO-L", 2946, 3.4),
            _table("CPO", 2786, 4.7),
            _table("FOCOPS", 2965, 2.4),
        ),
        "HopperVelocity": (
            _run("C-TRPO", 1, 1244, 19.3),
            _run("CPO with hysteresis", 2, 1406, 22.5),
            _run("CPPO-PID", 10, 1658, 20.9),
        ),
        "HumanoidVelocity": (
            _run("CPO", 1, 811, 7.3),
            _run("TRPO-L", 2, 4468, 13.2),
            _run("IPO", 10, 5873, 18.9),
            _run("PPO-L", 10, 5867, 22.1),
            _table("PPO-L", 6624, 5.9),
        ),
    },
}


def figures(section: str, task: str) -> tuple[Figure, ...]:
    """What is published for a task of a suite."""
    return PUBLISHED.get(section, {}).get(task, ())


def sources(shown: tuple[Figure, ...]) -> str:
    """Who the figures are of, and how they were measured."""
    found = dict.fromkeys(figure.source for figure in shown)
    words = [f"{s.name} ({s.address}): {s.protocol}." for s in found]
    return " ".join(["Published by others:", *words]) if words else ""
