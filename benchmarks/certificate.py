"""How often a certificate is wrong, and the episodes it takes, where means are known.

python benchmarks/certificate.py prints the tables of docs/certificate.md.
"""

from __future__ import annotations

import argparse
import dataclasses
import math

import jax
import numpy as np

import ecop
from ecop.certify import ROUND, certify, judge
from ecop.exact.learned import evaluate_learned
from ecop.types import Constraint

LIMIT, BOUND, HORIZON = 10.0, 200.0, 200
ERROR = 0.05


def steps(rng, mean, shape):
    """One step in twenty costs 1, independently."""
    return rng.binomial(HORIZON, mean / HORIZON, shape).astype(float)


def rare(rng, mean, shape):
    """An episode costs nothing or all it can."""
    return BOUND * (rng.random(shape) < mean / BOUND)


def spread(rng, mean, shape):
    """An exponential, cut at the bound: as wide as its mean."""
    return np.minimum(rng.exponential(mean, shape), BOUND)


KINDS = {"1 in 20 steps costs 1": steps, "0 or all": rare, "exponential": spread}


def verdicts(draw, seed, mean, error, most):
    """The first verdict of one repetition, and the episodes it took."""
    constraint = (Constraint("cost", LIMIT, BOUND),)
    x = draw(np.random.default_rng(seed), mean, (most, 1))
    for count in range(ROUND, most + 1, ROUND):
        found = judge(x[:count], constraint, error)
        if found != "open":
            return found, count
    return "open", most


def wrong(repetitions: int) -> None:
    """A mean at the limit is the hardest: neither verdict may come too often."""
    print("| costs of an episode | 'within' | 'beyond' |\n|---|---|---|")
    for name, draw in KINDS.items():
        found = [
            verdicts(draw, seed, LIMIT, ERROR, 5000)[0] for seed in range(repetitions)
        ]
        rates = [100 * found.count(x) / repetitions for x in ("within", "beyond")]
        print(f"| {name} | {rates[0]:.1f} % | {rates[1]:.1f} % |")
        assert max(rates) <= 100 * ERROR


def needed(repetitions: int) -> None:
    """Episodes of a policy until the verdict: median, 10 and 90 % quantiles."""
    print("\n| costs of an episode | mean, limit 10 | 1 policy | 10 policies |")
    print("|---|---|---|---|")
    for name, draw in KINDS.items():
        for mean in (5.0, 8.0, 9.0, 9.5):
            cells = []
            for count in (1, 10):
                took = [
                    verdicts(draw, seed, mean, ERROR / count, 40_000)
                    for seed in range(repetitions)
                ]
                low, middle, high = np.quantile([n for _, n in took], (0.1, 0.5, 0.9))
                cells.append(f"{middle:,.0f} ({low:,.0f} to {high:,.0f})")
            print(f"| {name} | {mean:g} | {' | '.join(cells)} |")


def whole(repetitions: int) -> None:
    """Trained policies of a task whose means are known, as `run.certify` sees them."""
    run = ecop.train("Inventory", seeds=5, iterations=100)
    means = [float(costs[0]) for _, costs in evaluate_learned(run.learner, run.states)]
    limit = float(np.median(means)) * (1.0 + 1e-3)
    train = dataclasses.replace(run.config.train, limits=(limit,))
    learner = dataclasses.replace(
        run.learner, spec=run.learner.spec.with_limits((limit,)), config=train
    )
    faults, settled, policies = 0, 0, len(run.states)
    for repetition in range(repetitions):
        states = [
            state._replace(key=jax.random.key(repetition * policies + s))
            for s, state in enumerate(run.states)
        ]
        trials = certify(learner, list(enumerate(states)), episodes=500).trials
        truth = ["within" if mean <= limit else "beyond" for mean in means]
        told = [trial.verdict for trial in trials]
        faults += any(a not in ("open", b) for a, b in zip(told, truth, strict=True))
        settled += any(verdict != "open" for verdict in told)
    shown = ", ".join(f"{mean:.3f}" for mean in means)
    print(f"\nInventory: mean costs {shown}; limit {limit:.3f}; {repetitions} runs.")
    print(f"A verdict in {settled}; a wrong one among them in {faults}.")
    assert faults <= math.ceil(ERROR * repetitions)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repetitions", type=int, default=1000)
    parser.add_argument("--parts", nargs="+", default=["wrong", "needed", "whole"])
    arguments = parser.parse_args()
    for part in arguments.parts:
        {"wrong": wrong, "needed": needed, "whole": whole}[part](arguments.repetitions)
