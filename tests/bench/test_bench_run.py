"""Suites run for real: workers, kills, failures and merges give the same bits."""

import dataclasses
import os
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import tiny
from tiny import numbers

import ecop
from ecop import cli, runs
from ecop.bench import results, run, work
from ecop.bench.cells import identity
from ecop.cli import bench_display
from ecop.errors import UserError
from ecop.learning.options import values
from probes import NumpyWalk, Walk

RUN = ["bench", "run", "tiny"]


def bench(folder, *more):
    with pytest.raises(SystemExit) as stop:
        cli.main([*RUN, "--out", str(folder), *more])
    return stop.value.code


def start(folder, log, *more):
    """The same in a process of its own."""
    command = [sys.executable, tiny.__file__, *RUN, "--out", str(folder), *more]
    with log.open("w") as output:
        return subprocess.Popen(command, stdout=output, stderr=output)


def processes(folder):
    """Processes of cells that work in this folder."""
    found = []
    for entry in os.listdir("/proc"):
        try:
            with open(f"/proc/{entry}/cmdline", "rb") as file:
                text = file.read().decode(errors="replace")
        except (OSError, ValueError):
            continue
        if entry.isdigit() and "ecop.bench.work" in text and str(folder) in text:
            found.append(int(entry))
    return found


def wait_until(condition, seconds=300):
    for _ in range(50 * seconds):
        if condition():
            return
        time.sleep(0.02)
    raise AssertionError("waited in vain")


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """All cells, run by one worker."""
    folder = tmp_path_factory.mktemp("bench") / "whole"
    assert bench(folder, "--workers", "1") == 0
    return folder


def test_files_and_plan(whole, capsys):
    found = results.read(whole)
    assert len(found.cells) == 2
    for name, document in found.cells.items():
        assert identity(document["cell"]) == name
        assert document["versions"]["jax"]
        assert len(document["curve"]["reward"]) == 600
        assert document["curve"]["env_steps"][-1] == document["env_steps"] == tiny.STEPS
        assert document["exact"]["optimum"] == pytest.approx(2.0)
        assert 0 < document["start_up"] <= document["seconds"]
    assert bench(whole) == 0
    text = capsys.readouterr().out
    assert "2 cells, 2 finished, 0 to run" in text


def test_fresh_episodes_at_shares_of_the_steps(whole):
    for document in results.read(whole).cells.values():
        parts = document["evaluations"]
        assert [part["share"] for part in parts] == [0.1, 0.25, 0.5, 1.0]
        assert [part["env_steps"] for part in parts] == [720, 1800, 3600, 7200]
        sizes = [len(part["reward"]) for part in parts]
        assert sizes == [len(part["costs"]) for part in parts] == [20, 20, 20, 2]
        assert parts[-1] == {"share": 1.0, **document["evaluation"]}
        assert len(document["deterministic"]["reward"]) == 2


def test_an_evaluation_on_the_way_is_that_of_a_run_which_ends_there(whole, tmp_path):
    assert bench(tmp_path, "--steps", "720", "--seeds", "1", "--workers", "1") == 0
    (short,) = results.read(tmp_path).cells.values()
    (long,) = (
        document
        for document in results.read(whole).cells.values()
        if document["cell"]["train"]["first_seed"] == 0
    )
    for name, points in short["curve"].items():
        assert points == long["curve"][name][:60]
    # A number of an episode is its chance: the first ones are the same.
    for name in ("reward", "costs"):
        assert short["evaluation"][name] == long["evaluations"][0][name][:2]


