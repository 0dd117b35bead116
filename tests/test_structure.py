"""The folder tree is the architecture: imports point one way only."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import ecop
from ecop.algorithms import ALGORITHMS
from ecop.envs import ENVS

ROOT = Path(ecop.__file__).parent
MODULES = sorted(str(file.relative_to(ROOT)) for file in ROOT.rglob("*.py"))

NOUNS = {"types", "errors"}
TRUTH = {f"exact.{x}" for x in ("cmdp", "problems", "values", "lp", "language")}
LEARNER = NOUNS | {"learning", "rollout", "training", "simulators.cores"}
RUN = LEARNER | {"algorithms", "envs", "simulators", "evaluate", "beta", "recipes"}
RUN |= {"certify", "config", "runs", "api", "files"}
RUN |= {"player", "onnx_file", "stablehlo_file", "showing", "warm", "watching"}
# What each part may import of ecop: a folder, a module, or a module in a folder. The
# longest name that fits a file counts, and every file must have one.
ALLOWED: dict[str, set[str]] = {
    "__init__": {
        "algorithms",
        "api",
        "budgets",
        "envs",
        "errors",
        "interop",
        "training",
        "types",
    },
    "types": {"errors", "drawing.scenes"},
    "errors": set(),
    "files": {"errors"},
    "learning": NOUNS,
    "algorithms": NOUNS | {"learning"},
    "simulators": NOUNS,
    "showing": set(),
    "watching": NOUNS | {"showing"},
    "watching.loggers": NOUNS | {"config"},
    "simulators.forms": NOUNS | {"files"},
    "player": NOUNS | {"files", "simulators"},
    "onnx_file": NOUNS | {"player", "simulators"},
    "stablehlo_file": NOUNS | {"learning", "rollout", "simulators"},
    "envs": NOUNS | {"simulators", "drawing.scenes"},
    "envs.tabular": NOUNS | TRUTH,
    "rollout": NOUNS | {"learning", "simulators.acting"},
    "training": NOUNS | {"learning", "rollout", "simulators.cores"},
    "evaluate": LEARNER | {"showing"},
    "confidence": set(),
    "certify": LEARNER | {"evaluate", "confidence"},
    "beta": LEARNER | {"algorithms"},
    "recipes": NOUNS,
    "config": LEARNER | {"algorithms", "envs", "simulators", "recipes", "files"},
    "runs": LEARNER | {"config", "files", "__init__"},
    "warm": LEARNER | {"config", "evaluate", "runs"},
    "api": RUN | {"drawing.curves", "drawing.film"},
    "budgets": RUN,
    "drawing": NOUNS,
    "drawing.scenes": set(),
    "drawing.film": LEARNER | {"drawing", "evaluate", "files"},
    "live": RUN,
    "interop": NOUNS | {"simulators", "envs", "rollout", "drawing.scenes"},
    "exact": NOUNS | {"envs.tabular"},
    "exact.learned": LEARNER | {"envs.tabular"},
    "bench": RUN | {"drawing.film", "exact"},
    "finetune": NOUNS | {"learning", "files"},
    "report": NOUNS | {"bench", "evaluate", "files", "__init__"},
    "report.own": RUN | {"bench"},
    "cli": RUN
    | {"__init__", "budgets", "bench", "report", "exact", "drawing", "interop", "live"},
}


def imports(file):
    """Modules of ecop that a file imports, without the leading name."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom):
            module = node.module or ""
            for alias in node.names:
                deeper = ROOT / Path(*module.split(".")[1:], alias.name)
                if module.split(".")[0] != "ecop":
                    continue
                inner = deeper.is_dir() or deeper.with_suffix(".py").exists()
                name = f"{module}.{alias.name}" if inner else module
                yield name.removeprefix("ecop").removeprefix(".") or "__init__"
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == "ecop":
                    yield alias.name.removeprefix("ecop").removeprefix(".") or (
                        "__init__"
                    )


def prefixes(module):
    parts = module.split(".")
    return [".".join(parts[:i]) for i in range(len(parts), 0, -1)]


@pytest.mark.parametrize("file", MODULES)
def test_imports_point_one_way(file):
    module = file.removesuffix(".py").replace("/", ".")
    part = next((name for name in prefixes(module) if name in ALLOWED), None)
    assert part is not None, f"{file} has no entry in ALLOWED"
    home = module.split(".")[0] if "." in module else None
    for name in imports(ROOT / file):
        near = home is not None and name.split(".")[0] == home
        assert near or ALLOWED[part] & set(prefixes(name)), (file, name)


def test_only_finetune_imports_torch():
    torch = {"torch", "trl", "transformers", "diffusers", "peft", "datasets"}
    for file in MODULES:
        if file.startswith("finetune/"):
            continue
        for node in ast.walk(ast.parse((ROOT / file).read_text())):
            names = [a.name for a in getattr(node, "names", []) if hasattr(a, "name")]
            words = [str(getattr(node, "module", None)), *names]
            assert not {w.split(".")[0] for w in words} & torch, file


def test_modules_that_must_start_quickly_import_no_jax():
    """Neither they nor what they import."""
    quick = (
        "types errors files recipes envs cli simulators.worker simulators.pool "
        "player watching"
    )
    names = ", ".join(f"ecop.{name}" for name in quick.split())
    code = f"import sys, {names}; sys.exit('jax' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_workers_import_what_any_python_runs():
    """Python 3.8 can read all that a worker imports, and NumPy is all it needs."""
    code = (
        "import sys, ecop.simulators.worker, ecop.interop.gymnasium_in; "
        "print(*(m for m in sys.modules if m.split('.')[0] == 'ecop')); "
        "sys.exit(bool({'jax', 'gymnasium', 'safetensors', 'rich'} & set(sys.modules)))"
    )
    out = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
    names = out.stdout.decode().split()
    assert "ecop.types" in names
    for name in names:
        home = ROOT / Path(*name.split(".")[1:])
        file = home / "__init__.py" if home.is_dir() else home.with_suffix(".py")
        ast.parse(file.read_text(), feature_version=(3, 8))


def test_every_algorithm_file_is_registered():
    files = {f.stem for f in (ROOT / "algorithms").glob("*.py")} - {"__init__"}
    assert files == set(ALGORITHMS)


def test_every_registered_task_can_be_made():
    for name in ENVS:
        env = ecop.make(name)
        assert env.spec.constraints, name
        assert len(env.spec.enforced) == len(env.spec.constraints), name


def test_public_names():
    for name in ecop.__all__:
        assert getattr(ecop, name) is not None


def test_no_pickle():
    """Neither by name nor by `Connection.recv`, `np.load` and the like."""
    for file in ROOT.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            words = [getattr(node, x, None) for x in ("name", "module", "id", "attr")]
            words += [node.arg if isinstance(node, ast.keyword) else None]
            if isinstance(node, ast.Constant):
                words.append(node.value if " " not in str(node.value) else None)
            for word in words:
                assert "pickle" not in str(word).lower(), (file, word)
            assert "recv" not in words, file
