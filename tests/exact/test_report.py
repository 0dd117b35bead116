"""The tables say what the solvers found."""

import numpy as np

from ecop.exact import PROBLEMS, random_cmdp
from ecop.exact.report import algorithm_one, optima, shortfalls, stationary_gaps


def rows(table):
    return [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in table.splitlines()
    ]


def test_optima():
    header, _, ring, peak = rows(
        optima([PROBLEMS["FactoredRing"](), PROBLEMS["PeakHours"]()])
    )
    assert ring[:8] == [
        *("FactoredRing", "3, 2, 6", "3", "4.0000 (6.0000)"),
        *("2.000000", "3.0000", "0.666667", "0"),
    ]
    assert len(header) == len(ring) == len(peak)
    assert peak[4] == "4.500000"


def test_stationary_gaps():
    *_, ring = rows(stationary_gaps([PROBLEMS["FactoredRing"]()], restarts=1))
    assert ring[1:5] == ["2.0000", "1.8779", "3.0000", "0.1221 (6.1%)"]


def test_algorithm_one():
    table = rows(algorithm_one([PROBLEMS["Inventory"]()], iterations=5))
    assert [row[1:3] for row in table[2:]] == [
        [start, reading]
        for start in ("uniform", "safest")
        for reading in ("propagated", "previous")
    ]
    assert table[2][3:5] == ["6.6653", "5.9552"]
    assert table[2][-3] == "6.4792"


def test_shortfalls():
    found = shortfalls([random_cmdp(seed=seed) for seed in range(3)], iterations=3)
    assert (found >= -1e-6).all()
    assert np.median(found) > 0.01