@pytest.mark.parametrize("kind", [Walk, NumpyWalk])
def test_training_does_not_notice_evaluations(kind, tmp_path, monkeypatch):
    options: dict = {"seeds": 1, "steps": 1600, "episodes": 4, "hidden": (4,)}
    quiet = ecop.train(kind(), "ppo", **options)
    out = tmp_path / "run"
    watched = ecop.train(kind(), "ppo", out=out, watch=work.Watch(), **options)
    times = dict.fromkeys(runs.TIMES, 0)
    for ours, theirs in zip(watched.metrics, quiet.metrics, strict=True):
        assert ours | times == theirs | times
    marks = work.read_marks(out)
    assert [mark["share"] for mark in marks] == list(work.SHARES)
    for mark in marks:
        # The next iteration of a host task, the next fifth one of a JAX task.
        assert 0 <= mark["env_steps"] - 1600 * mark["share"] < 5 * 4 * 8
        assert len(mark["reward"]) == work.SHARE_EPISODES
    # A mark that is there is not measured again.
    monkeypatch.setattr(work, "measured", None)
    work.Watch().advanced(watched)
    still = watched.evaluate(5, deterministic=True)
    assert not np.array_equal(still.reward, watched.evaluate(5).reward)
    file = work.mark_file(out, work.SHARES[0])
    file.write_text(file.read_text().replace('"share": 0.1', '"share": 0.2'))
    with pytest.raises(UserError, match="checksum does not match"):
        work.read_marks(out)


def test_the_estimate_says_where_it_comes_from(whole, tmp_path, capsys):
    assert bench(tmp_path / "new", "--dry-run") == 0
    assert "rough table" in capsys.readouterr().out
    assert not (tmp_path / "new").exists()
    (tmp_path / "empty").mkdir()
    assert bench(tmp_path / "empty", "--dry-run") == 0
    assert bench(whole, "--first-seed", "7", "--dry-run") == 0
    assert "2 finished cells in this folder" in capsys.readouterr().out


def test_a_cell_has_the_numbers_of_ecop_train(whole):
    found = results.read(whole)
    name, document = next(iter(found.cells.items()))
    again = ecop.load(whole / "runs" / name)
    config = again.config
    direct = ecop.train(config.task, config.algorithm, **values(config.train))
    # A cell has one thread, this process several, which add up in another order.
    for key, value in work.curve(direct.metrics).items():
        np.testing.assert_allclose(value, document["curve"][key], rtol=1e-4, atol=1e-5)


def test_killed_and_gone_on_in_two_workers(whole, tmp_path):
    folder = tmp_path / "killed"
    parent = start(folder, tmp_path / "log", "--workers", "2")
    wait_until(lambda: list(folder.glob("runs/*/evaluation-25.json")))
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    wait_until(lambda: not processes(folder), 60)
    assert len(results.read(folder).cells) < 2
    assert bench(folder, "--workers", "2") == 0
    assert numbers(folder) == numbers(whole)


def test_a_signal_saves_and_says_how_to_go_on(tmp_path):
    folder, log = tmp_path / "stopped", tmp_path / "log"
    parent = start(folder, log, "--workers", "1", "--steps", "1200000")
    wait_until(lambda: list(folder.glob("runs/*/metrics.jsonl")))
    parent.send_signal(signal.SIGINT)
    assert parent.wait(timeout=300) == 130
    text = log.read_text()
    assert "stopped and saved" in text
    assert f"--out {folder}" in text
    assert list(folder.glob("runs/*/checkpoints/*/manifest.json"))
    assert not processes(folder)


def test_a_failure_is_recorded_and_the_rest_goes_on(whole, tmp_path, capsys):
    folder = tmp_path / "failing"
    good = next(iter(results.read(whole).cells.values()))["cell"]
    bad = good | {"task": "Atlantis", "train": good["train"] | {"horizon": 5}}
    jobs = [run.Job(identity(cell), cell, clip=False) for cell in (bad, good)]
    plan = dataclasses.replace(run.make_plan("tiny", folder), jobs=jobs)
    tally = run.run_plan(plan, folder, 1)
    assert tally.counts == {"done": 1, "failed": 1, "stopped": 0}
    assert not tally.unfinished
    assert capsys.readouterr().out == ""
    found = results.read(folder)
    record = found.failed[jobs[0].name]
    assert "Atlantis" in record["error"]
    assert "Traceback" in record["traceback"]
    assert list(found.cells) == [jobs[1].name]
    # A process that dies without a word is recorded by its parent.
    event = run.Event("end", jobs[0], 1.0, work.Outcome(-9, "killed"))
    assert run.settle(event, folder) == "failed"
    assert "suddenly" in results.read(folder).failed[jobs[0].name]["error"]


