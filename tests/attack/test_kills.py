"""Nothing is lost by a kill, whenever it comes; one process writes at a time."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from strangers import TINY

import ecop
from ecop import files, runs
from ecop.errors import UserError
from ecop.watching import Quiet

HERE = Path(__file__).parent
MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # no disk to wait for


def test_kills_at_numbered_file_operations(tries):
    count = tries(40, 1200)
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        done = subprocess.run(
            [sys.executable, HERE / "kills.py", folder, str(count)],
            capture_output=True,
            text=True,
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "JAX_PLATFORMS": "cpu"},
        )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert not found["failures"], (found["failures"][:5], done.stderr[-2000:])
    assert found["kills"] >= count


def ecop_command(*words):
    return subprocess.Popen(
        [sys.executable, "-m", "ecop.cli", *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_one_writer(finished, tmp_path, tries):
    tries(1, 1)
    path = shutil.copytree(finished, tmp_path / "run")
    first = ecop_command("resume", path, "--iterations", 1_000_000)
    while len(runs.read_metrics(path)) < 60:
        assert first.poll() is None, first.communicate()
        time.sleep(0.05)
    for go_on in (ecop.resume, lambda p: ecop.train("PointCircle", out=p)):
        with pytest.raises(UserError) as caught:
            go_on(path)
        assert "in use by process" in str(caught.value) or "exists" in str(caught.value)
    assert ecop.load(path).iteration >= 22  # reading is free
    first.kill()
    first.communicate()
    done = ecop.load(path).iteration + 3
    assert ecop.resume(path, iterations=done).finished
    lines = [(m["seed"], m["iteration"]) for m in runs.read_metrics(path)]
    assert len(lines) == len(set(lines)) == 2 * done


def test_two_at_once_leave_one_run(finished, tmp_path, tries):
    """Two processes resume at the same moment, several times."""
    for i in range(tries(1, 3)):
        path = shutil.copytree(finished, tmp_path / f"run{i}")
        both = [ecop_command("resume", path, "--iterations", 400) for _ in range(2)]
        ends = [(*process.communicate(), process.returncode) for process in both]
        codes = sorted(end[2] for end in ends)
        assert codes in ([0, 2], [0, 0]), ends  # the second may come after the first
        if codes == [0, 2]:
            refused = next(end for end in ends if end[2] == 2)
            assert "in use by process" in refused[1]
            assert len(refused[1].splitlines()) == 1
        lines = [(m["seed"], m["iteration"]) for m in runs.read_metrics(path)]
        assert len(lines) == len(set(lines)) == 800


def test_a_lock_ends_with_its_process(tmp_path):
    file = tmp_path / ".lock"
    with files.locked(file, "It") as held:
        assert held
        words = f"in use by process {os.getpid()} on"
        with pytest.raises(UserError, match=words), files.locked(file, "It"):
            pass
        sleeper = "import time; print(flush=True); time.sleep(60)"
        child = subprocess.Popen([sys.executable, "-c", sleeper])
    with files.locked(file, "It"):  # though what was started meanwhile is alive
        pass
    child.kill()
    child.wait()
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    link = tmp_path / "link"
    with pytest.raises(UserError, match="cannot be written"), files.locked(link, "It"):
        pass
    assert not (tmp_path / "elsewhere").exists()


def test_a_forked_process_holds_no_lock(tmp_path):
    code = (
        "import os, sys, time\n"
        "from pathlib import Path\n"
        "from ecop import files\n"
        "lock = files.locked(Path(sys.argv[1]), 'It')\n"
        "lock.__enter__()\n"
        "ours, theirs = os.pipe()\n"
        "pid = os.fork()\n"
        "if pid == 0:\n"
        "    os.write(theirs, b'here')\n"
        "    time.sleep(60)\n"
        "os.read(ours, 4)\n"
        "print(pid, flush=True)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    done = subprocess.Popen(
        [sys.executable, "-c", code, tmp_path / "lock"], stdout=subprocess.PIPE
    )
    assert done.stdout
    orphan = int(done.stdout.readline())
    done.wait()
    done.stdout.close()
    try:
        with files.locked(tmp_path / "lock", "It") as held:
            assert held
    finally:
        os.kill(orphan, signal.SIGKILL)


def test_a_disk_without_locks_is_said(monkeypatch, tmp_path):
    def no_locks(*_):
        raise OSError(37, "No locks available")

    monkeypatch.setattr(files.fcntl, "flock", no_locks)
    notes = []

    class Notes(Quiet):
        def note(self, text):
            notes.append(text)

    options = TINY | {"seeds": 1, "iterations": 1, "watch": Notes()}
    ecop.train("PointCircle", "pdo", out=tmp_path / "run", **options)
    assert any("no locks" in note for note in notes)


def test_killed_before_it_began(tmp_path):
    path = tmp_path / "run"
    path.mkdir()
    (path / ".lock").touch()
    (path / ".tmp-1-config.json").write_text("{")
    with pytest.raises(UserError, match=r"stopped before it began.*ecop train"):
        ecop.resume(path)
    ecop.train("PointCircle", "pdo", out=path, seeds=1, iterations=1, **TINY)
    assert ecop.load(path).finished
    assert not list(path.rglob(".tmp-*"))
