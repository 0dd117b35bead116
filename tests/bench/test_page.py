"""The report: every format, escaped text, and folders that are not whole."""

import base64
import hashlib
import html
import itertools
import json
import math
import re
import shlex
import shutil
from pathlib import Path

import numpy as np
import pytest
from made_up import make_results, rewritten
from PIL import ImageColor

import ecop
from ecop import cli
from ecop.bench import results
from ecop.bench.cells import identity
from ecop.envs import ENVS
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
    assert len(circle) == 13
    assert all(len(arm["runs"]) == 3 for arm in circle)
    only = next(a for a in arms if a["label"] == "e-COP, C1 only")
    assert only["limits"] == [10.0, 25.0]  # judged by both


def test_markup_in_names_is_only_text(folder, tmp_path):
    evil = "</script><img src=x onerror=alert(1)>&"
    word = json.dumps(evil)
    rewritten(
        folder,
        lambda text: text.replace('"PointCircle"', word).replace("cost 1", word[1:-1]),
    )
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
    assert "| runs within [95 %] |" in circle
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
    assert "| C-TRPO: TRPO-L, 2M steps |  |  | 2747 | 23.5 |  |  |  |  |  |" in ant
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
    def old(text):
        document = json.loads(text)
        if "curve" not in document:
            return text
        for name in ("evaluations", "deterministic"):
            del document[name]
        del document["evaluation"]["env_steps"], document["curve"]["env_steps"]
        train = document["cell"]["train"]
        del train["steps"]
        train |= {"iterations": 1000, "episodes": 10}
        document["curve"]["iteration"] = [25 * k for k in range(1, 41)]
        document["env_steps"] = 1000 * 10 * 200
        return json.dumps(document)

    rewritten(folder, old)
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
    table = tables.fair_table("tasks", shown)
    assert table
    assert {row[0].text for row in table.rows} >= {"e-COP", "e-COP (paper)", "PCPO"}
    assert table.rows[-1][0].text == "PPO"
    assert len({len(row) for row in (table.head, *table.rows)}) == 1


def test_nobody_is_best_who_ran_alone(whole):
    shown, _ = arms.collect(results.read(whole))
    alone = [a for a in shown if (a.section, a.algorithm) == ("table1", "ecop")]
    alone = [a for a in alone if not a.variant]
    table = tables.paper_layout("table1", alone)
    assert table
    assert not any(e.mark in ("best", "near") for row in table.rows for e in row)


def test_cells_of_a_changed_task_are_not_mixed_in(folder):
    """Newer runs of a task with other constants push the older ones out."""
    found = results.read(folder)
    names = [
        name
        for name, document in found.cells.items()
        if document["cell"]["task"] == "PointCircle"
        and document["cell"]["algorithm"]["name"] != "ecop"
    ]
    plan = next(p for p in found.plans if p["suite"] == "table1")
    for old in names:
        document = found.cells[old]
        cell = {k: v for k, v in document["cell"].items() if k != "constants"}
        document["cell"], document["id"] = cell, identity(cell)
        found.cells[identity(cell)] = found.cells.pop(old)
        for group in plan["groups"]:
            new = [identity(cell) if x == old else x for x in group["cells"]]
            group["cells"] = new
    shown, notes = arms.collect(found)
    there = {a.algorithm for a in shown if a.documents and a.section == "table1"}
    circle = [a for a in shown if (a.section, a.task) == ("table1", "PointCircle")]
    assert {a.algorithm for a in circle if a.documents} == {"ecop"}
    assert len(there) == 12
    assert any("table1, PointCircle: 33 run(s) are not shown" in x for x in notes)


def distance(a, b):
    """CIE 1976 distance of two colours of the page."""
    lab = [np.array(ImageColor.getrgb(x)) / 255 for x in (a, b)]
    to_xyz = [
        [0.4124, 0.3576, 0.1805],
        [0.2126, 0.7152, 0.0722],
        [0.0193, 0.1192, 0.9505],
    ]
    found = []
    for rgb in lab:
        linear = np.where(rgb > 0.04045, ((rgb + 0.055) / 1.055) ** 2.4, rgb / 12.92)
        x, y, z = np.cbrt(to_xyz @ linear / [0.9505, 1.0, 1.089])
        found.append(np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)]))
    return float(np.linalg.norm(found[0] - found[1]))


