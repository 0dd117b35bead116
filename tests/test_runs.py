"""The run folder: exact resume after real kills, damage, NaN, safe files."""

import json
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ecop
from ecop import runs
from ecop.envs import ENVS
from ecop.errors import UserError
from ecop.watching import Quiet
from probes import NumpyWalk, Walk

TINY = {
    "seeds": 2,
    "episodes": 2,
    "horizon": 10,
    "hidden": (4,),
    "critic_epochs": 1,
    "schedule": "constant",  # another plan changes nothing of what is done
}
TINY_CLI = [
    "--seeds",
    "2",
    "--episodes",
    "2",
    "--horizon",
    "10",
    "--hidden",
    "4",
    "--critic-epochs",
    "1",
    "--schedule",
    "constant",
    "--backward-steps",
    "2",
]
QUICK = ecop.ECOP(backward_steps=2)


def command(log, *args):
    """Start `ecop ...` as a process of its own; its output goes to the file `log`."""
    with log.open("a") as output:
        return subprocess.Popen(
            [sys.executable, "-m", "ecop.cli", *map(str, args)],
            stdout=output,
            stderr=subprocess.STDOUT,
        )


def final_bytes(path):
    return (path / "checkpoints" / "00000040" / "state.safetensors").read_bytes()


def metrics_without_time(path):
    return [m | dict.fromkeys(runs.TIMES, 0) for m in runs.read_metrics(path)]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "whole"
    ecop.train("PointCircle", QUICK, out=path, iterations=40, **TINY)
    return path


def test_killed_at_random_and_resumed_gives_the_same_bytes(finished, tmp_path):
    chance = random.Random(0)
    path, log = tmp_path / "killed", tmp_path / "log"
    arguments = ["train", "PointCircle", "--iterations", 40, "--out", path, *TINY_CLI]
    kills = 0
    for _ in range(20):
        seen = runs.read_metrics(path)
        process = command(log, *arguments)
        arguments = ["resume", path]
        while process.poll() is None and runs.read_metrics(path) == seen:
            time.sleep(0.01)
        time.sleep(chance.uniform(0.0, 0.2))
        if kills < 3 and process.poll() is None:
            process.send_signal(signal.SIGKILL)
            kills += 1
        if process.wait() == 0:
            break
        assert process.returncode == -signal.SIGKILL, log.read_text()
    assert kills >= 1
    assert final_bytes(path) == final_bytes(finished)
    assert metrics_without_time(path) == metrics_without_time(finished)


def test_stopped_early_and_resumed_for_longer(finished, tmp_path):
    path = tmp_path / "short"
    ecop.train("PointCircle", QUICK, out=path, iterations=17, **TINY)
    run = ecop.resume(path, iterations=40)
    assert run.finished
    assert final_bytes(path) == final_bytes(finished)
    assert metrics_without_time(path) == metrics_without_time(finished)
    assert ecop.load(path).config.train.iterations == 40
    with pytest.raises(UserError, match="already"):
        ecop.resume(path, iterations=10)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_save_and_say_how_to_go_on(number, tmp_path):
    path, log = tmp_path / "stopped", tmp_path / "log"
    options = ["--iterations", 100000, "--out", path, *TINY_CLI]
    process = command(log, "train", "PointCircle", *options)
    while not runs.read_metrics(path):
        assert process.poll() is None, log.read_text()
        time.sleep(0.05)
    process.send_signal(number)
    assert process.wait(timeout=60) == 130
    output = log.read_text()
    assert f"ecop resume {path}" in output
    run = ecop.load(path)
    assert run.iteration == max(m["iteration"] for m in runs.read_metrics(path))
    assert f"iteration {run.iteration}" in output


def test_files(finished):
    document = json.loads((finished / "config.json").read_text())
    assert document["format"] == runs.FORMAT
    assert document["algorithm"]["backward_steps"] == 2
    assert document["versions"]["jax"]
    lines = runs.read_metrics(finished)
    assert len(lines) == 80
    assert set(lines[0]) >= {
        *("seed", "iteration", "env_steps", "reward", "costs", "limits"),
        *("multipliers", "beta", "kl", "failed", "seconds"),
    }
    assert lines[-1]["env_steps"] == 40 * 2 * 10
    assert lines[0]["limits"] == [10.0]
    folders = [folder.name for folder in runs.checkpoints(finished)]
    assert folders == ["00000020", "00000040"]
    assert not list(finished.glob("**/tmp-*"))


class Notes(Quiet):
    def __init__(self):
        self.notes = []

    def note(self, text):
        self.notes.append(text)