def test_a_suite_counts_the_same_with_and_without_a_display(whole, tmp_path, capsys):
    def play(jobs, folder, workers):
        done, died, stopped = jobs
        yield run.Event("start", done)
        yield run.Event("progress", done, 0.5)
        name = f"{done.name}.json"
        shutil.copy(whole / "cells" / name, folder / "cells" / name)
        yield run.Event("end", done, 1.0, work.Outcome(0))
        yield run.Event("end", died, 1.0, work.Outcome(-9, "killed"))
        yield run.Event("end", stopped, 0.0, work.Outcome(work.STOPPED))

    plan = run.make_plan("tiny", tmp_path / "quiet", seeds=3)
    quiet = run.run_plan(plan, tmp_path / "quiet", 1, runner=play)
    assert capsys.readouterr().out == ""
    folder = tmp_path / "shown"
    with bench_display.Progress(folder) as progress:
        shown = run.run_plan(plan, folder, 1, runner=play, watch=progress.show)
    assert quiet.counts == shown.counts == {"done": 1, "failed": 1, "stopped": 1}
    assert quiet.unfinished == shown.unfinished == 1
    for part in ("plans", "cells", "failed"):
        names = [
            {f.name for f in (tmp_path / x / part).iterdir()}
            for x in ("quiet", "shown")
        ]
        assert names[0] == names[1] != set()
    first, second, third = capsys.readouterr().out.splitlines()
    assert first.startswith("[1/3]")
    assert "reward" in first
    assert f"failed, see {folder / 'failed'}" in second
    assert "stopped and saved" in third


def test_a_half_written_cell_is_run_again(whole, tmp_path):
    folder = shutil.copytree(whole, tmp_path / "damaged")
    file = next((folder / "cells").glob("*.json"))
    file.write_text(file.read_text()[:500])
    plan = run.make_plan("tiny", folder)
    assert [job.name for job in plan.jobs] == [file.stem]
    (folder / "runs" / file.stem / "config.json").write_text("{")  # and its run folder
    assert bench(folder) == 0
    assert numbers(folder) == numbers(whole)


def test_folders_merge_by_copying(whole, tmp_path):
    one, two = tmp_path / "one", tmp_path / "two"
    shutil.copytree(whole, one)
    shutil.copytree(whole, two)
    names = sorted(results.read(whole).cells)
    for name in names[:1]:
        (one / "cells" / f"{name}.json").unlink()
    for name in names[1:]:
        (two / "cells" / f"{name}.json").unlink()
    shutil.copytree(one, two, dirs_exist_ok=True)
    assert numbers(two) == numbers(whole)


def test_repeat(whole, capsys):
    file = sorted((whole / "cells").glob("*.json"))[0]
    with pytest.raises(SystemExit) as stop:
        cli.main(["bench", "repeat", str(file)])
    assert stop.value.code == 0
    assert "Identical" in capsys.readouterr().out


@pytest.mark.parametrize(
    "args",
    [
        ["walk"],
        ["run", "tabel1"],
        ["run", "beta", "--tasks", "Navigation"],
        ["run", "beta", "--workers", "0"],
        ["run", "beta", "--address", "auto"],
        ["run", "beta", "--preset", "best"],
        ["run", "beta", "--out", "{foreign}"],
        ["repeat", "nowhere.json"],
    ],
)
def test_bad_input_is_one_sentence_and_code_2(args, capsys, tmp_path):
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "holiday.jpg").touch()
    with pytest.raises(SystemExit) as stop:
        cli.main(["bench", *(a.format(foreign=tmp_path / "foreign") for a in args)])
    assert stop.value.code == 2
    captured = capsys.readouterr()
    assert captured.err + captured.out
    assert "Traceback" not in captured.err


def test_ray_is_asked_for_and_not_there(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    from ecop.bench.on_ray import runner

    with pytest.raises(UserError, match="not installed"):
        runner(None)
