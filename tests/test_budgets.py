"""What a budget buys, against sums by hand and against the linear program."""

import json
import math

import numpy as np
import pytest

import ecop
from ecop import budgets, cli
from ecop.evaluate import Evaluation
from ecop.exact.lp import frontier
from ecop.exact.problems import PROBLEMS
from ecop.types import Box, Constraint, Spec

SMALL = {"seeds": 2, "iterations": 1, "episodes": 2, "hidden": (4,)}


def evaluation(reward, cost):
    spec = Spec(1, Box(1), 5, (Constraint("a", 9.0),))
    reward, cost = np.array(reward, float), np.array(cost, float)
    failed = np.zeros(reward.shape, bool)
    return Evaluation(spec, reward, cost[..., None], failed)


def test_prices_are_slopes_between_neighbours():
    found = [
        evaluation([[10.0], [12.0]], [[0.5], [1.5]]),
        evaluation([[20.0], [20.0]], [[2.0], [3.0]]),
        evaluation([[24.0], [26.0]], [[4.0], [4.0]]),
    ]
    low, middle, high = budgets.points([1.0, 3.0, 4.0], found, 0)
    assert (low.cost, low.reward, low.within) == (1.0, 11.0, 0.5)
    assert low.reward_interval == pytest.approx(1.96)
    assert low.price == pytest.approx((20 - 11) / 2)
    assert low.price_interval == pytest.approx(1.96 / 2)
    assert middle.price == pytest.approx((25 - 11) / 3)
    assert middle.price_interval == pytest.approx(1.96 * math.sqrt(2) / 3)
    assert high.price == pytest.approx(5.0)
    assert (middle.within, high.within) == (1.0, 1.0)


@pytest.mark.parametrize(
    ("limits", "words"),
    [([1.0], "two"), ([1.0, 1.0], "once"), ([1.0, math.inf], "finite"), ("5", "list")],
)
def test_limits_that_make_no_frontier(limits, words):
    with pytest.raises(ecop.UserError, match=words):
        ecop.frontier("FactoredRing", limits)


def test_mistakes_are_found_before_training():
    with pytest.raises(ecop.UserError, match=r"cost 'pillows'.*'pillars'"):
        ecop.frontier("Navigation", [1, 2], cost="pillows")
    with pytest.raises(ecop.UserError, match="option 'seed'"):
        ecop.frontier("FactoredRing", [1, 2], seed=3)
    with pytest.raises(ecop.UserError, match="algorithm 'pdp'"):
        ecop.frontier("FactoredRing", [1, 2], "pdp")


def test_the_other_limits_are_the_task_s():
    assert budgets.plan("Navigation", cost="pillars").limits(3.0) == (10.0, 3.0)
    assert budgets.plan("Navigation").limits(3.0) == (3.0, 25.0)


def test_what_is_there_is_gone_on_with(tmp_path):
    def plan(algorithm="pdo", **options):
        return budgets.plan("FactoredRing", algorithm, out=tmp_path, **SMALL | options)

    run = plan().train(2.0)
    assert plan().train(2.0).metrics == run.metrics
    for other in (plan(seeds=3), plan(horizon=5), plan("ppo")):
        with pytest.raises(ecop.UserError, match="other options"):
            other.train(2.0)


def test_environments_given_as_objects(tmp_path):
    env = ecop.make("FactoredRing")
    plan = budgets.plan(env, "pdo", out=tmp_path, **SMALL)
    assert plan.train(2.0).metrics == plan.train(2.0).metrics


def test_command(tmp_path, capsys, tiny_budget):
    def call(*words):
        with pytest.raises(SystemExit) as stop:
            cli.main(["frontier", *map(str, words)])
        return stop.value.code

    out = tmp_path / "f"
    options = ("pdo", "--limits", 2, 1, "--episodes", 3, "--out", out)
    assert call("FactoredRing", *options) == 0
    assert "what the budget of 'moves' buys" in capsys.readouterr().out
    found = json.loads((out / "frontier.json").read_text())
    assert [point["limit"] for point in found["points"]] == [1.0, 2.0]
    assert (out / "frontier.png").read_bytes().startswith(b"\x89PNG")
    assert call("FactoredRin", *options) == 2
    assert call("FactoredRing", "--limits", 2) == 2
    assert "two limits" in capsys.readouterr().err


@pytest.mark.slow
def test_shadow_prices_are_those_of_the_linear_program():
    """Inventory with e-COP's defaults, but fewer seeds and iterations."""
    limits = [1.5, 2.5, 3.5, 4.5]
    found = ecop.frontier("Inventory", limits, seeds=3, iterations=300, episodes=1000)
    truth = frontier(PROBLEMS["Inventory"](), limits)
    slopes = np.diff(truth.values)
    slopes = [slopes[0], slopes[:2].mean(), slopes[1:].mean(), slopes[2]]
    for point, slope in zip(found, slopes, strict=True):
        assert point.price == pytest.approx(slope, rel=0.15, abs=0.15)