def copy(source, target):
    shutil.copytree(source, target)
    return target


def flip(file: Path, place: float) -> None:
    data = bytearray(file.read_bytes())
    data[int(place * (len(data) - 1))] ^= 0x40
    file.write_bytes(data)


@pytest.mark.parametrize("place", [0.0, 0.01, 0.5, 1.0])
@pytest.mark.parametrize("name", ["state.safetensors", "manifest.json"])
def test_one_flipped_byte_falls_back_to_the_previous_checkpoint(
    finished, tmp_path, place, name
):
    path = copy(finished, tmp_path / "damaged")
    flip(path / "checkpoints" / "00000040" / name, place)
    watch = Notes()
    assert ecop.load(path, watch=watch).iteration == 20
    assert len(watch.notes) == 1
    assert "00000040" in watch.notes[0]
    assert "damaged" in watch.notes[0]


@pytest.mark.parametrize("name", ["state.safetensors", "manifest.json"])
def test_resume_after_damage_gives_the_same_bytes(finished, tmp_path, name):
    path = copy(finished, tmp_path / "damaged")
    flip(path / "checkpoints" / "00000040" / name, 0.7)
    ecop.resume(path)
    assert final_bytes(path) == final_bytes(finished)
    assert metrics_without_time(path) == metrics_without_time(finished)


def test_a_checkpoint_of_another_iteration_is_damaged(finished, tmp_path):
    path = copy(finished, tmp_path / "swapped")
    old, new = runs.checkpoints(path)
    shutil.rmtree(new)
    shutil.copytree(old, new)
    watch = Notes()
    assert ecop.load(path, watch=watch).iteration == 20
    assert "another iteration" in watch.notes[0]


def test_no_intact_checkpoint(finished, tmp_path):
    path = copy(finished, tmp_path / "damaged")
    for folder in runs.checkpoints(path):
        flip(folder / "state.safetensors", 0.5)
    with pytest.raises(UserError, match="No intact checkpoint"):
        ecop.load(path)


def test_bad_folders(finished, tmp_path):
    with pytest.raises(UserError, match="exists already"):
        ecop.train("PointCircle", QUICK, out=finished, iterations=1, **TINY)
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="not a run folder"):
        ecop.load(tmp_path / "empty")
    with pytest.raises(UserError, match="does not exist"):
        ecop.load(tmp_path / "nowhere")
    newer = copy(finished, tmp_path / "newer")
    document = json.loads((newer / "config.json").read_text())
    (newer / "config.json").write_text(json.dumps(document | {"task": "Grid"}))
    with pytest.raises(UserError, match="checksum does not match"):
        ecop.load(newer)
    del document["crc32"]  # changed on purpose
    (newer / "config.json").write_text(json.dumps({**document, "format": 99}))
    with pytest.raises(UserError, match="newer"):
        ecop.load(newer)
    (newer / "config.json").write_text(json.dumps({**document, "format": 1}))
    with pytest.raises(UserError, match="older ecop"):
        ecop.load(newer)
    (newer / "config.json").write_text("{")
    with pytest.raises(UserError, match="damaged"):
        ecop.load(newer)
    train = {**document["train"], "wings": 2}
    (newer / "config.json").write_text(json.dumps({**document, "train": train}))
    with pytest.raises(UserError, match="wings"):
        ecop.load(newer)


def test_infinite_limits_survive_the_folder(tmp_path):
    path = tmp_path / "free"
    ecop.train("PointCircle", QUICK, limits=[np.inf], out=path, iterations=1, **TINY)
    run = ecop.load(path)
    assert run.config.train.limits == (np.inf,)
    assert run.metrics[0]["limits"] == [None]
    assert run.metrics[0]["multipliers"] == [0.0]


def test_nan_stops_and_keeps_what_is_needed(tmp_path, monkeypatch):
    monkeypatch.setitem(ENVS, "Poison", "probes:Poison")
    path = tmp_path / "poisoned"
    with pytest.raises(ecop.Diverged, match="reward") as caught:
        ecop.train(
            "Poison",
            ecop.ECOP(backward_steps=2, learning_rate=0.01),
            limits=[100.0],
            out=path,
            iterations=500,
            seeds=2,
            episodes=2,
            hidden=(4,),
            initial_log_std=-1.0,
            critic_epochs=1,
        )
    text = str(caught.value)
    assert "iteration" in text
    assert "seed" in text
    (batch,) = path.glob("bad_batch_*.safetensors")
    assert str(batch) in text
    from safetensors.numpy import load_file

    episodes = load_file(batch)
    assert np.isnan(episodes[".reward"]).any()
    bad = int(batch.stem.split("iteration")[1])
    run = ecop.load(path)
    assert run.iteration < bad
    assert all(np.isfinite(m["reward"]) for m in run.metrics)


