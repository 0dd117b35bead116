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
    "github.com/vwxyzjn/cleanrl, docs/benchmark/ppo_continuous_action.md",
    "v4 robots, 3 seeds, return of episodes in training, ± deviation",
)
CTRPO = Source(
    "C-TRPO",
    "github.com/milosen/ctrpo, run files",
    "Safety-Gymnasium, 5 seeds, mean of 5 epochs around that step, limit 25",
)
OMNISAFE = Source(
    "OmniSafe",
    "github.com/PKU-Alignment/omnisafe, docs/source/benchmark/on-policy.md",
    "Safety-Gymnasium, several seeds, evaluated after training, limit 25, ± deviation",
)

MILLION = 1_000_000
# Of OmniSafe's Table 2; its entries are reward, deviation of it, cost.
COLUMNS = ("FOCOPS", "PPO-L", "CPO", "CPPO-PID", "TRPO-L")


def _ppo(source: Source, reward: float, spread: float) -> Figure:
    return Figure(source, "PPO", MILLION, reward, spread)


def _run(algorithm: str, millions: int, reward: float, cost: float) -> Figure:
    return Figure(CTRPO, algorithm, millions * MILLION, reward, cost=cost)


def _table(*entries: tuple[float, float, float]) -> tuple[Figure, ...]:
    return tuple(
        Figure(OMNISAFE, name, 10 * MILLION, reward, spread, cost)
        for name, (reward, spread, cost) in zip(COLUMNS, entries, strict=True)
    )


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
            *_table(
                (3184.5, 305.6, 14.8),
                (3261.9, 80.0, 12.1),
                (3098.5, 78.9, 14.1),
                (3213.4, 146.8, 14.3),
                (3041.9, 180.8, 19.5),
            ),
        ),
        "HalfCheetahVelocity": (
            _run("C-TRPO", 1, 1556, 19.2),
            _run("TRPO-L", 2, 2256, 24.3),
            _run("PPO-L", 10, 3024, 21.7),
            *_table(
                (2965.2, 290.4, 2.4),
                (2946.2, 306.4, 3.4),
                (2786.5, 173.5, 4.7),
                (2837.9, 398.5, 8.1),
                (2884.7, 77.5, 9.0),
            ),
        ),
        "HopperVelocity": (
            _run("C-TRPO", 1, 1244, 19.3),
            _run("CPO with hysteresis", 2, 1406, 22.5),
            _run("CPPO-PID", 10, 1658, 20.9),
            *_table(
                (1437.8, 446.9, 10.1),
                (961.9, 752.9, 14.0),
                (1713.7, 18.3, 13.4),
                (1713.3, 10.2, 9.0),
                (1391.8, 269.1, 11.2),
            ),
        ),
        "HumanoidVelocity": (
            _run("CPO", 1, 811, 7.3),
            _run("TRPO-L", 2, 4468, 13.2),
            _run("IPO", 10, 5873, 18.9),
            _run("PPO-L", 10, 5867, 22.1),
            *_table(
                (6489.4, 35.1, 13.9),
                (6624.5, 25.9, 5.9),
                (6465.3, 79.9, 0.2),
                (6579.3, 55.7, 3.8),
                (6551.3, 58.4, 59.6),
            ),
        ),
        "SwimmerVelocity": _table(
            (53.9, 17.9, 29.8),
            (64.7, 17.7, 28.0),
            (65.3, 43.3, 18.2),
            (91.1, 62.7, 19.1),
            (81.2, 16.3, 22.2),
        ),
        "Walker2dVelocity": _table(
            (3117.1, 53.6, 8.8),
            (2982.3, 681.6, 13.5),
            (2074.8, 962.5, 21.9),
            (2183.4, 1300.7, 14.1),
            (3207.1, 7.9, 15.0),
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
