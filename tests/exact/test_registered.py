"""The named problems are ordinary tasks: train, evaluate, plot."""

import numpy as np
import pytest

import ecop
from ecop import cli
from ecop.envs import ENVS
from ecop.errors import UserError
from ecop.exact import PROBLEMS


@pytest.mark.parametrize("name", PROBLEMS)
def test_every_named_problem_is_a_task(name):
    env = ecop.make(name)
    cmdp = PROBLEMS[name]()
    assert env.spec == cmdp.spec
    assert ecop.make(name, horizon=5).spec.horizon == 5


def test_another_horizon_is_another_problem():
    short = ecop.make("PeakHours", horizon=3).cmdp
    assert np.asarray(short.costs)[0, :, 0, 1].tolist() == [0.5, 2.0, 1.0]


@pytest.mark.parametrize("horizon", [0, -1])
def test_impossible_horizons_are_refused(horizon):
    with pytest.raises(UserError, match="at least 1"):
        ecop.make("Inventory", horizon=horizon)


def run(*args):
    with pytest.raises(SystemExit) as stop:
        cli.main([str(a) for a in args])
    return stop.value.code


def test_train_evaluate_plot_from_the_command_line(tmp_path, capsys):
    path = tmp_path / "run"
    options = "--policy per_step --hidden --backward-steps 0 --seeds 2 --iterations 2"
    assert run("train", "FactoredRing", *options.split(), "--out", path) == 0
    assert run("evaluate", path, "--episodes", 3) == 0
    assert "moves" in capsys.readouterr().out
    assert run("plot", path) == 0
    assert (path / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert run("render", path) == 2
    assert "FactoredRing has no picture" in capsys.readouterr().err


def test_list_shows_them(capsys):
    assert run("list") == 0
    text = capsys.readouterr().out
    assert all(name in text for name in ENVS)
    assert "spending <= 3.5" in text
