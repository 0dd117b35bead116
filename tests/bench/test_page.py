"""The report: every format, escaped text, and folders that are not whole."""

import html
import json
import math
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from made_up import make_results

from ecop import cli
from ecop.bench import results
from ecop.errors import UserError
from ecop.report import arms, tables
from ecop.report import write as report

ROOT = Path(__file__).parents[2]
SUITES = ("table1", "curves", "navigation", "limits", "beta", "robustness")


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("made-up") / "results"
    make_results(folder, suites=SUITES)
    return folder


@pytest.fixture
def folder(whole, tmp_path):
    return shutil.copytree(whole, tmp_path / "results")


def page_of(folder, out):
    file, notes = report.write(folder, out / "report.html", "html")
    return file.read_text(), notes


def test_page(whole, tmp_path):
    text, notes = page_of(whole, tmp_path)
    for words in ("Table 1", "Fig. 3", "Fig. 4", "Table 2", "Fig. 5", "data:image/gif"):
        assert words in text
    assert "1652.5 ± 13.4" in text  # the paper's, though Humanoid may not be run
    assert tables.RULE in html.unescape(text)
    assert "ecop bench repeat RESULTS/cells/" in text
    assert not re.search(r"""(src|href)=["'](?!data:|#)""", text)
    assert not re.search(r"@import|url\(|fetch\(|XMLHttpRequest", text)
    for task in results.read(whole).plans[0]["missing"]:
        assert any(task in note for note in notes)
        assert f"{task} was not run" in text


def test_the_data_are_whole(whole, tmp_path):
    text, _ = page_of(whole, tmp_path)
    found = re.search(r'id="data">(.*?)</script>', text, re.DOTALL)
    assert found
    data = json.loads(found[1])
    arms = data["arms"]
    assert {arm["section"] for arm in arms} >= {"table1", "navigation", "beta"}
    circle = [a for a in arms if (a["section"], a["task"]) == ("table1", "PointCircle")]
    assert len(circle) == 12
    assert all(len(arm["runs"]) == 3 for arm in circle)
    only = next(a for a in arms if a["label"] == "e-COP, C1 only")
    assert only["limits"] == [10.0, 25.0]  # judged by both


def test_markup_in_names_is_only_text(folder, tmp_path):
    evil = "</script><img src=x onerror=alert(1)>&"
    for part in ("plans", "cells"):
        for file in (folder / part).glob("*.json"):
            text = file.read_text().replace('"PointCircle"', json.dumps(evil))
            file.write_text(text.replace("cost 1", json.dumps(evil)[1:-1]))
    text, _ = page_of(folder, tmp_path)
    assert evil not in text
    assert "<img src=x" not in text
    assert text.count("</script>") == 2
    assert "&lt;/script&gt;" in text
    report.write(folder, tmp_path / "report.tex", "latex")


def test_markdown(whole, tmp_path):
    file, _ = report.write(whole, tmp_path / "report.md", "md")
    text = file.read_text()
    shown, _ = arms.collect(results.read(whole))
    lines = text.splitlines()
    assert all(
        len(x) <= 100 for x in lines if x and x[0] not in "|#" if "ecop" not in x
    )
    for section, title in arms.SECTIONS.items():
        if section in SUITES and section != "curves":
            assert f"## {title}\n\n    ecop bench run {section} --tasks " in text
    circle = text.split("### PointCircle, limit 10\n")[1].split("###")[0]
    assert "| P(run feasible) [95 %] |" in circle
    for name in ("e-COP", "CPPO-PID", "PPO"):
        assert f"| {name} | 3 | 2,000,000 | " in circle
    assert "(110.5 ± 9.3)" in circle  # the paper's
    assert circle.count("**") in (0, 4)  # reward and cost of the best
    reward = next(a for a in shown if a.task == "PointCircle").reward
    assert f"{reward.mean():.1f} ± " in circle


def test_published_figures_stand_beside_ours(tmp_path):
    folder = tmp_path / "results"
    make_results(folder, suites=("yardstick", "velocity"), steps=40_000)
    for kind in ("html", "latex", "md"):
        file, _ = report.write(folder, tmp_path / f"report.{kind}", kind)
        text = file.read_text()
        assert "Tianshou: PPO, 1M steps" in text
        assert "examples/mujoco/README.md" in text.replace("\n", " ")
    ant = text.split("### AntVelocity, limit 25\n")[1].split("###")[0]
    assert "| C-TRPO: TRPO-L, 2M steps |  |  | 2747 | 23.5 |  |  |  |  |  |  |" in ant
    rows = [line for line in ant.splitlines() if line.startswith("|")]
    assert len({row.count("|") for row in rows}) == 1
    assert rows[0].endswith("| failed | reward, most likely actions | its cost |")
    assert rows[2].startswith("| e-COP | 3 | 40,000 |")
    assert "| 0 % | " in rows[2]
    shown, _ = arms.collect(results.read(folder))
    arm = next(a for a in shown if (a.task, a.algorithm) == ("AntVelocity", "ecop"))
    reward, costs = tables.means(arm.deterministic)
    assert f" {tables.plus_minus(tables.st.mean_normal(reward))} |" in rows[2]
    assert f" {tables.plus_minus(tables.st.mean_normal(costs[:, 0]))} |" in rows[2]


