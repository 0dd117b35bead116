"""The suites as data, the paper's numbers, and the rule that marks the best."""

import dataclasses
import json
from typing import Any

import numpy as np
import pytest

from ecop import recipes
from ecop.algorithms import ALGORITHMS
from ecop.bench import suites, tuning
from ecop.bench.cells import changed, identity, make_cell, run_config, setting
from ecop.bench.constants import constants
from ecop.bench.run import make_plan, repeat
from ecop.config import resolve
from ecop.envs import ENVS, make
from ecop.errors import UserError
from ecop.exact.lp import solve
from ecop.exact.problems import random_cmdp
from ecop.exact.values import evaluate_exact, uniform_policy
from ecop.learning.options import values
from ecop.report import paper, published, tables
from ecop.training import TrainConfig


@pytest.mark.parametrize("name", [n for n in suites.SUITES if n != "tiny"])
def test_every_suite_makes_cells(name):
    suite = suites.SUITES[name]()
    seen = set()
    for group in suite.groups:
        assert group.section in tables.SECTIONS
        cell = make_cell(group, suite, "default", 3)
        json.dumps(cell, allow_nan=False)
        config = run_config(json.loads(json.dumps(cell)))
        assert config.train.limits == group.limits
        assert config.train.first_seed == 3
        fields = dict(cell["algorithm"])
        assert config.algorithm == ALGORITHMS[fields.pop("name")](**fields)
        applied = cell["algorithm"] | cell["train"]
        assert group.options.items() <= applied.items()
        seen.add((group.section, identity(cell)))
    assert len(seen) == len(suite.groups), "two groups ask for the same cell"


def test_suites_follow_the_paper():
    table1 = suites.table1()
    assert {g.task for g in table1.groups} == set(paper.TABLE1) == set(suites.LIMITS)
    assert {g.algorithm for g in table1.groups} == set(ALGORITHMS)
    assert (table1.seeds, table1.steps) == (5, 10_000 * 200)
    for task, entries in paper.TABLE1.items():
        assert set(entries) <= set(suites.TABLE1)
        for entry in entries.values():
            assert len(entry) == 1 + len(suites.LIMITS[task])
    beta = suites.beta()
    labels = {g.variant or g.algorithm for g in beta.groups}
    assert labels == set(paper.TABLE2["PointCircle"]) == set(paper.TABLE2["AntReach"])


def test_published_figures_are_of_the_suites_tasks():
    for name, tasks in published.PUBLISHED.items():
        suite = suites.SUITES[name]()
        assert suite.steps in (1_000_000, 2_000_000)
        assert set(tasks) <= {group.task for group in suite.groups}
        for figures in tasks.values():
            assert len({f[:3] for f in figures}) == len(figures)
            assert all((f.cost is None) == (name == "yardstick") for f in figures)


def test_the_budget_is_the_same_for_all():
    for suite in (suites.table1(), suites.velocity()):
        for group in suite.groups:
            train = make_cell(group, suite, "default", 0)["train"]
            assert (train["iterations"], train["steps"]) == (0, 2_000_000)


def test_tabular_tasks_have_steps_of_their_own():
    suites_of_tables = (
        ("exact", 6_000),
        ("exact_long", 60_000),
        ("frontier", 6_000),
        ("smoke", 800),
    )
    for build, episodes in suites_of_tables:
        suite = suites.SUITES[build]()
        groups = [g for g in suite.groups if g.section.startswith("exact")]
        assert groups
        for group in groups:
            horizon = make(group.task, **group.env_options).spec.horizon
            train = make_cell(group, suite, "default", 0)["train"]
            assert train["steps"] == episodes * horizon


def test_nobody_is_tuned_more_than_another():
    assert set(tuning.GRIDS) == set(ALGORITHMS)
    for algorithm, grid in tuning.GRIDS.items():
        assert [len(set(values)) for values in grid.values()] == [3] * 6
        first, *others = tuning.tuning_settings(algorithm)
        assert len(others) == tuning.TRIALS - 1
        user, given = (resolve("PointCircle", algorithm, given=x) for x in ({}, first))
        assert user[:2] == given[:2]


