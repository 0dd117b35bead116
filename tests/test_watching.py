"""Who looks on: progress, loggers, stopping, and watches that fail."""

import os
import pty
import struct
import subprocess
import sys
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.compilation_cache import compilation_cache

import ecop
from ecop import api, cli, runs
from ecop.errors import UserError
from ecop.watching import Quiet, StopOnPlateau, TensorBoard, WandB, compiling
from probes import Walk

TINY = {"seeds": 2, "episodes": 2, "hidden": (4,), "critic_epochs": 1}


def short(**options):
    options = {"iterations": 12, "watch": None} | TINY | options
    return ecop.train(Walk(), ecop.PPO(epochs=1), **options)


def test_progress_is_shown_unless_it_is_silenced(capsys):
    short()
    assert capsys.readouterr().out == ""
    short(watch="progress")
    assert "iteration 12/12  reward" in capsys.readouterr().out
    ecop.train(Walk(), ecop.PPO(epochs=1), iterations=2, **TINY)
    assert "iteration 2/2  reward" in capsys.readouterr().out


IN_A_TERMINAL = """
import sys
sys.path.insert(0, "tests")
from test_watching import short
short(watch="progress")
"""


def test_a_terminal_has_a_table():
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", IN_A_TERMINAL],
        stdout=theirs,
        stderr=theirs,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "100"},
        cwd=os.path.dirname(os.path.dirname(__file__)),
    )
    os.close(theirs)
    seen = b""
    try:
        while part := os.read(ours, 2**16):
            seen += part
    except OSError:  # the other end is closed
        pass
    os.close(ours)
    assert process.wait() == 0, seen.decode()
    text = seen.decode()
    assert "Walk ppo  ·  iteration 12/12" in text
    assert "multiplier" in text
    assert "steps/s" in text


def test_a_notebook_has_one_table_that_is_updated(tmp_path):
    """In a real kernel: the display is made once, all else are updates of it."""
    from jupyter_client.manager import start_new_kernel

    here = os.path.dirname(__file__)
    manager, client = start_new_kernel(kernel_name="python3", cwd=here)
    outputs: list[dict[str, Any]] = []

    def run(code):
        outputs.clear()
        reply = client.execute_interactive(
            code, timeout=120, output_hook=outputs.append
        )
        assert reply["content"]["status"] == "ok", reply
        return [(m["msg_type"], m["content"]) for m in outputs]

    try:
        shown = run("from test_watching import short\nrun = short(watch='progress')")
        kinds = [kind for kind, _ in shown]
        assert kinds.count("display_data") == 1
        last = [content for kind, content in shown if "display" in kind][-1]
        html = last["data"]["text/html"]
        assert "Walk ppo  ·  iteration 12/12" in html
        assert html.count("<tr>") == 3
        for code, kind, words in (
            ("run", "text/html", "Walk ppo: iteration 12/12, 2 seeds"),
            ("run.evaluate(3)", "text/html", "2 policies x 3 fresh episodes"),
            ("run.plot()", "image/png", "iVBOR"),
        ):
            found = dict(run(code))["execute_result"]["data"]
            assert words in found[kind], code
        run("import matplotlib, sys; assert 'matplotlib.pyplot' not in sys.modules")
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


def test_a_word_that_is_no_watch():
    for bad in ("tensorbord", 3, object()):
        with pytest.raises(UserError, match="is no watch: it has no note"):
            short(watch=bad)


class Bad(Quiet):
    """Raises after iteration 7."""

    def advanced(self, run):
        if run.iteration >= 7:
            raise ZeroDivisionError("no seeds left")


def test_a_watch_that_raises_loses_nothing(tmp_path):
    path = tmp_path / "run"
    with pytest.raises(ecop.Faulted) as fault:
        short(out=path, watch=[Bad()])
    words = str(fault.value)
    assert words.startswith("A watch raised ZeroDivisionError: no seeds left\n")
    assert "after iteration 10. It is saved" in words
    assert f"ecop resume {path}" in words
    assert fault.value.run.iteration == 10
    run = ecop.resume(path, env=Walk(), watch=None)
    whole = short()
    assert [{**m, "seconds": 0} for m in run.metrics] == [
        {**m, "seconds": 0} for m in whole.metrics
    ]
    for a, b in zip(run.states, whole.states, strict=True):
        np.testing.assert_array_equal(a.normaliser.mean, b.normaliser.mean)


class BadEnd(Quiet):
    """Cannot close what it opened."""

    def ended(self, run):
        raise OSError("the line is dead")


def test_a_watch_that_cannot_end_loses_nothing():
    last = Enough()
    with pytest.raises(ecop.Faulted, match="OSError: the line is dead") as fault:
        short(watch=[BadEnd(), last], iterations=4)
    assert fault.value.run.finished
    assert last.told[-1] == ("ended", 4)
    with pytest.raises(ecop.Faulted, match="ZeroDivisionError"):
        short(watch=[BadEnd(), Bad()])