def test_runs_with_other_batches_meet_on_one_axis_of_steps(whole):
    shown, _ = arms.collect(results.read(whole))
    arm = next(a for a in shown if (a.section, a.task) == ("table1", "PointCircle"))
    ends = [d["curve"]["env_steps"] for d in arm.documents]
    assert ends[0] != ends[1]
    assert all(end[-1] == 2_000_000 for end in ends)
    x, y = arm.curves(10)
    np.testing.assert_allclose(x, 200_000.0 * np.arange(1, 11))
    assert y.shape == (3, 2, 10)
    for end, document, run in zip(ends, arm.documents, y, strict=True):
        whole_mean = np.diff(end, prepend=0) @ document["curve"]["reward"] / 2e6
        assert run[0].mean() == pytest.approx(whole_mean)


def test_fresh_episodes_on_the_way(whole):
    shown, _ = arms.collect(results.read(whole))
    table = tables.shares_table(shown)
    assert table
    assert len(table.rows) == sum(
        bool(arm.documents) and arm.section != "curves" for arm in shown
    )
    assert [word.split()[0] for word in table.head[3:]] == ["10", "25", "50", "100"]
    assert all(len(row) == len(table.head) for row in table.rows)


def test_cells_of_before_steps_were_counted_are_read(folder, tmp_path):
    for file in (folder / "cells").glob("*.json"):
        document = json.loads(file.read_text())
        for name in ("evaluations", "deterministic"):
            del document[name]
        del document["evaluation"]["env_steps"], document["curve"]["env_steps"]
        train = document["cell"]["train"]
        del train["steps"]
        train |= {"iterations": 1000, "episodes": 10}
        document["curve"]["iteration"] = [25 * k for k in range(1, 41)]
        document["env_steps"] = 1000 * 10 * 200
        file.write_text(json.dumps(document))
    text, notes = page_of(folder, tmp_path)
    assert not any("cells/" in note for note in notes)
    assert "Fresh episodes on the way" not in text
    shown, _ = arms.collect(results.read(folder))
    arm = next(a for a in shown if a.documents)
    assert arm.steps == 2_000_000
    assert arm.curves(1000)[0].tolist() == [50_000 * k for k in range(1, 41)]
    np.testing.assert_allclose(
        arm.curves(1000)[1][0, 0], arm.documents[0]["curve"]["reward"]
    )
    for kind in ("md", "latex"):
        report.write(folder, tmp_path / f"report.{kind}", kind)


