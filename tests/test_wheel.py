"""The wheel and the sdist alone, in fresh environments and another folder."""

import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
EXTRAS = ("onnxruntime", "pygame")
TESTED = (
    "conftest.py",
    "probes.py",
    "simulators.py",
    "learning",
    "test_evaluate.py",
    "test_config.py",
)
PINS = ("--constraint", ROOT / "constraints.txt")
TOOLS = ("pytest", "beartype", "hypothesis", "gymnasium")
TINY = ("--iterations", "2", "--episodes", "2", "--seeds", "1")


def installed(folder, kind, extras, *more):
    """An environment with what `hatchling build` made of the repository."""
    build = [sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", folder]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (made,) = [*folder.glob("*.whl"), *folder.glob("*.tar.gz")]
    venv.create(folder / "venv", with_pip=True)
    pip = [folder / "venv" / "bin" / "python", "-m", "pip", "install", "--quiet"]
    subprocess.run([*pip, *PINS, f"{made}{extras}", *more], check=True)
    work = folder / "work"
    work.mkdir()
    return folder / "venv" / "bin", work


def run(words, work):
    done = subprocess.run(words, cwd=work, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_from_the_wheel_to_a_policy_that_acts(tmp_path):
    bin, work = installed(tmp_path, "wheel", "[gym,onnx]", *EXTRAS)
    out = run([bin / "python", "-I", ROOT / "examples" / "deploy.py"], work)
    assert "equal actions: run.act, the NumPy file, onnxruntime" in out
    for file in ("curves.png", "episode.gif", "policy.npz", "policy.onnx"):
        assert (work / file).stat().st_size > 1000


@pytest.mark.slow
def test_the_sdist_as_pipx_installs_it(tmp_path):
    """No extra, only the command; then our own tests against what is installed."""
    bin, work = installed(tmp_path, "sdist", "")
    commands = tmp_path / "commands"  # all that pipx puts on the path
    commands.mkdir()
    (commands / "ecop").symlink_to(bin / "ecop")
    assert "train" in run([commands / "ecop", "--help"], work)
    run([commands / "ecop", "train", "FactoredRing", "--out", "run", *TINY], work)
    assert "reward" in run([commands / "ecop", "evaluate", "run"], work)
    run([bin / "python", "-m", "pip", "install", "--quiet", *PINS, *TOOLS], work)
    for name in TESTED:
        copy = shutil.copytree if (ROOT / "tests" / name).is_dir() else shutil.copy
        copy(ROOT / "tests" / name, work / name)
    shutil.copy(ROOT / "pyproject.toml", work)
    out = run([bin / "python", "-m", "pytest", "-m", "not slow", work], work)
    assert " passed" in out
