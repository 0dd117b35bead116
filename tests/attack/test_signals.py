"""Signals and pipes: what is done is saved, and nobody waits in vain."""

import signal
import subprocess
import sys
import time

import pytest

import ecop
from ecop import runs

OPTIONS = ["--seeds", "1", "--episodes", "2", "--horizon", "10", "--hidden", "4"]
OPTIONS += ["--critic-epochs", "1", "--critic-minibatches", "1"]


def start(*words, before="pass", **pipes):
    code = f"import sys; {before}; from ecop.cli import main; main(sys.argv[1:])"
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, words)], text=True, **pipes
    )


def wait_for_metrics(process, path):
    while not runs.read_metrics(path):
        assert process.poll() is None
        time.sleep(0.05)


def test_a_terminal_that_is_closed_saves(tmp_path, tries):
    tries(1, 1)
    path = tmp_path / "run"
    words = ["train", "PointCircle", "pdo", "--iterations", 100_000, "--out", path]
    with start(*words, *OPTIONS, stdout=subprocess.PIPE) as process:
        wait_for_metrics(process, path)
        process.send_signal(signal.SIGHUP)
        assert process.wait(timeout=60) == 130
    last = max(line["iteration"] for line in runs.read_metrics(path))
    assert ecop.load(path).iteration == last


def test_under_nohup_it_goes_on(tmp_path):
    path = tmp_path / "run"
    words = ["train", "PointCircle", "pdo", "--iterations", 2_000, "--out", path]
    ignored = "import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN)"
    pipes = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = start(*words, *OPTIONS, before=ignored, **pipes)
    wait_for_metrics(process, path)
    process.send_signal(signal.SIGHUP)
    assert process.wait(timeout=120) == 0


def test_a_broken_pipe_does_not_end_training(tmp_path, tries):
    tries(1, 1)
    path = tmp_path / "run"
    words = ["train", "PointCircle", "pdo", "--iterations", 60, "--out", path]
    with start(
        *words, *OPTIONS, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout
        process.stdout.close()
        assert process.wait(timeout=120) == 0
        assert process.stderr
        assert process.stderr.read() == ""
    assert ecop.load(path).iteration == 60


# A lock that is taken twice: like the compiler, it lets no Python handler run.
STUCK = """
import ctypes
from ecop import api
def stuck(learner):
    print("compiling", flush=True)
    lock, mutex = ctypes.CDLL(None).pthread_mutex_lock, ctypes.create_string_buffer(128)
    lock(mutex), lock(mutex)
api.init_seeds = stuck
""".strip()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_second_signal_ends_at_once(number, tmp_path, tries):
    """While the main thread is in the compiler and hears nothing."""
    tries(1, 1)
    path = tmp_path / "run"
    words = ["train", "PointCircle", "pdo", "--iterations", 60, "--out", path]
    with start(
        *words,
        *OPTIONS,
        before=f"exec({STUCK!r})",
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout
        assert process.stderr
        assert process.stdout.readline() == "compiling\n"
        process.send_signal(number)
        process.stderr.readline()
        assert "Stopping" in process.stderr.readline()
        assert process.poll() is None
        process.send_signal(number)
        assert process.wait(timeout=60) == 130
