"""Certificates against means that are known."""

import json
import math

import numpy as np
import pytest

import ecop
from ecop import cli, files
from ecop.certify import ROUND, bounded, judge, refuse_outside
from ecop.confidence import STAKES, at_least, at_most, log_capital
from ecop.exact.learned import evaluate_learned
from ecop.exact.lp import smallest_cost
from ecop.exact.problems import PROBLEMS
from ecop.types import Box, Constraint, Spec


def test_capital_is_the_mean_of_the_bets():
    x, bound, mean = [0.0, 3.0, 1.0], 4.0, 2.0
    capitals = []
    for stake in STAKES:
        capital = 1.0
        for value in x:
            capital *= 1.0 + stake * (mean - value) / (bound - mean)
        capitals.append(capital)
    found = math.exp(log_capital(np.array(x), bound, mean))
    assert found == pytest.approx(sum(capitals) / len(capitals))


def test_bounds_of_the_mean():
    x = np.random.default_rng(0).uniform(0.0, 4.0, 2000)
    low, high = at_least(x, 10.0, 0.05), at_most(x, 10.0, 0.05)
    assert 1.8 < low < 2.0 < high < 2.2
    assert at_most(x, 10.0, 0.001) > high
    assert at_most(x[:0], 10.0, 0.05) == 10.0
    assert at_least(x[:0], 10.0, 0.05) == 0.0
    assert at_most(np.full(5, 10.0), 10.0, 0.05) == 10.0


def test_one_episode_can_cost_all():
    """An episode that costs the bound ends the largest bet, not the others."""
    assert log_capital(np.array([10.0]), 10.0, 5.0) < 0.0
    assert math.isfinite(log_capital(np.array([10.0] * 5), 10.0, 5.0))


@pytest.mark.parametrize("mean", [2.0, 9.0])
def test_wrong_at_most_as_often_as_allowed(mean):
    """1,000 repetitions, ten looks each; a mean at the limit is the hardest."""
    rng = np.random.default_rng(1)
    constraint = (Constraint("cost", mean, bound=10.0),)
    found = {"within": 0, "beyond": 0, "open": 0}
    for _ in range(1000):
        x = 10.0 * (rng.random((500, 1)) < mean / 10.0)
        looks = (judge(x[:n], constraint, 0.05) for n in range(50, 501, 50))
        found[next((v for v in looks if v != "open"), "open")] += 1
    assert found["within"] <= 50
    assert found["beyond"] <= 50
    assert found["within"] + found["beyond"] > 5  # the test has power


def test_all_limits_must_be_kept_and_one_is_enough_to_break():
    constraints = (Constraint("a", 5.0, 10.0), Constraint("b", 5.0, 10.0))
    low, high = np.full(200, 2.0), np.full(200, 8.0)
    edge = np.resize([0.0, 10.0], 200)
    assert judge(np.stack([low, low], 1), constraints, 0.05) == "within"
    assert judge(np.stack([low, high], 1), constraints, 0.05) == "beyond"
    assert judge(np.stack([low, edge], 1), constraints, 0.05) == "open"


def test_what_cannot_be_certified_is_refused():
    spec = Spec(1, Box(1), 5, (Constraint("torque", 50.0),))
    with pytest.raises(ecop.UserError, match=r"'torque' at most.*--bounds"):
        bounded(spec, None)
    with pytest.raises(ecop.UserError, match="one bound for each, not 2"):
        bounded(spec, [1.0, 2.0])
    with pytest.raises(ecop.UserError, match="cannot be shown"):
        bounded(spec.with_limits((0.0,)), [100.0])
    with pytest.raises(ecop.UserError, match="no limits"):
        bounded(spec.with_limits((math.inf,)), [100.0])
    (found,) = bounded(spec, [100.0])
    assert found.bound == 100.0
    with pytest.raises(ecop.UserError, match=r"120 of 'torque', outside \[0, 100\]"):
        refuse_outside(np.array([[1.0], [120.0]]), [found])
    with pytest.raises(ecop.UserError, match="-1 of 'torque'"):
        refuse_outside(np.array([[-1.0]]), [found])