def test_cells_are_shared_and_named_by_all_that_matters():
    table1, curves = suites.table1(), suites.curves()
    names = {identity(make_cell(g, table1, "default", 0)) for g in table1.groups}
    assert {
        identity(make_cell(g, curves, "default", 0)) for g in curves.groups
    } <= names
    group = table1.groups[0]
    cell = make_cell(group, table1, "default", 0)
    other = make_cell(group, table1, "default", 1)
    assert identity(cell) != identity(other)
    assert setting(cell) == setting(other)
    paper_cell = make_cell(group, table1, "paper", 0)
    assert identity(cell) != identity(paper_cell)
    assert paper_cell["algorithm"]["backward_steps"] == 0


@pytest.mark.parametrize("task", list(paper.TABLE1))
def test_the_rule_gives_the_papers_own_marks(task):
    entries = {
        name: (entry[0][0], [mean for mean, _ in entry[1:]])
        for name, entry in paper.TABLE1[task].items()
    }
    found = tables.marks(entries, suites.LIMITS[task])
    best = [name for name, mark in found.items() if mark == "best"]
    assert best == [paper.TABLE1_BEST[task]]
    if task in paper.TABLE1_NEAR:
        assert found[paper.TABLE1_NEAR[task]] == "near"


@pytest.mark.parametrize("task", list(paper.TABLE2))
def test_the_rule_gives_the_marks_of_table_2(task):
    entries = {
        name: (entry[0][0], [entry[1][0]]) for name, entry in paper.TABLE2[task].items()
    }
    found = tables.marks(entries, [20.0])
    assert found[paper.TABLE2_BEST[task]] == "best"


def test_nobody_wins_outside_the_limits():
    assert tables.marks({"a": (9.0, [11.0]), "b": (1.0, [12.0])}, [10.0]) == {}


def test_plans(tmp_path):
    plan = make_plan("table1", tmp_path, seeds=2, steps=3)
    assert len(plan.document["groups"]) == 104
    known = {"PointCircle", "PointReach", "Navigation"}
    assert not known & set(plan.missing)
    assert {g["task"] for g in plan.document["groups"]} == set(suites.LIMITS)
    runnable = len(set(suites.LIMITS) - set(plan.missing))
    assert plan.total == len(plan.jobs) == runnable * 13 * 2
    assert plan.document["command"].endswith("--steps 3")
    assert {g["steps"] for g in plan.document["groups"]} == {3}
    own = make_plan("exact", tmp_path, steps=3).document["groups"]
    assert {g["steps"] for g in own} == {3}
    few = make_plan("beta", tmp_path, tasks=["PointCircle"], algorithms=["p3o"])
    assert few.total == 5
    mistakes: tuple[dict[str, Any], ...] = (
        {"name": "tabel1"},
        {"name": "beta", "tasks": ["Navigation"]},
        {"name": "beta", "algorithms": ["sac"]},
        {"name": "beta", "tasks": ["PointCircle"], "algorithms": ["cpo"]},
        {"name": "beta", "seeds": 0},
        {"name": "beta", "steps": 0},
    )
    for bad in mistakes:
        with pytest.raises(UserError):
            make_plan(folder=tmp_path, **bad)
    assert not list(tmp_path.iterdir())


def test_later_options_are_in_a_cell_only_if_they_are_used():
    """Names are hashes: an option at its default must not give a cell a new one."""
    suite = suites.SUITES["navigation"]()
    group = suite.groups[0]
    usual = make_cell(group, suite, "default", 0)
    fields = set(values(TrainConfig()))
    assert set(usual["train"]) == fields - {"network"}
    other = dataclasses.replace(group, options={**group.options, "network": "gru"})
    cell = make_cell(other, suite, "default", 0)
    assert set(cell["train"]) == fields
    assert identity(cell) != identity(usual)
    assert run_config(usual).train.network == "mlp"


def test_table_1_has_the_printed_algorithm_beside_the_users():
    suite = suites.table1()
    mine = [g for g in suite.groups if (g.task, g.algorithm) == ("Grid", "ecop")]
    user, printed = (make_cell(group, suite, "default", 0) for group in mine)
    for name, value in recipes.PAPER["ecop"].items():
        found = printed["algorithm"] | printed["train"]
        assert found[name] == (list(value) if isinstance(value, tuple) else value)
    assert user["algorithm"] != printed["algorithm"]
    assert user["train"]["steps"] == printed["train"]["steps"]


