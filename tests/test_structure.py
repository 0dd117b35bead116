"""The folder tree is the architecture: imports point one way only."""

import ast
from pathlib import Path

import ecop
from ecop.algorithms import ALGORITHMS
from ecop.envs import ENVS

ROOT = Path(ecop.__file__).parent

# What each part may import of ecop; the rest of the tree follows from it.
ALLOWED = {
    "types": set(),
    "envs": {"types", "envs", "workers"},
    "learning": {"types", "learning"},
    "rollout": {"types", "learning"},
    "algorithms": {"types", "learning", "algorithms"},
    "names": {"types"},
    "workers": {"types", "names"},
    "interop": {"types", "names", "envs", "rollout", "workers", "interop"},
    "training": {"types", "learning", "rollout"},
    "evaluate": {"types", "rollout", "training"},
    "exact": {"types", "exact", "envs", "learning", "rollout", "algorithms"}
    | {"training", "api", "commands"},
    "bench": {"types", "bench", "envs", "algorithms", "training", "evaluate", "api"}
    | {"runs", "presets", "display", "clip", "exact", "commands"},
    "commands": {"types", "envs"},
    "finetune": {"types", "learning", "finetune"},
}
TORCH = {"torch", "trl", "transformers", "diffusers", "peft", "datasets"}
# Nobody but the command line sees the benchmark.
ABOVE_BENCH = {"bench", "cli"}


def imports(file):
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("ecop"):
            parts = (node.module or "").split(".")
            yield from [parts[1]] if len(parts) > 1 else [a.name for a in node.names]


def test_imports_point_one_way():
    for part, allowed in ALLOWED.items():
        folder = ROOT / part
        files = folder.rglob("*.py") if folder.is_dir() else [ROOT / f"{part}.py"]
        for file in files:
            assert set(imports(file)) <= allowed, file


def test_only_the_command_line_sees_the_benchmark():
    for file in ROOT.rglob("*.py"):
        part = file.relative_to(ROOT).parts[0].removesuffix(".py")
        if part not in ABOVE_BENCH:
            assert "bench" not in set(imports(file)), file


def test_types_and_registries_import_no_jax():
    for file in (ROOT / "types.py", ROOT / "envs" / "__init__.py", ROOT / "cli.py"):
        for node in ast.parse(file.read_text()).body:
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = [a.name for a in node.names]
                module = getattr(node, "module", None) or ""
                assert "jax" not in [module, *names], file


def test_only_finetune_imports_torch():
    for file in ROOT.rglob("*.py"):
        if "finetune" in file.relative_to(ROOT).parts:
            continue
        for node in ast.walk(ast.parse(file.read_text())):
            names = [a.name for a in getattr(node, "names", []) if hasattr(a, "name")]
            words = [str(getattr(node, "module", None)), *names]
            assert not {w.split(".")[0] for w in words} & TORCH, file


def test_every_algorithm_file_is_registered():
    files = {f.stem for f in (ROOT / "algorithms").glob("*.py")} - {"__init__"}
    assert files == set(ALGORITHMS)


def test_every_registered_task_can_be_made():
    for name in ENVS:
        env = ecop.make(name)
        assert env.spec.horizon >= 1


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
