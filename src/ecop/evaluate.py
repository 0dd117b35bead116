"""Fresh episodes of trained policies: per-episode arrays out, and their summary."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from html import escape
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ecop.errors import Diverged
from ecop.rollout import Actor, collector, draws, replay
from ecop.showing import table_html, table_text
from ecop.training import Learner, stack
from ecop.types import Episodes, HostTask, Played, Spec, TrainState

# Training folds the iteration into the seed's key; evaluation folds from the far end.
EVALUATION = 2**32 - 1
QUANTILES = (0.05, 0.5, 0.95)


@dataclass(frozen=True, repr=False)
class Evaluation:
    """Episodic sums of E fresh episodes for each of S trained policies."""

    spec: Spec
    reward: np.ndarray  # [S, E]
    costs: np.ndarray  # [S, E, C]
    failed: np.ndarray  # [S, E] bool

    def summary(self) -> dict[str, Any]:
        """Mean with a normal 95 % interval, feasibility, cost quantiles."""
        constraints = []
        for i, constraint in enumerate(self.spec.constraints):
            cost = self.costs[..., i]
            mean, half = interval(cost)
            constraints.append(
                {
                    "name": constraint.name,
                    "limit": constraint.limit,
                    "mean": mean,
                    "interval": half,
                    "feasible_policies": float(
                        np.mean(cost.mean(axis=1) <= constraint.limit)
                    ),
                    "feasible_episodes": float(np.mean(cost <= constraint.limit)),
                    "quantiles": {
                        q: float(v)
                        for q, v in zip(
                            QUANTILES, np.quantile(cost, QUANTILES), strict=True
                        )
                    },
                }
            )
        mean, half = interval(self.reward)
        return {
            "reward": {"mean": mean, "interval": half},
            "constraints": constraints,
            "failed": float(np.mean(self.failed)),
            "seeds": self.reward.shape[0],
            "episodes": self.reward.shape[1],
        }

    def __repr__(self) -> str:
        title, rows = self._words()
        return table_text(
            f"<Evaluation of {title}>",
            [
                (name, f"{mean}  limit {limit}  {share} of episodes within")
                if limit
                else (name, mean)
                for name, mean, limit, share in rows
            ],
        )

    def _repr_html_(self) -> str:
        title, rows = self._words()
        cells = [[escape(cell) for cell in row] for row in rows]
        header = ("", "mean, 95 % interval", "limit", "episodes within")
        return table_html(title, header, cells)

    def _words(self) -> tuple[str, list[list[str]]]:
        """A title, and rows of name, mean, limit, share of episodes within."""
        s = self.summary()

        def spread(x: dict[str, Any]) -> str:
            half = "" if np.isnan(x["interval"]) else f" ± {x['interval']:.2f}"
            return f"{x['mean']:.2f}{half}"

        rows = [["reward", spread(s["reward"]), "", ""]]
        for entry in s["constraints"]:
            off = np.isinf(entry["limit"])
            within = f"{100 * entry['feasible_episodes']:.0f} %"
            limit = "" if off else f"{entry['limit']:g}"
            rows.append([entry["name"], spread(entry), limit, "" if off else within])
        rows.append(["failed", f"{100 * s['failed']:.1f} % of episodes", "", ""])
        return f"{s['seeds']} policies x {s['episodes']} fresh episodes", rows


def interval(x: np.ndarray) -> tuple[float, float]:
    """Mean of x [S, E] and half of its normal 95 % interval.

    Over seeds, the independent runs; over episodes if there is only one seed.
    """
    samples = x.mean(axis=1) if x.shape[0] > 1 else x[0]
    if len(samples) < 2:
        return float(samples.mean()), float("nan")
    half = 1.96 * samples.std(ddof=1) / np.sqrt(len(samples))
    return float(samples.mean()), float(half)


def fresh_episodes(
    learner: Learner,
    states: list[TrainState],
    episodes: int,
    *,
    draw: int = 0,
    deterministic: bool = False,
) -> Episodes:
    """Episodes [S, E, H] with seeds that training never used."""
    return player(learner, episodes, deterministic=deterministic)(states, draw)


def player(
    learner: Learner, episodes: int, *, deterministic: bool = False
) -> Callable[[list[TrainState], int], Episodes]:
    """A function (states, draw) -> fresh episodes [S, E, H], compiled once."""
    collect = collector(
        learner.env, learner.policy, episodes, deterministic=deterministic
    )

    def play(states: list[TrainState], draw: int) -> Episodes:
        actors = stack([Actor(state.policy, state.normaliser) for state in states])
        for number, state in enumerate(states):
            parts = nonfinite(state)
            if parts:
                raise Diverged(
                    f"Nothing was evaluated: {', '.join(parts)} of policy {number} "
                    "holds NaN or infinity; train again with smaller steps."
                )
        batch = collect(actors, stack([fresh_key(state, draw) for state in states]))
        refuse_nonfinite(batch)
        return batch

    return play


def nonfinite(state: TrainState) -> list[str]:
    """The parts of a state that hold NaN or infinity."""
    return [
        name
        for name, part in zip(state._fields, state, strict=True)
        if name != "key"
        if not all(np.isfinite(np.asarray(x)).all() for x in jax.tree.leaves(part))
    ]


def refuse_nonfinite(batch: Episodes) -> None:
    """Raise `Diverged` at the first NaN or infinity of a living step [S, E, H]."""
    alive = np.asarray(batch.alive) > 0
    for name in (x for x in batch._fields if x not in ("alive", "failed")):
        finite = np.isfinite(np.asarray(getattr(batch, name)))
        bad = ~finite.reshape(*alive.shape, -1).all(axis=-1) & alive
        if bad.any():
            policy, episode, step = np.argwhere(bad)[0]
            raise Diverged(
                f"Nothing was evaluated: {name} of policy {policy} is NaN or infinite "
                f"in step {step} of fresh episode {episode}; if 'ecop check' finds the "
                "environment healthy, train again with smaller steps."
            )


def fresh_key(state: TrainState, draw: int = 0) -> jax.Array:
    """A key that training never used."""
    return jax.random.fold_in(jax.random.fold_in(state.key, EVALUATION), draw)


def fresh_episode(learner: Learner, state: TrainState) -> Played:
    """One fresh episode of a policy."""
    batch = fresh_episodes(learner, [state], 1)
    episode = Episodes(*(np.asarray(x)[0, 0] for x in batch))
    seeds, _ = draws(learner.policy, fresh_key(state), jnp.arange(1))
    states = None
    if not isinstance(learner.env, HostTask):
        again = jax.jit(lambda *x: replay(learner.env, *x))
        states = again(seeds[0], episode.action)
    steps = int(episode.alive.sum())
    record = (episode.action, episode.reward, episode.costs, states)
    taken = jax.tree.map(lambda x: np.asarray(x)[:steps], record)
    return Played(int(seeds[0]), *taken)


def evaluate(
    learner: Learner,
    states: list[TrainState],
    episodes: int,
    *,
    deterministic: bool = False,
) -> Evaluation:
    """Run `episodes` fresh episodes of each seed's policy.

    deterministic: its most likely actions in place of drawn ones; the first states and
        the task's own chance are the same
    """
    batch = fresh_episodes(learner, states, episodes, deterministic=deterministic)
    return Evaluation(
        spec=learner.spec,
        reward=np.asarray(batch.reward).sum(axis=2),
        costs=np.asarray(batch.costs).sum(axis=2),
        failed=np.asarray(batch.failed),
    )
