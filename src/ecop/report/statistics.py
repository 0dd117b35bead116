"""Statistics on reward and constraints, with intervals, each formula once.

The independent samples are the runs (seeds), never the episodes of one run. Strata are
one array [S] of per-run values for each task; the stratified bootstrap draws runs anew
within each task, so that every draw has all tasks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from scipy import stats

from ecop.evaluate import interval

LEVEL = 0.95
DRAWS = 2000  # of the bootstrap
WINDOW = 10  # iterations in a row within the limits that count as feasible

Strata = Sequence[np.ndarray]


class Estimate(NamedTuple):
    """A value with its 95 % interval."""

    value: float
    low: float
    high: float


def mean_normal(x: np.ndarray) -> Estimate:
    """Mean of x [S] with the normal interval, as in the paper; NaN ends for S = 1."""
    mean, half = interval(np.asarray(x, float)[:, None])
    return Estimate(mean, mean - half, mean + half)


def iqm(x: np.ndarray) -> np.ndarray:
    """Interquartile mean over the last axis: of the middle half, cut exactly.

    A value that a cut divides counts with the part of it that lies inside
    (scipy.stats.trim_mean drops or keeps it whole: with 5 runs, a mean of 3).
    """
    x = np.sort(np.asarray(x, float), axis=-1)
    edges = np.linspace(0.0, 1.0, x.shape[-1] + 1)
    inside = np.minimum(edges[1:], 0.75) - np.maximum(edges[:-1], 0.25)
    return 2.0 * (x @ np.maximum(inside, 0.0))


def bootstrap(
    samples: Strata, statistic: Callable[..., np.ndarray], *, draws: int = DRAWS
) -> Estimate:
    """A statistic of the strata with its stratified percentile bootstrap interval.

    statistic: strata of shapes [..., S], one argument each, and axis=-1 -> [...]. A
    stratum of one run has no spread to draw from: NaN ends.
    """
    value = float(statistic(*samples, axis=-1))
    if min(map(len, samples)) < 2:
        return Estimate(value, math.nan, math.nan)
    found = stats.bootstrap(
        samples,
        statistic,
        n_resamples=draws,
        confidence_level=LEVEL,
        method="percentile",
        vectorized=True,
        rng=np.random.default_rng(0),
    )
    return Estimate(value, *map(float, found.confidence_interval))


def iqm_bootstrap(samples: Strata) -> Estimate:
    """IQM over the runs of all strata with a stratified bootstrap interval."""
    return bootstrap(samples, lambda *x, axis: iqm(np.concatenate(x, axis=axis)))


def proportion(successes: int, count: int) -> Estimate:
    """Share of successes with Wilson's interval, which is sound at 0 and at `count`."""
    found = stats.binomtest(successes, count)
    ends = found.proportion_ci(LEVEL, method="wilson")
    return Estimate(found.statistic, float(ends.low), float(ends.high))


def violation(costs: np.ndarray, limits: np.ndarray) -> np.ndarray:
    """Cost minus limit [..., C]; minus infinity where the limit is switched off."""
    return np.asarray(costs, float) - np.asarray(limits, float)


def feasible(costs: np.ndarray, limits: np.ndarray) -> np.ndarray:
    """Whether costs [..., C] are within all limits."""
    return np.all(violation(costs, limits) <= 0.0, axis=-1)


def strong_violation(costs: np.ndarray, limits: np.ndarray) -> np.ndarray:
    """Mean positive part of the violation over iterations: costs [K, C] -> [C]."""
    return np.maximum(violation(costs, limits), 0.0).mean(axis=0)


def share_above(costs: np.ndarray, limits: np.ndarray) -> np.ndarray:
    """Share of the iterations above each limit: costs [K, C] -> [C]."""
    return (violation(costs, limits) > 0.0).mean(axis=0)


def block_means(ends: np.ndarray, values: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """Means [K] between edges [K + 1] of values [M] that hold up to their ends [M]."""
    widths = np.diff(ends, prepend=0.0)
    total = np.concatenate([[0.0], np.cumsum(values * widths)])
    at_edges = np.interp(edges, np.concatenate([[0.0], ends]), total)
    return np.diff(at_edges) / np.diff(edges)


def time_to_feasible(
    costs: np.ndarray, limits: np.ndarray, *, window: int = WINDOW
) -> int | None:
    """First iteration (from 1) of the first `window` in a row within all limits.

    None if there is no such stretch in costs [K, C].
    """
    streak = 0
    window = min(window, len(costs))
    for k, good in enumerate(feasible(costs, limits), start=1):
        streak = streak + 1 if good else 0
        if streak == window:
            return k - window + 1
    return None