def test_docs_results_is_what_the_command_writes(tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    folder = Path("results/bench")
    file, _ = report.write(folder, tmp_path / "results.md", "md")
    assert file.read_text() == (ROOT / "docs/results.md").read_text(), (
        "docs/results.md is not what results/bench holds; run\n"
        "  ecop report results/bench --format md -o docs/results.md"
    )


def test_latex(whole, tmp_path):
    file, _ = report.write(whole, tmp_path / "report.tex", "latex")
    text = file.read_text()
    assert text.count("\\begin{tabular}") == text.count("\\end{tabular}") >= 6
    assert "ppo_lag" not in text
    assert "$\\pm$" in text
    assert "±" not in text


def test_pictures(whole, tmp_path):
    few = tmp_path / "few"
    shutil.copytree(whole, few)
    for file in (few / "plans").glob("*.json"):
        if not file.name.startswith("navigation"):
            file.unlink()
    folder, _ = report.write(few, tmp_path / "figures", "png")
    files = list(folder.glob("*.png"))
    assert len(files) == 2
    assert all(file.read_bytes().startswith(b"\x89PNG") for file in files)


def test_statistics_of_an_arm(whole):
    shown, _ = arms.collect(results.read(whole))
    arm = next(a for a in shown if a.documents)
    assert arm.reward.shape == (3,)
    assert arm.strong.shape == arm.above.shape == (3, len(arm.limits))
    assert len(arm.times) == 3
    table = tables.aggregate_table(shown)
    assert table
    assert {row[0].text for row in table.rows} >= {"e-COP", "PPO", "PCPO"}


def test_a_run_within_the_limits_beats_one_that_is_not(whole):
    shown, _ = arms.collect(results.read(whole))
    arm = next(a for a in shown if a.task == "PointCircle" and len(a.documents) == 3)
    arm.reward = np.array([1.0, 99.0, 98.0])
    arm.costs = np.array([[9.0], [11.0], [10.5]])
    assert tables.ranking(arm).argsort().tolist() == [1, 2, 0]


# Bad input


def test_folders_without_results(tmp_path, capsys):
    for name in ("nowhere", "empty", "foreign"):
        path = tmp_path / name
        if name != "nowhere":
            path.mkdir()
        if name == "foreign":
            (path / "holiday.jpg").write_text("")
        with pytest.raises(SystemExit) as stop:
            cli.main(["report", str(path)])
        assert stop.value.code == 2
        assert "Traceback" not in capsys.readouterr().err
    (tmp_path / "empty" / "cells").mkdir()
    with pytest.raises(UserError, match="no finished cell"):
        report.write(tmp_path / "empty", None, "html")


def test_half_written_files_are_said_and_the_rest_is_drawn(folder, tmp_path):
    cells = sorted((folder / "cells").glob("*.json"))
    cells[0].write_text(cells[0].read_text()[:300])
    cells[1].write_text('{"format": 1}')
    cells[2].write_text(json.dumps({"format": 99}))
    cells[3].write_bytes(b"\xff\xfe\x00")
    odd = json.loads(cells[4].read_text())
    odd["curve"]["costs"].pop()
    cells[4].write_text(json.dumps(odd))
    for i, change in ((5, {"evaluations": [{"share": 1.0}]}), (6, {"env_steps": "no"})):
        odd = json.loads(cells[i].read_text())
        del odd["curve"]["env_steps"]
        cells[i].write_text(json.dumps(odd | change))
    (folder / "cells" / "notes.txt").write_text("mine")
    (folder / "clips" / next((folder / "clips").iterdir()).name).write_bytes(b"GIF89a")
    plan = next((folder / "plans").glob("beta*"))
    plan.write_text('{"format": 1, "suite": "beta", "groups": [{}]}')
    other = next((folder / "plans").glob("limits*"))
    other.write_text(json.dumps(json.loads(other.read_text()) | {"missing": ["Grid"]}))
    text, notes = page_of(folder, tmp_path)
    for file in (*cells[:7], plan, other):
        assert any(file.name in note for note in notes), file.name
        assert file.name in text
    assert any("missing" in note for note in notes)
    assert "Table 1" in text


def test_mixed_versions_missing_algorithms_failures_strays(folder, tmp_path):
    files = sorted((folder / "cells").glob("*.json"))
    old = json.loads(files[0].read_text())
    files[0].write_text(json.dumps(old | {"ecop": "0.0.1"}))
    for file in files:
        document = json.loads(file.read_text())
        if document["cell"]["algorithm"]["name"] == "focops":
            file.unlink()
    failed = json.loads(files[1].read_text())
    files[1].unlink(missing_ok=True)
    record = {"id": failed["id"], "cell": failed["cell"], "error": "It <broke>"}
    results.write(folder, "failed", failed["id"], record | {"traceback": "Line 7"})
    stray = old | {"id": "0" * 16}
    results.write(folder, "cells", "0" * 16, stray)
    text, notes = page_of(folder, tmp_path)
    for words in (
        "different versions",
        "FOCOPS",
        "cell(s) failed",
        "belong to no plan",
    ):
        assert any(words in note for note in notes), words
    assert "It &lt;broke&gt;" in text
    assert "Line 7" in text


def test_other_settings_are_left_out_and_said(folder, tmp_path):
    make_short = results.read(folder)
    plan = next(p for p in make_short.plans if p["suite"] == "navigation")
    group = plan["groups"][0]
    document = make_short.cells[group["cells"][0]]
    cell = document["cell"] | {"train": document["cell"]["train"] | {"steps": 40}}
    results.write(folder, "cells", "f" * 16, document | {"id": "f" * 16, "cell": cell})
    line = group | {"setting": "other", "cells": ["f" * 16]}
    results.write_plan(folder, plan | {"groups": [line]})
    _, notes = page_of(folder, tmp_path)
    assert any("other settings or fewer steps" in note for note in notes)


def test_one_run_has_no_interval(folder, tmp_path):
    for file in (folder / "cells").glob("*.json"):
        if json.loads(file.read_text())["cell"]["train"]["first_seed"]:
            file.unlink()
    text, _ = page_of(folder, tmp_path)
    assert "nan" not in text.lower().replace("nanosecond", "")
    shown, _ = arms.collect(results.read(folder))
    arm = next(a for a in shown if a.documents)
    assert math.isnan(tables.st.mean_normal(arm.reward).low)
