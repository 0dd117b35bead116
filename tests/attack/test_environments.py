"""Environments that misbehave, in this process and in workers: named, never obeyed."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bad_environments import make, make_daemon

import ecop
from ecop import runs
from ecop.errors import UserError
from ecop.simulators import guard

OPTIONS: Any = {
    "seeds": 1,
    "episodes": 2,
    "hidden": (4,),
    "critic_epochs": 1,
    "critic_minibatches": 1,
}
FAULTS = {
    "exit": "called sys.exit",
    "quit with a sentence": "called sys.exit.'no licence'",
    "exit in reset": "called sys.exit",
    "scalar": r"shape \(\)",
    "one entry": r"shape \(1,\)",
    "column": r"shape \(3, 1\)",
    "row": r"shape \(1, 3\)",
    "long": r"shape \(4,\)",
    "none": r"shape \(\)",
    "text": r"shape \(\)",
    "large": "Entry 0 of the observation of <Bad.*not finite in float32",
    "nan": "Entry 0 of the observation of <Bad",
    "infinite": "Entry 0 of the observation of <Bad",
    "complex": "type complex",
    "objects": "type object",
    "int": "'terminated' of <Bad.* must be True or False, not 1",
    "none flag": "must be True or False, not None",
    "text flag": "must be True or False, not 'False'",
    "array": "must be True or False",
    "truncated is an int": "'truncated' of <Bad.* must be True or False, not 0",
    "reward nan": "reward of <Bad.*nan",
    "reward large": "reward of <Bad",
    "reward none": "NoneType|one number",
    "cost nan": "costs of <Bad.*nan",
    "cost array": "costs of shape",
}
SAMPLE = ("exit", "one entry", "large", "int")


def gone(pid, seconds=20.0):
    deadline = time.monotonic() + seconds
    while guard.running(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not guard.running(pid)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("fault", list(FAULTS))
def test_bad_environments(fault, workers, tmp_path, request, tries, recwarn):
    if fault not in SAMPLE and not request.config.option.attack:
        pytest.skip("with --attack")
    tries(1, 1)
    env = ecop.from_gymnasium(
        make, costs="cost", limits=[9.0], workers=workers, options={"fault": fault}
    )
    path = tmp_path / "run"
    with pytest.raises(ecop.Faulted, match=FAULTS[fault]) as caught:
        ecop.train(env, "pdo", out=path, iterations=1, **OPTIONS)
    where = "in reset" if "reset" in fault else "in step 2 of the episode with seed"
    assert where in str(caught.value)
    env.close()
    assert not [folder for folder in runs.checkpoints(path) if int(folder.name)]


def test_an_environment_that_exits_when_it_is_made():
    with pytest.raises(UserError, match=r"called sys.exit"):
        ecop.from_gymnasium(make, costs="cost", options={"fault": "exit when made"})


def test_one_that_does_not_repeat_is_noticed():
    """It repeats as long as the process keeps the same objects."""
    report = ecop.check_cmdp(
        make, costs="cost", options={"fault": "seed of the process"}
    )
    assert "same seed and actions gave another observation" in str(report)
    assert not report.healthy
    assert ecop.check_cmdp(make, costs="cost").healthy


def test_no_process_is_left(tmp_path, tries):
    """Daemons in sessions of their own end with the workers that started them."""
    tries(1, 1)
    file = tmp_path / "pids"
    env = ecop.from_gymnasium(
        make_daemon, costs="cost", limits=[9.0], workers=2, options={"file": str(file)}
    )
    probe = [int(line) for line in file.read_text().split()]  # of this process: ours
    ecop.train(env, "pdo", iterations=1, **OPTIONS)
    env.close()
    pids = [int(line) for line in file.read_text().split()]
    assert len(pids) > len(probe)
    for pid in pids[: len(probe)]:
        os.kill(pid, signal.SIGKILL)
    for pid in pids[len(probe) :]:
        assert gone(pid), pid


def test_no_process_is_left_by_a_kill(tmp_path, tries):
    tries(1, 1)
    file = tmp_path / "pids"
    code = (
        "import sys, ecop\n"
        "from bad_environments import make_daemon\n"
        "env = ecop.from_gymnasium(make_daemon, costs='cost', limits=[9.0], workers=1,"
        " options={'file': sys.argv[1]})\n"
        "ecop.train(env, 'pdo', iterations=10**6, seeds=1, episodes=1, hidden=(4,))\n"
    )
    folder = str(Path(__file__).parent)
    paths = {"PYTHONPATH": os.pathsep.join([folder, os.environ.get("PYTHONPATH", "")])}
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(file)], env={**os.environ, **paths}
    )
    deadline = time.monotonic() + 120
    while not file.exists() or len(file.read_text().split()) < 2:
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.kill()
    process.wait()
    probe, *rest = map(int, file.read_text().split())
    os.kill(probe, signal.SIGKILL)  # started by the killed process itself
    assert all(gone(pid) for pid in rest)


def test_the_guard():
    x = np.array([1.0, 2.0])
    assert guard.observation(x, 2, "it").dtype == np.float32
    assert guard.flag(np.True_, "it") is True
    assert guard.number(np.array([3]), "it") == 3.0
    for bad in (np.array([1e39, 0.0]), np.array([0.0, -np.inf])):
        with pytest.raises(guard.Misbehaved, match="Entry"):
            guard.observation(bad, 2, "it")
