"""README and docs: links lead somewhere, Python and commands run as they are printed.

Trainings are cut by `tiny_budget`, a suite of the benchmark to one cell. A placeholder
such as RUN stands for something that is made once.
"""

import contextlib
import dataclasses
import json
import re
import shlex
import shutil
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

import ecop
from ecop import cli
from ecop.algorithms import ALGORITHMS
from ecop.bench import run as bench
from ecop.simulators.where import Where
from ecop.training import Learner, TrainConfig

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]
TUTORIAL = DOCS / "tutorial.md"  # its steps need one another
TASKS = "point_circle point_reach navigation ant_circle ant_reach humanoid grid"
FENCED = re.compile(r"^```(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)

MODULES = {  # what the commands ask for
    "my_costs.py": "def torque(obs, action, *rest):\n    return abs(action[0])\n",
    "my_module.py": "from ecop.envs.point.circle import PointCircle as make_env\n",
}
SAFETY = ".venv-safety"  # packages that cannot be installed beside ours
PLACEHOLDERS = {"TASK": "PointCircle", "NAME": "cpo", "FOLDER": "replay"}
# What compiles nothing, or only a program that others of these need too.
SNIPPETS = ["README.md"] + [
    f"docs/{page}.md"
    for page in ("your_environment", "deploy", "certificate", "watching")
]
STEPS = ["check", "train", "evaluate", "plot", "render", "certify", "export"]
QUICK = {"list", "show", "plot", "evaluate", "export", "watch", "check"}


def name_of(page):
    return str(page.relative_to(ROOT))


def prose(page):
    """The text of a page without its fenced blocks."""
    return FENCED.sub("", page.read_text())


def slug(heading):
    """The anchor that GitHub gives a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def anchors(page):
    return [slug(h) for h in re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE)]


def printed(page):
    """Commands in blocks, and whole ones in the text, without comments."""
    text = page.read_text()
    blocks = [body for kind, body in FENCED.findall(text) if kind != "python"]
    blocks += re.findall(r"^ {4}ecop .*$", prose(page), re.MULTILINE)
    lines = [line.strip() for block in blocks for line in block.split("\n")]
    spans = [" ".join(s.split()) for s in re.findall(r"`(ecop [^`]+)`", prose(page))]
    for line in lines:
        if line.startswith("ecop "):
            yield tuple(shlex.split(line, comments=True))
    for span in spans:
        words = tuple(shlex.split(span))
        depth = 2 if words[1] in ("bench", "exact") else 1
        if len(words) > depth + 1 or words[-1] == "list":
            yield words


def cases():
    pages = [page for page in PAGES if page != TUTORIAL]
    for words in dict.fromkeys(w for page in pages for w in printed(page)):
        quick = QUICK & set(words[1:3]) or "--help" in words
        marks = [] if quick else [pytest.mark.slow]
        yield pytest.param(words, id=" ".join(words), marks=marks)


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    """A run that has one more iteration to go, on a task."""

    def make(task):
        folder = tmp_path_factory.getbasetemp() / "docs" / task
        if not folder.exists():
            small = {"episodes": 2, "horizon": 20, "hidden": (4,), "critic_epochs": 1}
            ecop.train(task, "pdo", seeds=1, iterations=1, out=folder, **small)
        return folder

    return make


@pytest.fixture
def one_cell(monkeypatch):
    """Suites of one cell; all runs here, wherever it is told to."""

    def cut(*args, **options):
        plan = make_plan(*args, **options)
        return dataclasses.replace(plan, jobs=plan.jobs[:1], total=1)

    def hasty(group, suite, *rest):
        return make_cell(
            group, dataclasses.replace(suite, evaluation_episodes=2), *rest
        )

    make_plan, make_cell = bench.make_plan, bench.make_cell
    monkeypatch.setattr(bench, "make_plan", cut)
    monkeypatch.setattr(bench, "make_cell", hasty)
    monkeypatch.setattr("ecop.bench.on_ray.runner", lambda address: bench.run_local)
    monkeypatch.setattr(Where, "playing", lambda *_: contextlib.nullcontext())


def call(words):
    with pytest.raises(SystemExit) as stop:
        cli.main(list(words))
    assert stop.value.code == 0


def stopped(server):
    raise KeyboardInterrupt


@pytest.mark.parametrize("words", list(cases()))
def test_commands_run(words, trained, one_cell, tiny_budget, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    if SAFETY in words:
        if not (ROOT / SAFETY).exists():
            pytest.skip("make .venv-safety/ready makes it")
        (tmp_path / SAFETY).symlink_to(ROOT / SAFETY)
    for word in words:
        if word.startswith("gym:") and word.count(":") == 2 and SAFETY not in words:
            pytest.importorskip(word.split(":")[1])
    for name, text in MODULES.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "results").symlink_to(ROOT / "results")
    run = Path("runs/circle")
    named = words[1] != "train" or "--start" in words
    if {"RUN", str(run)} & set(words) and named:
        shutil.copytree(trained("Grid" if "--sumo" in words else "PointCircle"), run)
    filled = [{"RUN": str(run), **PLACEHOLDERS}.get(word, word) for word in words[1:]]
    if filled[0] == "watch":
        filled += ["--port", "0"]
        monkeypatch.setattr("ecop.live.server.Server.serve_forever", stopped)
    repeat = filled[:2] == ["bench", "repeat"]
    if repeat or (filled[0] in ("report", "exact") and "bench" in filled):
        call(["bench", "run", "frontier"])
    if repeat:
        filled[2] = str(next(Path("bench/cells").glob("*.json")))
    call(filled)


@pytest.mark.parametrize("page", SNIPPETS)
def test_snippets_run(page, tiny_budget, tmp_path, monkeypatch):
    run_snippets(page, tmp_path, monkeypatch)


@pytest.mark.slow
def test_snippets_about_the_truth_run(tiny_budget, tmp_path, monkeypatch):
    run_snippets("docs/exact.md", tmp_path, monkeypatch)


@pytest.mark.slow
def test_the_tutorial_runs_from_top_to_bottom(tmp_path, monkeypatch, request):
    monkeypatch.chdir(tmp_path)
    sys.modules.pop("my_costs", None)  # other pages have another one
    request.addfinalizer(lambda: sys.modules.pop("my_costs", None))
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    costs, play = [body for _, body in FENCED.findall(TUTORIAL.read_text())]
    (tmp_path / "my_costs.py").write_text(costs)
    commands = re.findall(
        r"^ {4}ecop (.*)$", prose(TUTORIAL).replace("\\\n", " "), re.MULTILINE
    )
    assert [line.split()[0] for line in commands] == STEPS
    for line in commands:
        call(shlex.split(line))
    exec(compile(play, "tutorial", "exec"), {})
    assert json.loads(Path("runs/cart/certificate.json").read_text())


def run_snippets(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = [body for kind, body in FENCED.findall((ROOT / page).read_text()) if kind]
    assert blocks
    names: dict = {}
    for block in blocks:
        exec(compile(block, page, "exec"), names)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if re.match(r"\w+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), target
        if anchor:
            assert anchor in anchors(file), target


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_lines_end_at_100(page):
    for number, line in enumerate(page.read_text().split("\n"), 1):
        free = line.startswith(("|", "    ecop bench run "))  # tables, made commands
        assert len(line) <= 100 or free, f"line {number}"


def test_pages_are_short():
    most = {"README.md": 110, "CONTRIBUTING.md": 60}
    most |= {f"docs/tasks/{task}.md": 60 for task in [*TASKS.split(), "bottleneck"]}
    for page, lines in most.items():
        assert len((ROOT / page).read_text().splitlines()) <= lines, page


def test_every_algorithm_has_a_page():
    pages = {page.stem for page in (DOCS / "algorithms").glob("*.md")}
    assert pages - {"README"} | {"ecop"} == set(ALGORITHMS)


def test_every_metric_is_explained():
    text = (DOCS / "metrics.md").read_text()
    known = set(re.findall(r"`(\w+)`", text))
    env = ecop.make("FactoredRing")
    for kind in ALGORITHMS.values():
        learner = Learner(env, env.spec, kind(), TrainConfig())
        state = jax.eval_shape(learner.init, jnp.uint32(0))
        _, metrics = jax.eval_shape(learner.iteration, state)
        assert set(metrics) <= known, kind