def test_python_api(finished):
    run = ecop.load(finished)
    observation = np.zeros(9)
    action = run.policy(observation, 0)
    assert action.shape == (2,)
    assert run.policy(np.zeros((3, 9)), 9, seed=1).shape == (3, 2)
    import jax

    drawn = run.policy(observation, 0, key=jax.random.key(0))
    assert (drawn != action).any()
    summary = run.evaluate(episodes=4).summary()
    assert summary["seeds"] == 2
    assert summary["constraints"][0]["limit"] == 10.0
    for bad in (
        lambda: run.policy(np.zeros(3), 0),
        lambda: run.policy(observation, 10),
    ):
        with pytest.raises(UserError):
            bad()
    with pytest.raises(UserError, match="iterations"):
        ecop.train("PointCircle", iteration=3)
    with pytest.raises(UserError, match="PointCircle"):
        ecop.train("PointCirle")


class StopAt(Quiet):
    """Stops a run after an iteration."""

    def __init__(self, iteration):
        self.iteration = iteration

    def progress(self, lines, total):
        if lines[-1]["iteration"] >= self.iteration:
            signal.raise_signal(signal.SIGINT)


def same_run(a, b):
    for x, y in zip(a.states, b.states, strict=True):
        pairs = zip(jax.tree.leaves(x), jax.tree.leaves(y), strict=True)
        for p, q in pairs:
            key = jnp.issubdtype(p.dtype, jax.dtypes.prng_key)
            p, q = (jax.random.key_data(v) if key else v for v in (p, q))
            np.testing.assert_array_equal(p, q)
    lines = ([m | dict.fromkeys(runs.TIMES, 0) for m in run.metrics] for run in (a, b))
    assert list(next(lines)) == list(next(lines))


@pytest.mark.parametrize("kind", [Walk, NumpyWalk])
def test_training_by_steps_ends_and_resumes(kind, tmp_path):
    """A JAX task takes N H steps in any case; a simulator those that are lived."""
    steps, seeds, size = 300, 2, 4 * 8
    tiny = {"hidden": (4,), "critic_epochs": 1, "initial_log_std": 0.5}
    options = {"steps": steps, "episodes": 4, "seeds": seeds, **tiny}
    algorithm = ecop.PPO(epochs=1)
    whole = ecop.train(kind(), algorithm, out=tmp_path / "a", **options)
    assert whole.finished
    taken = [[m["env_steps"] for m in whole.metrics if m["seed"] == s] for s in (0, 1)]
    for counts in taken:
        assert (np.diff(counts) > 0).all()
        assert (np.diff(counts) <= size).all()
    assert min(counts[-1] for counts in taken) >= steps
    assert min(counts[-2] for counts in taken) < steps
    if kind is Walk:
        assert [counts[-1] for counts in taken] == [-(-steps // size) * size] * seeds
    else:
        assert whole.iteration > -(-steps // size)  # some have failed early
    watch = StopAt(whole.iteration // 2)
    with pytest.raises(ecop.Stopped):
        ecop.train(kind(), algorithm, out=tmp_path / "b", watch=watch, **options)
    assert not ecop.load(tmp_path / "b", env=kind()).finished
    same_run(ecop.resume(tmp_path / "b", env=kind()), whole)
    same_run(ecop.load(tmp_path / "b", env=kind()), whole)


def test_more_steps_are_iterations(tmp_path):
    """A run that was to end by steps goes on by iterations."""
    path = tmp_path / "a"
    tiny = {"hidden": (4,), "critic_epochs": 1, "seeds": 1, "episodes": 4}
    run = ecop.train(NumpyWalk(), ecop.PPO(epochs=1), out=path, steps=60, **tiny)
    more = ecop.resume(path, env=NumpyWalk(), iterations=run.iteration + 2)
    assert more.iteration == run.iteration + 2
    assert more.finished


def test_a_signal_ends_a_script_too(monkeypatch):
    class Interrupting(Quiet):
        def progress(self, lines, total):
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(ecop.Stopped) as stop:
        ecop.train("PointCircle", QUICK, iterations=40, watch=Interrupting(), **TINY)
    assert stop.value.run.iteration == 5
    assert isinstance(stop.value, KeyboardInterrupt)
