"""Each statistic against a known distribution or a closed form."""

import math

import numpy as np
import pytest
from scipy import stats

from ecop.report import statistics as st

CHANCE = np.random.default_rng(0)


def test_the_normal_interval_is_the_papers_and_covers():
    x = np.array([1.0, 2.0, 3.0, 4.0, 5.0])
    found = st.mean_normal(x)
    assert found.value == 3.0
    assert found.high - 3.0 == pytest.approx(1.96 * math.sqrt(2.5 / 5))
    samples = CHANCE.normal(7.0, 2.0, (2000, 50))
    hits = [e.low <= 7.0 <= e.high for e in map(st.mean_normal, samples)]
    assert np.mean(hits) == pytest.approx(0.95, abs=0.02)
    assert math.isnan(st.mean_normal(np.array([1.0])).low)


def test_iqm_is_the_mean_of_the_middle_half():
    assert st.iqm(np.array([-100.0, 1.0, 3.0, 1000.0])) == 2.0
    assert st.iqm(np.arange(12.0)) == 5.5
    for size in (1, 5, 8, 13):
        x = CHANCE.normal(size=size)
        fine = np.sort(np.repeat(x, 4))  # every size becomes a multiple of 4
        assert st.iqm(x) == pytest.approx(fine[size : 3 * size].mean())
        assert st.iqm(x + 3.0) == pytest.approx(st.iqm(x) + 3.0)
    many = CHANCE.exponential(size=200_000)
    low, high = stats.expon.ppf((0.25, 0.75))
    truth = stats.expon.expect(lambda x: x, lb=low, ub=high, conditional=True)
    assert st.iqm(many) == pytest.approx(truth, abs=0.01)
    assert st.iqm(many) == pytest.approx(stats.trim_mean(many, 0.25), abs=1e-4)


def mean_of_means(*strata, axis):
    return np.mean([x.mean(axis=axis) for x in strata], axis=0)


def test_the_stratified_bootstrap_covers_and_keeps_strata():
    hits = []
    for _ in range(150):
        samples = [CHANCE.normal(0.0, 1.0, 20), CHANCE.normal(10.0, 1.0, 20)]
        found = st.bootstrap(samples, mean_of_means, draws=500)
        hits.append(found.low <= 5.0 <= found.high)
    assert np.mean(hits) == pytest.approx(0.94, abs=0.05)
    # Constant strata stay what they are: no run is drawn from another task.
    flat = st.bootstrap([np.zeros(5), np.full(5, 9.0)], mean_of_means)
    assert flat == (4.5, 4.5, 4.5)
    found = st.iqm_bootstrap([CHANCE.normal(size=30)])
    assert found.low < found.value < found.high
    alone = st.bootstrap([np.zeros(5), np.full(1, 9.0)], mean_of_means)
    assert alone.value == 4.5
    assert math.isnan(alone.low)
    assert math.isnan(alone.high)


def test_feasibility_has_wilsons_interval():
    # Wilson's ends solve (share - p)^2 = z^2 p (1 - p) / n.
    found = st.proportion(3, 5)
    assert found.value == 0.6
    for end in (found.low, found.high):
        assert (0.6 - end) ** 2 == pytest.approx(1.959964**2 * end * (1 - end) / 5)
    assert found.low < 0.6 < found.high
    assert st.proportion(5, 5).high == 1.0
    assert st.proportion(5, 5).low < 0.6
    assert st.proportion(0, 5).low == 0.0
    ends = [st.proportion(k, 20) for k in range(21)]
    covered = [k for k, e in enumerate(ends) if e.low <= 0.8 <= e.high]
    assert stats.binom.pmf(covered, 20, 0.8).sum() == pytest.approx(0.95, abs=0.03)


def test_violations():
    costs = np.array([[12.0, 1.0], [8.0, 7.0], [11.0, 3.0], [9.0, 1.0]])
    limits = np.array([10.0, math.inf])
    assert st.strong_violation(costs, limits).tolist() == [0.75, 0.0]
    assert st.share_above(costs, limits).tolist() == [0.5, 0.0]
    assert st.feasible(costs, limits).tolist() == [False, True, False, True]
    # E max(0, X) of a standard normal is 1 / sqrt(2 pi); its slack cancels nothing.
    x = CHANCE.normal(5.0, 1.0, (200_000, 1))
    assert st.strong_violation(x, np.array([5.0])) == pytest.approx(0.3989, abs=0.005)


def test_means_over_blocks_of_steps():
    ends, values = np.array([2.0, 3.0, 9.0]), np.array([1.0, 4.0, 7.0])
    each = np.repeat(values, [2, 1, 6])  # the value of every single step
    for count in (1, 3, 9):
        found = st.block_means(ends, values, np.linspace(0.0, 9.0, count + 1))
        np.testing.assert_allclose(found, each.reshape(count, -1).mean(axis=1))
    half = st.block_means(ends, values, np.array([0.0, 4.5]))
    np.testing.assert_allclose(half, [(2 * 1 + 4 + 1.5 * 7) / 4.5])


def test_time_to_feasible():
    limits = np.array([10.0])
    costs = np.array([20, 5, 20, 9, 9, 9, 20], float)[:, None]
    assert st.time_to_feasible(costs, limits, window=3) == 4
    assert st.time_to_feasible(costs, limits, window=1) == 2
    assert st.time_to_feasible(costs, limits, window=4) is None
    assert st.time_to_feasible(costs[1:2], limits) == 1  # shorter than the window