def test_the_colours_differ():
    script = (ROOT / "src/ecop/report/page.js").read_text()
    for name in ("LIGHT", "DARK"):
        found = re.search(rf"const {name} = \[(.*?)\];", script, re.DOTALL)
        assert found
        colours = re.findall(r"#[0-9a-f]{6}", found[1])
        assert len(colours) == 13
        pairs = itertools.combinations(colours, 2)
        assert min(distance(*pair) for pair in pairs) > 20, name


def test_clips_are_of_policies_within_their_limits(whole, tmp_path):
    text, _ = page_of(whole, tmp_path)
    captions = re.findall("<figcaption>(.*?)</figcaption>", text)
    assert captions
    assert not any(caption.startswith("PPO,") for caption in captions)
    both = [c for c in captions if "cost 2" in c]
    assert both
    assert re.search(
        r"cost 1: cost [\d.]+, limit 10; cost 2: cost [\d.]+, limit 25", both[0]
    )


def test_training_runs_of_a_user(tmp_path, capsys):
    def said(*words):
        with pytest.raises(SystemExit) as stop:
            cli.main(["report", *words])
        return stop.value.code, capsys.readouterr().err

    small = {"iterations": 4, "episodes": 4, "seeds": 2, "watch": None}
    for name, algorithm in (("a", "ecop"), ("b", "cpo")):
        ecop.train("PeakHours", algorithm, **small, out=tmp_path / name)
    out = tmp_path / "own.html"
    runs = [str(tmp_path / "a"), str(tmp_path / "b")]
    few = ["--episodes", "6", "-o", str(out)]
    assert said(*runs, *few)[0] == 0
    text = html.unescape(out.read_text())
    for words in ("These runs: e-COP scores", "PeakHours, limit 3", "Training runs"):
        assert words in text
    assert "bench repeat" not in text
    assert said(runs[0], *few)[0] == 0
    assert "nothing else was run" in out.read_text()
    assert "given twice" in said(runs[0], runs[0])[1]
    assert "is no run folder" in said(runs[0], str(tmp_path))[1]
    assert "Give a results folder" in said()[1]


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
    del odd["crc32"]
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
    bad = json.loads(other.read_text()) | {"missing": ["Grid"]}
    del bad["crc32"]
    other.write_text(json.dumps(bad))
    text, notes = page_of(folder, tmp_path)
    for file in (*cells[:7], plan, other):
        assert any(file.name in note for note in notes), file.name
        assert file.name in text
    assert any("missing" in note for note in notes)
    assert "Table 1" in text