class Enough(Quiet):
    """Stops after iteration 5; remembers what it was told."""

    def __init__(self):
        self.told = []

    def began(self, run):
        self.told.append(("began", run.iteration))

    def advanced(self, run):
        return "That is enough." if run.iteration == 5 else None

    def note(self, text):
        self.told.append(text)

    def ended(self, run):
        self.told.append(("ended", run.iteration))


def test_a_watch_can_stop_cleanly(tmp_path):
    watch, path = Enough(), tmp_path / "run"
    run = short(out=path, watch=watch)
    assert run.stopped == "That is enough."
    assert (run.iteration, run.finished) == (5, False)
    assert watch.told[0] == ("began", 0)
    assert watch.told[-2:] == ["That is enough.", ("ended", 5)]
    assert ecop.load(path, env=Walk(), watch=None).iteration == 5
    again = ecop.resume(path, env=Walk(), watch=watch)
    assert again.finished
    assert again.stopped is None
    assert ("began", 5) in watch.told


class Told:
    """A run as a watch sees it."""

    def __init__(self):
        self.states, self.metrics = [0, 1], []

    def add(self, reward, cost):
        iteration = len(self.metrics) // 2 + 1
        for seed in (0, 1):
            line = {"seed": seed, "iteration": iteration, "limits": [1.0, None]}
            costs = [cost if seed else 0.0, 100.0]
            self.metrics.append({**line, "reward": reward, "costs": costs})


def stops_at(rewards, costs, patience=20):
    watch, run = StopOnPlateau(patience), Told()
    for reward, cost in zip(rewards, costs, strict=True):
        run.add(reward, cost)
        reason = watch.advanced(run)
        if reason:
            assert f"after iteration {len(run.metrics) // 2}:" in reason
            return len(run.metrics) // 2
    return None


def test_stopping_on_a_plateau():
    rising = list(range(100))
    flat = [*range(30), *[29] * 70]
    kept, broken = [1.0] * 100, [1.01] * 100
    assert stops_at(rising, kept) is None
    assert stops_at(flat, broken) is None, "one seed is above its limit"
    assert stops_at(flat, kept) == 39 + 20, "the mean of 10 rises until iteration 39"
    # A reward that was earned above the limit is no mark to beat.
    high = [*[500.0] * 30, *range(70)]
    assert stops_at(high, [*[9.0] * 30, *[0.5] * 70]) is None
    for bad in (0, -1):
        with pytest.raises(UserError, match="at least 1"):
            StopOnPlateau(bad)


def test_a_run_on_a_plateau_stops_and_is_saved(tmp_path):
    path = tmp_path / "run"
    watch = StopOnPlateau(5)
    run = short(iterations=500, limits=[1e6, 1e6], out=path, watch=watch)
    assert run.stopped is not None
    assert "has not risen" in run.stopped
    assert 15 <= run.iteration < 500
    assert ecop.load(path, env=Walk(), watch=None).iteration == run.iteration


def events(file):
    """Tag, step and value of the scalars of an event file."""
    from tensorboardX.proto import event_pb2

    kind: Any = event_pb2
    data, place = file.read_bytes(), 0
    while place < len(data):
        (size,) = struct.unpack("<Q", data[place : place + 8])
        event = kind.Event.FromString(data[place + 12 : place + 12 + size])
        place += 16 + size
        for value in event.summary.value:
            yield value.tag, event.step, value.simple_value


def test_tensorboard_has_every_iteration(tmp_path):
    path = tmp_path / "run"
    run = short(out=path, watch="tensorboard")
    for seed in (0, 1):
        (file,) = (path / "tensorboard" / f"seed{seed}").iterdir()
        found = {(tag, step): value for tag, step, value in events(file)}
        lines = [m for m in run.metrics if m["seed"] == seed]
        name = run.learner.spec.cost_names[0]
        for line in lines:
            step = line["iteration"]
            assert found["reward", step] == pytest.approx(line["reward"], rel=1e-6)
            cost = found[f"cost/{name}", step]
            assert cost == pytest.approx(line["costs"][0], rel=1e-6)
            assert found[f"limit/{name}", step] == line["limits"][0]
            assert (f"multiplier/{name}", step) in found
        assert len({step for _, step in found}) == 12


def test_tensorboard_goes_on_without_repeating(tmp_path):
    path, folder = tmp_path / "run", tmp_path / "board"
    with pytest.raises(ecop.Faulted):
        short(out=path, watch=[TensorBoard(folder), Bad()])
    ecop.resume(path, env=Walk(), watch=TensorBoard(folder))
    steps = [
        step
        for file in (folder / "seed0").iterdir()
        for tag, step, _ in events(file)
        if tag == "reward"
    ]
    assert sorted(steps) == list(range(1, 13))


def test_tensorboard_needs_a_folder():
    with pytest.raises(UserError, match="Where should TensorBoard's files go"):
        short(watch="tensorboard")


