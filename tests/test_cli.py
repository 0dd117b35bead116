"""The command line as a user meets it."""

import subprocess
import sys

import pytest

from ecop import cli
from ecop.algorithms import ALGORITHMS
from ecop.envs import ENVS
from ecop.watching import progress


def run(*args, capsys=None):
    with pytest.raises(SystemExit) as stop:
        cli.main([str(a) for a in args])
    return stop.value.code


HELP = """
import sys
from ecop import cli
from ecop.cli import bench, exact

commands = [[name] for name in cli.COMMANDS if name != "train"]
commands += [[group.__name__.split(".")[-1], name]
             for group in (bench, exact) for name in group.COMMANDS]
for words in ([], *commands):
    try:
        cli.main([*words, "--help"])
    except SystemExit as stop:
        assert stop.code == 0, words
    heavy = {"jax", "matplotlib", "rich"} & set(sys.modules)
    assert not heavy, (words, heavy)
"""


def test_help_imports_no_jax():
    """Only the options of `train` are those of an algorithm."""
    done = subprocess.run([sys.executable, "-c", HELP], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "ecop evaluate" in done.stdout
    assert "ecop bench run" in done.stdout


@pytest.mark.parametrize("command", list(cli.COMMANDS))
def test_every_command_explains_itself(command, capsys):
    assert run(command, "--help") == 0
    text = capsys.readouterr().out
    assert f"ecop {command}" in text
    assert "{None}" not in text


@pytest.mark.parametrize("command", ["train", "resume", "frontier"])
@pytest.mark.parametrize("given", [("--limits", "5", "ten"), ("--limits=ten",)])
def test_a_word_is_no_limit(command, given, capsys):
    assert run(command, "PointCircle", *given) == 2
    assert "A limit is a number" in capsys.readouterr().err


def test_a_preset_changes_the_defaults(capsys):
    run("train", "PointCircle", "cpo", "--help")
    assert "0.995" not in capsys.readouterr().out
    run("train", "PointCircle", "focops", "--preset", "paper", "--help")
    text = capsys.readouterr().out
    assert "0.995" in text
    assert "0.0003" in text


def test_options_are_explained(capsys):
    run("train", "PointCircle", "--help")
    text = capsys.readouterr().out
    for words in ("damping factor", "whole episodes per iteration", "--limits"):
        assert words in text


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["trian"], "train"),
        (["train", "PointCirle"], "PointCircle"),
        (["train", "PointCircle", "ecpo"], "ecop"),
        (["train", "PointCircle", "cpo", "--preset=best"], "no preset 'best'"),
        (["train"], "Which task"),
        (["train", "PointCircle", "--limits", "1", "2"], "one limit per cost"),
        (["train", "PointCircle", "--limits", "-1"], "zero or more"),
        (["train", "PointCircle", "--limits", "nan"], "zero or more"),
        (["train", "PointCircle", "--seeds", "0"], "at least 1"),
        (["train", "PointCircle", "--iterations", "-1"], "zero or more"),
        (["train", "PointCircle", "--episodes", "-1"], "zero or more"),
        (["train", "PointCircle", "--horizon", "0"], "at least 1"),
        (["train", "PointCircle", "--iteration", "5"], "--iterations"),
        (["train", "PointCircle", "--beta", "-3"], "beta"),
        (["resume", "nowhere"], "not a run folder"),
        (["evaluate", "nowhere"], "not a run folder"),
        (["plot", "nowhere"], "not a run folder"),
        (["render", "nowhere"], "not a run folder"),
    ],
)
def test_bad_input_is_one_sentence_and_code_2(
    args, words, capsys, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    assert run(*args) == 2
    captured = capsys.readouterr()
    assert words in captured.err + captured.out
    assert "Traceback" not in captured.err
    assert not list(tmp_path.iterdir())


def test_train_evaluate_plot_render(tmp_path, capsys):
    path = tmp_path / "run"
    options = "--seeds 2 --iterations 2 --episodes 2 --hidden 4 --backward-steps 2"
    assert run("train", "PointCircle", *options.split(), "--out", path) == 0
    assert "reward" in capsys.readouterr().out
    assert run("evaluate", path, "--episodes", 3) == 0
    text = capsys.readouterr().out
    assert "boundary" in text
    assert "feasible" in text
    assert run("evaluate", path, "--episodes", 3, "--deterministic") == 0
    assert capsys.readouterr().out != text
    assert run("plot", path) == 0
    assert (path / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert run("render", path) == 0
    assert (path / "episode.gif").read_bytes().startswith(b"GIF8")
    assert run("train", "PointCircle", "--out", path) == 2
    assert "exists already" in capsys.readouterr().err
    assert run("render", path, "--seed", 9) == 2


def test_a_task_of_ones_own_without_pictures(tmp_path, capsys):
    path = tmp_path / "run"
    options = "--seeds 1 --iterations 1 --episodes 2 --hidden 4 --critic-epochs 1"
    assert run("train", "probes:Walk", "ppo", *options.split(), "--out", path) == 0
    assert "render" not in capsys.readouterr().err
    assert run("render", path, "--trust") == 2
    error = capsys.readouterr().err
    assert "probes:Walk has no picture" in error
    assert "Traceback" not in error


# One of each kind stands for the others in the fast suite.
SOME = {"PointCircle", "Inventory", "AntReach", "Grid", "ppo_lag", "cpo"}


def each_alone():
    pairs = [(task,) for task in ENVS] + [("Inventory", name) for name in ALGORITHMS]
    for task, *algorithm in pairs:
        marks = [] if {task, *algorithm} <= SOME else [pytest.mark.slow]
        yield pytest.param(task, algorithm, marks=marks)


@pytest.mark.parametrize(("task", "algorithm"), list(each_alone()))
def test_training_needs_no_option(task, algorithm, tmp_path, monkeypatch, tiny_budget):
    monkeypatch.chdir(tmp_path)
    assert run("train", task, *algorithm) == 0
    (folder,) = (tmp_path / "runs").iterdir()
    assert (folder / "checkpoints" / "00000002").is_dir()


def test_list(capsys):
    assert run("list") == 0
    text = capsys.readouterr().out
    assert "PointCircle" in text
    assert "boundary <= 10" in text


def test_the_time_left_forgets_a_pause():
    pace = progress.Pace()
    seconds = 0.0
    for iteration in range(1, 61):
        seconds += 600.0 if iteration == 30 else 1.0
        line = {"iteration": iteration, "env_steps": 10 * iteration, "seconds": seconds}
        pace.update([line, line])
    assert pace.speed == pytest.approx(20.0)
    assert pace.left(100) == pytest.approx(40.0)
