"""The summary of an evaluation against numbers worked out by hand."""

import math

import numpy as np
import pytest

from ecop.evaluate import Evaluation
from ecop.types import Box, Constraint, Spec

SPEC = Spec(1, Box(1), 5, (Constraint("a", 2.0), Constraint("b", math.inf)))


def evaluation(cost):
    cost = np.asarray(cost, float)
    costs = np.stack([cost, 10 * cost], axis=-1)
    failed = np.zeros(cost.shape, bool)
    failed[0, 0] = True
    return Evaluation(SPEC, 100 * cost, costs, failed)


def test_summary_of_several_policies():
    """The means of the policies are 1, 2 and 6; independent runs, so they count."""
    found = evaluation([[0, 1, 1, 2], [1, 3, 2, 2], [6, 6, 6, 6]]).summary()
    assert (found["seeds"], found["episodes"]) == (3, 4)
    assert found["failed"] == pytest.approx(1 / 12)
    half = 1.96 * math.sqrt((4 + 1 + 9) / 2 / 3)
    assert found["reward"]["mean"] == pytest.approx(300)
    assert found["reward"]["interval"] == pytest.approx(100 * half)
    one, two = found["constraints"]
    assert (one["name"], one["limit"]) == ("a", 2.0)
    assert one["mean"] == pytest.approx(3.0)
    assert one["interval"] == pytest.approx(half)
    assert one["feasible_policies"] == pytest.approx(2 / 3)
    assert one["feasible_episodes"] == pytest.approx(7 / 12)
    assert one["quantiles"][0.5] == pytest.approx(2.0)
    assert one["quantiles"][0.05] == pytest.approx(0.55)
    assert one["quantiles"][0.95] == pytest.approx(6.0)
    assert two["mean"] == pytest.approx(30.0)
    assert two["feasible_policies"] == two["feasible_episodes"] == 1.0


def test_one_policy_has_the_interval_of_its_episodes():
    (one, _) = evaluation([[1.0, 3.0]]).summary()["constraints"]
    assert one["mean"] == 2.0
    assert one["interval"] == pytest.approx(1.96)
    (one, _) = evaluation([[1.0]]).summary()["constraints"]
    assert math.isnan(one["interval"])
