"""Pictures that matplotlib draws."""

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import ecop
from ecop import cli
from ecop.drawing.curves import Series, draw_curves
from ecop.errors import UserError
from probes import Walk

DRAW = """
import sys
import matplotlib
matplotlib.use("svg")
import ecop.exact.plots, ecop.report.figures
import ecop.api
from ecop.drawing.curves import Series, draw_curves
lines = [{"seed": 0, "iteration": i, "reward": i, "costs": [i], "limits": [1.0]}
         for i in (1, 2)]
draw_curves([Series("", lines, ("heat",))], "title").savefig(sys.argv[1])
assert matplotlib.get_backend() == "svg"
assert "matplotlib.pyplot" not in sys.modules
"""


def test_the_users_backend_is_left_alone(tmp_path):
    file = tmp_path / "curves.png"
    command = [sys.executable, "-c", DRAW, str(file)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert file.read_bytes().startswith(b"\x89PNG")


def lines(seeds=(0, 1), count=3, costs=1, **more):
    return [
        {"seed": s, "iteration": k, "env_steps": 100 * k, "seconds": 0.5 * k}
        | {"reward": 10.0 * s + k, "costs": [1.0 * k] * costs, "limits": [2.0] * costs}
        | {"episodes": 4, **more}
        for k in range(1, count + 1)
        for s in seeds
    ]


@pytest.mark.parametrize(
    ("x", "along"),
    [
        ("iterations", [1, 2, 3]),
        ("episodes", [4, 8, 12]),
        ("steps", [100, 200, 300]),
        ("seconds", [0.5, 1.0, 1.5]),
    ],
)
def test_the_axis_is_what_was_asked_for(x, along):
    figure = draw_curves([Series("", lines(), ("heat",))], "title", x)
    reward, cost = figure.axes
    curve: Any
    limit: Any
    curve, *_ = reward.lines
    np.testing.assert_allclose(curve.get_xdata(), along)
    np.testing.assert_allclose(curve.get_ydata(), [6, 7, 8])
    curve, limit = cost.lines
    np.testing.assert_allclose(curve.get_ydata(), [1, 2, 3])
    assert list(limit.get_ydata()) == [2.0, 2.0]


def test_several_runs_share_panels_by_the_name_of_the_cost():
    both = Series("b", lines(costs=2), ("fuel", "heat"))
    figure = draw_curves([Series("a", lines(), ("heat",)), both], "title")
    labels = [axis.get_ylabel() for axis in figure.axes]
    assert labels == ["episodic reward", "episodic cost: heat", "episodic cost: fuel"]
    words = [axis.get_legend_handles_labels()[1] for axis in figure.axes]
    assert words[0] == ["a, 2 seeds", "b, 2 seeds"]
    assert words[1] == ["a, 2 seeds", "limit 2", "b, 2 seeds"]
    assert words[2] == ["b, 2 seeds", "limit 2"]


def test_an_axis_that_is_none_is_said():
    series = Series("a", [], ())
    lines = [{"limits": [], "costs": [], "seed": 0, "iteration": 1, "reward": 0.0}]
    weeks: Any = "weeks"
    with pytest.raises(UserError, match=r"no axis 'weeks'.*episodes"):
        draw_curves([series._replace(metrics=lines)], "t", weeks)


def test_old_metrics_have_no_episodes():
    old = [{k: v for k, v in m.items() if k != "episodes"} for m in lines()]
    with pytest.raises(UserError, match="choose another axis"):
        draw_curves([Series("a", old, ("heat",))], "title", "episodes")
    with pytest.raises(UserError, match="a has no metrics yet"):
        draw_curves([Series("a", [], ())], "title")


def test_the_command_draws_several_runs(tmp_path, capsys):
    tiny = {"seeds": 1, "episodes": 2, "hidden": (4,), "critic_epochs": 1}
    for name in ("a", "b"):
        ecop.train(Walk(), "ppo", iterations=2, out=tmp_path / name, watch=None, **tiny)
    a, b, file = (str(tmp_path / name) for name in ("a", "b", "both.svg"))

    def call(*words):
        with pytest.raises(SystemExit) as end:
            cli.main(["plot", *words])
        return end.value.code

    words = [a, b, "--labels", "first", "second", "--x", "episodes", "--out", file]
    assert call(*words) == 0
    assert (tmp_path / "both.svg").read_text().startswith("<?xml")
    assert call(a) == 0
    assert (tmp_path / "a" / "curves.png").exists()
    capsys.readouterr()
    for bad, said in (
        ([a, b, "--labels", "one"], "2 run(s) but 1 label(s)"),
        ([a, "--out", "curves.xyz"], "must end in .png, .svg or .pdf"),
        ([str(tmp_path)], "is not a run folder"),
    ):
        assert call(*bad) == 2
        assert said in capsys.readouterr().err