@pytest.mark.parametrize("name", ["FactoredRing", "Inventory", "PeakHours", "Box"])
def test_declared_bounds_hold(name):
    cmdp = PROBLEMS[name]()
    negative = cmdp.__class__(**{**vars(cmdp), "costs": -cmdp.costs})
    assert -smallest_cost(negative) <= cmdp.spec.constraints[0].bound + 1e-9
    assert math.isinf(negative.spec.constraints[0].bound)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("certify") / "run"
    small = {"seeds": 2, "episodes": 20, "hidden": (4,), "critic_epochs": 1}
    ecop.train("FactoredRing", "pdo", iterations=21, out=path, **small)
    return path


def test_the_best_policy_is_picked_and_told(folder):
    run = ecop.load(folder)
    found = run.certify(limits=[5.9])
    assert found.verdict == "within"
    assert [(t.seed, t.iteration) for t in found.trials] == [
        (0, 21),
        (1, 21),
        (0, 20),
        (1, 20),
    ]
    assert found.best is not None
    passed = [t for t in found.trials if t.verdict == "within"]
    assert found.best is max(passed, key=lambda t: t.merit)
    open_ones = [t for t in found.trials if t.verdict == "open"]
    assert all(t.merit <= found.best.merit for t in open_ones)
    (row,) = found.table(found.best)
    ((_, (truth,)),) = evaluate_learned(run.learner, [found.best.state])
    assert row["at_least"] < truth < row["at_most"] <= 5.9
    assert "within the limits" in found.sentence
    assert "as the task declares" in found.sentence
    assert repr(found) == f"<Certificate: {found.sentence}>"
    again = ecop.load(folder).certify(limits=[5.9])
    assert again.document() == found.document()


def test_limits_that_are_broken_and_budgets_that_end(folder):
    run = ecop.load(folder)
    (_, first), *_ = evaluate_learned(run.learner, run.states)
    assert run.certify(limits=[0.1]).verdict == "beyond"
    short = run.certify(limits=[float(first[0])], episodes=ROUND)
    assert short.trials[0].verdict == "open"
    assert len(short.trials[0].reward) == ROUND
    given = run.certify(limits=[0.1], bounds=[12.0])
    assert "not checked" in given.sentence
    with pytest.raises(ecop.UserError, match="outside"):
        run.certify(bounds=[0.5])
    with pytest.raises(ecop.UserError, match="confidence"):
        run.certify(1.5)
    with pytest.raises(ecop.UserError, match="episodes"):
        run.certify(episodes=0)


def test_a_damaged_older_checkpoint_is_left_out(folder, tmp_path):
    import shutil

    copy = tmp_path / "run"
    shutil.copytree(folder, copy)
    (copy / "checkpoints" / "00000020" / "state.safetensors").write_bytes(b"x")
    assert len(ecop.load(copy).certify(limits=[5.9]).trials) == 2


def command(*words):
    with pytest.raises(SystemExit) as stop:
        cli.main([str(word) for word in words])
    return stop.value.code


def test_command(folder, capsys, tmp_path):
    assert command("certify", folder, "--limits", 5.9) == 0
    text = capsys.readouterr().out
    assert "With 95 % confidence the policy of seed" in text
    document, intact = files.read(folder / "certificate.json", dict)
    assert intact
    assert document["task"] == "FactoredRing"
    assert document["verdict"] == "within"
    assert len(document["policy"]["sha256"]) == 64
    file = tmp_path / "c.json"
    options = ["--limits", 0.1, "--confidence", 0.99, "--deterministic", "--out", file]
    assert command("certify", folder, *options) == 1
    assert json.loads(file.read_text())["actions"] == "most likely"
    assert "no policy is within" in capsys.readouterr().out
    assert command("certify", "nowhere") == 2