def test_mixed_versions_missing_algorithms_failures_strays(folder, tmp_path):
    for file in (folder / "cells").glob("*.json"):
        document = json.loads(file.read_text())
        if document["cell"]["algorithm"]["name"] == "focops":
            file.unlink()
    files = sorted((folder / "cells").glob("*.json"))
    old = results.read_cell(folder, files[0].stem)
    results.write(folder, "cells", old["id"], old | {"ecop": "0.0.1"})
    failed = json.loads(files[1].read_text())
    files[1].unlink()
    record = {"id": failed["id"], "cell": failed["cell"], "error": "It <broke>"}
    results.write(folder, "failed", failed["id"], record | {"traceback": "Line 7"})
    cell = old["cell"] | {"evaluation_episodes": 7}
    stray = old | {"id": identity(cell), "cell": cell}
    results.write(folder, "cells", stray["id"], stray)
    text, notes = page_of(folder, tmp_path)
    for words in (
        "2 versions of the code",
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
    name = identity(cell)
    results.write(folder, "cells", name, document | {"id": name, "cell": cell})
    line = group | {"setting": "other", "cells": [name]}
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


EVIL = [
    "</script><img src=x onerror=alert(1)>&",
    "[here](javascript:alert(1)) **now** `code` <b>",
    "![p](http://example.org/p.gif) http://example.org www.example.org a@example.org",
    "[x]: http://example.org",
    "$(touch x); `touch x` 'quoted' \\input{x} %",
]


@pytest.mark.parametrize("evil", EVIL)
def test_no_format_lets_markup_through(evil, folder, tmp_path):
    """As a task, a cost, a variant and the message of a failure."""
    word = json.dumps(evil)
    rewritten(
        folder,
        lambda text: (
            text.replace('"PointCircle"', word)
            .replace("cost 1", word[1:-1])
            .replace('"variant": ""', f'"variant": {word}')
        ),
    )
    cell = next(iter(results.read(folder).cells.values()))["cell"]
    failed = cell | {"evaluation_episodes": 3}
    record = {"id": identity(failed), "cell": failed, "error": evil, "traceback": evil}
    results.write(folder, "failed", record["id"], record)
    page, _ = page_of(folder, tmp_path)
    body = page.split("<body>")[1].split('<script type="application/json"')[0]
    assert evil not in body or not set(evil) & set("<>&")
    assert evil in html.unescape(body)
    assert "<img src=x" not in page
    assert page.count("</script>") == 2
    report.write(folder, tmp_path / "report.md", "md")
    text = (tmp_path / "report.md").read_text()
    shown = [x for x in text.split("\n") if not x.startswith("    ")]
    for line in shown:
        assert not re.search(r"(?<!\\)\]\(|(?<!\\)\]:|(?<!\\)<|(?<!\\)://", line), line
    for line in text.split("\n"):
        if line.startswith("    ecop bench run"):
            assert shlex.split(line)[:3] == ["ecop", "bench", "run"]
            known = {evil, *ENVS}
            tasks = shlex.split(line.split("--tasks")[1].split("--seeds")[0])
            assert set(tasks) <= known
    report.write(folder, tmp_path / "report.tex", "latex")
    assert "\\input" not in (tmp_path / "report.tex").read_text()


def test_the_page_forbids_what_it_does_not_need(whole, tmp_path):
    text, _ = page_of(whole, tmp_path)
    found = re.search(r'Content-Security-Policy" content="(.*?)"', text)
    assert found
    policy = html.unescape(found[1])
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "unsafe" not in policy
    for tag in ("style", "script"):
        inside = re.search(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
        assert inside
        digest = base64.b64encode(hashlib.sha256(inside[1].encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy
    assert not re.search(r"<[^>]+ (on\w+|style)=", text.split('id="data"')[0])


def seeded(seed):
    return lambda text: re.sub(r'"first_seed": \d+', f'"first_seed": {seed}', text)


@pytest.mark.parametrize("seed", ['"<img src=x>"', "-1", "1e3", "[0]", "true", "null"])
def test_a_seed_is_a_number(seed, folder):
    rewritten(folder, seeded(seed))
    found = results.read(folder)
    assert not found.cells
    assert any("first_seed" in problem for problem in found.problems)


def test_cells_are_what_their_names_say(folder, tmp_path):
    first, second, third = sorted((folder / "cells").glob("*.json"))[:3]
    shutil.copy(first, folder / "cells" / f"{'0' * 16}.json")  # two files, one id
    renamed = second.rename(second.with_name(f"{'1' * 16}.json"))
    other = json.loads(third.read_text())
    other["cell"]["evaluation_episodes"] = 9
    del other["crc32"]
    third.write_text(json.dumps(other))
    outside = other | {"id": "../../outside"}
    (folder / "cells" / "outside.json").write_text(json.dumps(outside))
    found = results.read(folder)
    assert first.stem in found.cells
    names = {f"{'0' * 16}.json", renamed.name, third.name, "outside.json"}
    for name in names:
        assert name.removesuffix(".json") not in found.cells
        assert any(name in problem for problem in found.problems), name
    assert any(f"a copy of {first.stem}" in problem for problem in found.problems)
    text, _ = page_of(folder, tmp_path)
    assert "cells/../" not in text


def test_the_committed_cells_are_readable():
    found = results.read(ROOT / "results/bench")
    assert not found.problems
    assert len(found.cells) == len(list((ROOT / "results/bench/cells").iterdir()))
