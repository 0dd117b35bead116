"""Full and read-only disks, missing permissions, odd places: one sentence each."""

import contextlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
from strangers import TINY

import ecop
from ecop import cli, files, runs
from ecop.errors import DiskError

ROOT = hasattr(os, "geteuid") and os.geteuid() == 0
TRAIN = ["PointCircle", "pdo", "--seeds", "2", "--episodes", "2", "--horizon", "10"]
TRAIN += [
    "--hidden",
    "4",
    "--critic-epochs",
    "1",
    "--critic-minibatches",
    "1",
    "--iterations",
    "22",
]


def run(*words):
    with pytest.raises(SystemExit) as stop:
        cli.main([str(word) for word in words])
    return stop.value.code


def one_sentence(capsys):
    error = capsys.readouterr().err
    assert "Traceback" not in error
    return error


@pytest.fixture
def disk(tmp_path):
    """A function that mounts a small disk, if this user may."""
    place = tmp_path / "disk"
    place.mkdir()

    def mount(options):
        words = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(place)]
        if not ROOT or subprocess.run(words, capture_output=True).returncode:
            pytest.skip("needs the right to mount")
        return place

    yield mount
    subprocess.run(["umount", str(place)], capture_output=True)


def test_a_disk_that_fills_up(disk, capsys, tries):
    tries(1, 1)
    place = disk("size=96k")
    path = place / "run"
    assert run("train", *TRAIN, "--iterations", 400, "--out", path) == 1
    error = one_sentence(capsys)
    assert "No space left on device" in error
    assert f"make room and go on with:\n  ecop resume {path}" in error
    assert not list(path.rglob(".tmp-*"))
    before = ecop.load(path).iteration
    assert before > 0
    assert run("resume", path) == 1
    assert ecop.load(path).iteration >= before
    subprocess.run(["mount", "-o", "remount,size=8m", str(place)], check=True)
    capsys.readouterr()
    assert run("resume", path, "--iterations", 400) == 0
    lines = runs.read_metrics(path)
    assert len({(m["seed"], m["iteration"]) for m in lines}) == len(lines) == 800


def test_a_disk_that_is_full_at_once(disk, capsys):
    place = disk("size=16k")
    (place / "ballast").write_bytes(bytes(16 * 1024))
    assert run("train", *TRAIN, "--out", place / "run") in (1, 2)
    error = one_sentence(capsys)
    assert "No space left on device" in error
    assert len(error.splitlines()) == 1
    assert not (place / "run").exists()


def test_a_disk_that_only_reads(disk, finished, capsys):
    place = disk("size=8m")
    path = shutil.copytree(finished, place / "run")
    subprocess.run(["mount", "-o", "remount,ro", str(place)], check=True)
    assert run("resume", path, "--iterations", 30) == 2
    error = one_sentence(capsys)
    assert "Read-only file system" in error
    assert run("train", *TRAIN, "--out", place / "new") == 2
    assert "Read-only file system" in one_sentence(capsys)
    assert run("plot", path) == 1
    assert "Read-only file system" in one_sentence(capsys)
    assert run("evaluate", path, "--episodes", 2) == 0  # reading is enough


@pytest.mark.parametrize("failing", [1, 3, 6, 9])
def test_a_write_that_fails(failing, tmp_path, monkeypatch, tries):
    """Wherever the disk refuses, what is there can be loaded and gone on with."""
    count = [0]
    put = files.put

    def refuse(handle, data):
        count[0] += 1
        if count[0] == failing:
            handle.write(data[: len(data) // 2])
            handle.flush()
            raise OSError(28, "No space left on device")
        put(handle, data)

    tries(1, 1)
    path = tmp_path / "run"
    monkeypatch.setattr(files, "put", refuse)
    options = {"seeds": 1, "iterations": 42, **TINY}
    with pytest.raises((DiskError, ecop.Faulted), match="No space left"):
        ecop.train("PointCircle", "pdo", out=path, **options)
    assert not list(tmp_path.rglob(".tmp-*"))
    monkeypatch.setattr(files, "put", put)
    if failing == 1:
        assert not path.exists()
        return
    assert ecop.resume(path).finished
    assert len(runs.read_metrics(path)) == 42


def test_places_that_cannot_be(tmp_path, capsys):
    file = tmp_path / "file"
    file.write_text("mine")
    for out in (file, file / "run", file / "deep" / "run"):
        assert run("train", *TRAIN, "--out", out) == 2
        error = one_sentence(capsys)
        assert len(error.splitlines()) == 1
        assert "resume" not in error
        assert str(out) in error
    assert file.read_text() == "mine"
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "a.jpg").touch()
    assert run("train", *TRAIN, "--out", tmp_path / "photos") == 2
    error = one_sentence(capsys)
    assert "exists already" in error
    assert "resume" not in error
    assert run("resume", file) == 2
    assert "not a run folder" in one_sentence(capsys)


@contextlib.contextmanager
def somebody_else():
    os.setegid(65534)
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)


@pytest.mark.skipif(not ROOT, reason="only root can be somebody else")
def test_missing_permissions(finished, capsys, tries):
    """As a user who may read the run but not write it, or not even read it."""
    tries(1, 1)
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        path = shutil.copytree(finished, Path(folder) / "run")
        calls = [("resume", path), ("train", *TRAIN, "--out", Path(folder) / "new")]
        calls.append(("plot", path))
        for words in calls:
            if words[0] == "plot":
                (path / "config.json").chmod(0o600)
            with somebody_else():
                assert run(*words) == 2
            error = one_sentence(capsys)
            assert "Permission denied" in error
            assert len(error.splitlines()) == 1
