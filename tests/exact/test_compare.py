"""The report of e-COP against the truth: cells, resumption, table, figure."""

import json

import pytest
from matplotlib.image import imread

from ecop import cli
from ecop.exact import PROBLEMS, compare
from ecop.exact.plots import draw_report


def run(*args):
    with pytest.raises(SystemExit) as stop:
        cli.main([str(a) for a in args])
    return stop.value.code


def cell(problem="FactoredRing", kind="table", seed=0, **changes):
    made = {
        "problem": problem,
        "limits": [3.0],
        "kind": kind,
        "seed": seed,
        "setting": "x",
        "optimum": 2.0,
        "optimal_multipliers": [0.5],
        "value": 1.99,
        "costs": [3.0],
        "gap": 0.005,
        "violation": 0.002,
        "late_gap": 0.004,
        "late_violation": 0.0,
        "multipliers": [0.6],
        "entropy": 0.1,
        "seconds": 1.0,
    }
    return made | changes


def test_jobs_resume_and_a_cut_line_does_no_harm(tmp_path):
    file = tmp_path / "cells.jsonl"
    done = []

    def job(seed):
        made = cell(seed=seed)
        return compare.identity(made), lambda: done.append(seed) or made

    said = []
    compare.run_jobs(file, [[job(0), job(1)]], said.append)
    assert done == [0, 1]
    assert len(said) == 2
    with file.open("a") as out:
        out.write('{"problem": "Fact')
    cells = compare.run_jobs(file, [[job(0), job(1)], [job(2)]], said.append)
    assert done == [0, 1, 2]
    assert [c["seed"] for c in cells] == [0, 1, 2]
    assert len(compare.read_cells(file)) == 3


def test_other_settings_are_other_cells():
    trainer = compare.PRESETS["table"]
    cmdp = PROBLEMS["FactoredRing"]()
    first = compare.training_job(cmdp, "table", trainer, 0)[0]
    assert first != compare.training_job(cmdp, "table", compare.quick(trainer), 0)[0]
    assert first != compare.training_job(cmdp.with_limits(1.0), "table", trainer, 0)[0]


def test_table_takes_medians_and_says_whether_the_goal_is_met():
    cells = [cell(seed=s, gap=g) for s, g in enumerate((0.001, 0.009, 0.5))]
    cells += [cell(kind="network", violation=0.02)]
    cells += [cell(f"Random{i}", multipliers=[0.5 + 0.1 * i]) for i in range(3)]
    best = {"kind": "best stationary", "value": 1.8, "gap": 0.1}
    cells += [cell() | best]
    header, *rows = compare.summarise(cells)
    table = {(row[0], row[1]): dict(zip(header, row, strict=True)) for row in rows}
    ring = table["FactoredRing", "table"]
    assert ring["gap"] == "0.90%"
    assert ring["goal"] == "yes"
    assert ring["price"] == "0.600"
    assert table["FactoredRing", "network"]["goal"] == "no"
    assert table["3 random", "table"]["price"] == "off by 20%"
    assert table["FactoredRing", "best stationary"]["gap"] == "10.00%"


def test_figure_shows_every_kind(tmp_path):
    few = [cell()]
    best = cell() | {"kind": "best stationary", "gap": 0.1}
    draw_report(few, tmp_path / "few.png")
    draw_report([*few, cell(kind="network"), best], tmp_path / "more.png")
    few, more = (imread(tmp_path / f"{name}.png") for name in ("few", "more"))
    assert few.shape == more.shape
    assert (few != more).any()


@pytest.mark.slow
def test_report_from_the_command_line(tmp_path, capsys):
    folder = tmp_path / "report"
    assert run("exact", "report", "--quick", "--out", folder) == 0
    text = capsys.readouterr().out
    assert "PeakHours" in text
    assert "best stationary" in text
    lines = (folder / "cells.jsonl").read_text().splitlines()
    assert len(lines) == 2 * 3 + 2 * 2 + 2
    assert {"gap", "violation"} <= set(json.loads(lines[0]))
    assert (folder / "table.md").read_text().startswith("| problem")
    assert (folder / "figure.png").read_bytes().startswith(b"\x89PNG")
    assert run("exact", "report", "--quick", "--out", folder) == 0
    assert len((folder / "cells.jsonl").read_text().splitlines()) == len(lines)


def test_frontier_from_the_command_line(tmp_path, capsys):
    file = tmp_path / "new" / "ring.png"
    assert run("exact", "frontier", "FactoredRing", "--points", 0, "--out", file) == 0
    assert capsys.readouterr().out == f"{file}\n"
    assert imread(file).std() > 0.05
    assert [f.name for f in file.parent.iterdir()] == ["ring.png"]


@pytest.mark.slow
def test_frontier_with_trained_points(tmp_path):
    cmdp = PROBLEMS["FactoredRing"]()
    files = [tmp_path / "with.png", tmp_path / "without.png"]
    compare.trained_frontier(cmdp, files[0], points=2, fast=True, say=[].append)
    compare.trained_frontier(cmdp, files[1], points=0)
    cells = compare.read_cells(files[0].with_suffix(".jsonl"))
    assert [c["limits"] for c in cells] == [[2.0], [4.0]]
    with_points, without = map(imread, files)
    assert (with_points != without).any()


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["exact", "fontier"], "frontier"),
        (["exact", "frontier", "Inventry"], "Did you mean 'Inventory'"),
        (["exact", "frontier", "PointCircle"], "tabular task"),
        (["exact", "frontier", "Box", "--points", "-1"], "0 or more"),
    ],
)
def test_bad_input_is_one_sentence(args, words, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run(*args) == 2
    assert words in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
