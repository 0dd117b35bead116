"""The wheel alone, in a fresh environment: trained, plotted, exported, played."""

import subprocess
import sys
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
EXTRAS = ("onnxruntime", "pygame")


@pytest.mark.slow
def test_from_the_wheel_to_a_policy_that_acts(tmp_path):
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv" / "bin" / "python"
    pins = ["--constraint", ROOT / "constraints.txt"]
    install = [python, "-m", "pip", "install", "--quiet", *pins]
    subprocess.run([*install, f"{wheel}[gym,onnx]", *EXTRAS], check=True)
    work = tmp_path / "work"
    work.mkdir()
    done = subprocess.run(
        [python, "-I", ROOT / "examples" / "deploy.py"],
        cwd=work,
        capture_output=True,
        text=True,
    )
    print(done.stdout)
    assert done.returncode == 0, done.stderr
    assert "equal actions: run.act, the NumPy file, onnxruntime" in done.stdout
    for file in ("curves.png", "episode.gif", "policy.npz", "policy.onnx"):
        assert (work / file).stat().st_size > 1000