def records(file):
    """What a log of W&B holds: a header, then pieces of records in blocks of 32 KiB."""
    from wandb.proto import wandb_internal_pb2

    kind: Any = wandb_internal_pb2
    data, place, pieces = file.read_bytes(), 7, b""
    while place + 7 <= len(data):
        if 2**15 - place % 2**15 < 7:
            place += 2**15 - place % 2**15
        size, part = struct.unpack("<HB", data[place + 4 : place + 7])
        pieces += data[place + 7 : place + 7 + size]
        place += 7 + size
        if part in (1, 4):  # a whole record, or the last piece of one
            yield kind.Record.FromString(pieces)
            pieces = b""


def test_wandb_offline_has_every_iteration(tmp_path, monkeypatch):
    for name in ("WANDB_CACHE_DIR", "WANDB_CONFIG_DIR", "WANDB_DATA_DIR"):
        monkeypatch.setenv(name, str(tmp_path / "wandb-home"))
    monkeypatch.setenv("WANDB_SILENT", "true")
    path = tmp_path / "run"
    run = short(out=path, watch=WandB(mode="offline"))
    import wandb

    wandb.teardown()  # its service writes the last records when it ends
    (file,) = path.glob("wandb/offline-run-*/run-*.wandb")
    rows, config = [], {}
    for record in records(file):
        if record.HasField("history"):
            entries = record.history.item
            rows.append(
                {e.key or ".".join(e.nested_key): e.value_json for e in entries}
            )
        for item in record.run.config.update:
            config[item.key] = item.value_json
    assert config["algorithm"] == '"ppo"'
    assert len(rows) == 12
    for k, row in enumerate(rows, 1):
        lines = [m for m in run.metrics if m["iteration"] == k]
        mean = np.mean([m["reward"] for m in lines])
        assert float(row["reward"]) == pytest.approx(mean, rel=1e-6)
        assert float(row["seed1/reward"]) == pytest.approx(lines[1]["reward"])


def test_packages_that_are_missing_are_said(monkeypatch, tmp_path):
    path = tmp_path / "run"
    for package, name in (("tensorboardX", "tensorboard"), ("wandb", "wandb")):
        monkeypatch.setitem(sys.modules, package, None)
        with pytest.raises(UserError, match=rf"pip install 'ecop\[{name}\]'"):
            short(out=path, watch=name)
    assert not path.exists()


def test_a_run_and_its_evaluation_say_what_they_are(tmp_path):
    path = tmp_path / "<b>run"
    run = short(out=path)
    lines = repr(run).split("\n")
    assert lines[0] == f"<Run Walk ppo: iteration 12/12, 2 seeds, '{path}'>"
    newest = run.metrics[-2:]
    reward = np.mean([m["reward"] for m in newest])
    assert lines[1].split() == ["reward", f"{reward:.2f}"]
    assert lines[2].split()[0] == run.learner.spec.cost_names[0]
    assert "&lt;b&gt;run" in run._repr_html_()
    found = run.evaluate(4)
    s = found.summary()
    text = repr(found)
    assert text.startswith("<Evaluation of 2 policies x 4 fresh episodes>\n")
    assert f"{s['reward']['mean']:.2f} ± {s['reward']['interval']:.2f}" in text
    assert "% of episodes within" in text
    assert "<td" in found._repr_html_()
    assert repr(short(iterations=1, seeds=1).evaluate(1))
    fresh = api.Run(run.config, run.learner, run.states, [], None)
    assert repr(fresh).count("\n") == 0


def test_the_command_stops_with_patience(tmp_path, capsys):
    path = tmp_path / "run"
    arguments = "--patience 3 --iterations 400 --seeds 1 --episodes 2 --horizon 10"
    arguments += " --hidden 4 --critic-epochs 1 --limits 1000 --watch tensorboard"
    with pytest.raises(SystemExit) as end:
        cli.main(
            ["train", "PointCircle", "ppo", "--out", str(path), *arguments.split()]
        )
    assert end.value.code == 0
    out = capsys.readouterr().out
    assert "has not risen for" in out
    assert f"Saved: {path}" in out
    assert runs.read_metrics(path)[-1]["iteration"] < 400
    assert list(path.glob("tensorboard/seed0/*"))


def test_compiling_is_said_when_it_happens(tmp_path, monkeypatch):
    """Not where the program is found in the cache."""

    def heavy(x):
        for i in range(150):
            x = jnp.sin(x @ x + i) @ jnp.linalg.inv(x + jnp.eye(4) * i)
        return x

    x = jnp.ones((4, 4), jnp.float32)
    kept = jax.config.values["jax_compilation_cache_dir"]
    jax.config.update("jax_compilation_cache_dir", str(tmp_path))
    compilation_cache.reset_cache()
    said = []
    try:
        monkeypatch.setattr(compiling, "AFTER", 0.05)
        start = time.perf_counter()
        with compiling.heard(lambda: said.append(1)):
            jax.block_until_ready(jax.jit(heavy)(x))
        took = time.perf_counter() - start
        assert said == [1]
        jax.clear_caches()
        monkeypatch.setattr(compiling, "AFTER", took / 2)
        with compiling.heard(lambda: said.append(2)):
            jax.block_until_ready(jax.jit(heavy)(x))
        assert said == [1]
    finally:
        jax.config.update("jax_compilation_cache_dir", kept)
        compilation_cache.reset_cache()