def test_the_exact_suite_has_two_constraints_and_tables_that_vary():
    groups = suites.exact().groups
    for count in (1, 2):
        for varying in (False, True):
            assert any(
                len(g.limits) == count
                and g.env_options.get("time_varying", False) is varying
                for g in groups
                if g.task == "RandomTable"
            )


def test_the_robust_suite_covers_what_it_says():
    suite = suites.robust()
    assert {g.algorithm for g in suite.groups} == set(suites.EXACT)
    assert len(suite.groups) % len(suites.EXACT) == 0
    mine = [g for g in suite.groups if g.algorithm == "ecop"]
    tables_ = [g for g in mine if g.task == "RandomTable"]
    horizons = [g.options["horizon"] for g in tables_]
    assert (min(horizons), max(horizons)) == (7, 1000)
    assert {len(g.limits) for g in mine} == {1, 2, 3, 5}
    for scale in ("reward_scale", "cost_scale"):
        found = {g.env_options.get(scale, 1.0) for g in tables_}
        assert found == {1e-3, 1.0, 1e3}
    batches = {g.options["episodes"] for g in mine if "episodes" in g.options}
    assert batches == {5, 20, 80}
    for task, limit in (("PeakHours", 3.0), ("PointCircle", 10.0)):
        limits = sorted(g.limits[0] / limit for g in mine if g.task == task)
        assert limits == pytest.approx([0.3, 1.0, 3.0])
    starts = {g.variant: g for g in tables_ if g.variant.startswith("starts")}
    for word, sign in (("far above", 1), ("below", -1)):
        group = starts[f"starts {word} the limit"]
        cmdp = random_cmdp(horizon=group.options["horizon"], **group.env_options)
        _, (cost,) = evaluate_exact(cmdp, uniform_policy(cmdp))
        assert sign * (cost - group.limits[0]) > 0.1 * group.limits[0]
        assert solve(cmdp).costs[0] == pytest.approx(group.limits[0])  # it binds


def test_scales_of_a_random_table():
    plain, scaled = random_cmdp(), random_cmdp(reward_scale=1e3, cost_scale=1e-3)
    np.testing.assert_allclose(scaled.reward, 1e3 * plain.reward)
    np.testing.assert_allclose(scaled.limits, 1e-3 * np.array(plain.limits))
    assert solve(scaled).value == pytest.approx(1e3 * solve(plain).value)
    with pytest.raises(UserError, match="positive and finite"):
        random_cmdp(reward_scale=0.0)
    with pytest.raises(UserError, match="positive and finite"):
        random_cmdp(cost_scale=float("inf"))


def test_constants_of_a_task_are_part_of_a_cell():
    suite = suites.table1()
    group = next(g for g in suite.groups if g.task == "PointReach")
    cell = make_cell(group, suite, "default", 0)
    assert cell["constants"]["reach.OBSTACLES"] == "18"
    assert cell["constants"]["dynamics.MASS"] == "0.00518879"
    assert "reach.LIMIT" not in cell["constants"]  # a cell names its limits
    assert changed(cell) == []
    other = cell | {"constants": cell["constants"] | {"reach.OBSTACLES": "20"}}
    assert identity(other) != identity(cell)
    assert changed(other) == ["reach.OBSTACLES was 20, is 18"]
    with pytest.raises(UserError, match=r"another task now.*OBSTACLES was 20, is 18\."):
        repeat(other, {})
    old = {name: value for name, value in cell.items() if name != "constants"}
    assert changed(old) == []


def test_every_task_has_constants():
    for task in ENVS:
        assert constants(task, {}, None), task
    assert constants("Humanoid", {}, None)["humanoid.HumanoidOptions.speed_limit"]
    assert constants("Grid", {}, None)["grid.net.xml"]
    assert constants("HopperVelocity", {}, None)["robots.V4"]
    assert constants("gym:CartPole-v1", {}, None) == {}
    tables_ = [constants("RandomTable", {"seed": seed}, None) for seed in (1, 2)]
    assert tables_[0] != tables_[1]
    assert constants("PeakHours", {}, 10) != constants("PeakHours", {}, 11)
