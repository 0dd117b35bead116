"""What a task is beside its options: the constants of its files, or its tables.

They are part of a cell, so that results of a task whose constants have changed since
are other cells than those of today. Constants are read from the source, not imported:
a task whose simulator is not installed has them too, and so they are the same on every
machine. A formula that changes is not seen: give it a constant.
"""

from __future__ import annotations

import ast
import hashlib
import json
from functools import lru_cache
from importlib.resources import files
from typing import Any

import numpy as np

from ecop.envs import ENVS, make

TABLES = "ecop.envs.tabular"
# Modules and names that decide no result: pictures, where simulators run, and limits,
# which a cell names itself.
PICTURES: tuple[str, ...] = ("ecop.envs.mujoco.camera",)
PASSIVE = {"LIMIT", "LIMITS", "STRIDE", "FRAME", "END", "threads", "workers", "timeout"}
LONG = 80  # letters of a value; longer ones are hashed


def constants(
    task: str, options: dict[str, Any], horizon: int | None
) -> dict[str, str]:
    """Name and value, as source text, of all that a task of the library is made of."""
    module = ENVS.get(task, "").partition(":")[0]
    if not module:
        return {}
    if module == TABLES:
        given = options | ({} if horizon is None else {"horizon": horizon})
        return {"tables": _tables(task, json.dumps(given, sort_keys=True))}
    found: dict[str, str] = {}
    seen, todo = set(PICTURES), [module]
    while todo:
        name = todo.pop()
        if name not in seen:
            seen.add(name)
            here, imported = _source(name)
            found |= here
            todo += imported
    for file in sorted(_assets(module), key=lambda file: file.name):
        found[file.name] = _hash(file.read_bytes())
    return dict(sorted(found.items()))


@lru_cache
def _source(module: str) -> tuple[dict[str, str], tuple[str, ...]]:
    """The constants of a module by name, and the modules of tasks that it imports."""
    *folders, name = module.split(".")[1:]
    file = files("ecop").joinpath(*folders, f"{name}.py")
    if not file.is_file():  # a name in a module, or a package
        return {}, ()
    tree = ast.parse(file.read_text())
    found: dict[str, str] = {}
    imported: list[str] = []
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(
            "ecop.envs"
        ):
            imported += [f"{node.module}.{x.name}" for x in node.names]
            imported.append(str(node.module))
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            found |= _assigned(node, name)
        elif isinstance(node, ast.ClassDef) and node.name.endswith("Options"):
            for line in node.body:
                if isinstance(line, ast.AnnAssign):
                    found |= _assigned(line, f"{name}.{node.name}")
    return found, tuple(imported)


def _assigned(node: ast.Assign | ast.AnnAssign, where: str) -> dict[str, str]:
    """The names that a statement gives a value to, if they are constants."""
    target = node.targets[0] if isinstance(node, ast.Assign) else node.target
    names = ast.unparse(target).strip("()")
    options = where.endswith("Options")
    if node.value is None or names in PASSIVE or not (options or names.isupper()):
        return {}
    text = ast.unparse(node.value)
    value = text if len(text) <= LONG else _hash(text.encode())
    return {f"{where}.{names}": value}


def _assets(module: str) -> list[Any]:
    """Files of the task's own, such as a network of roads."""
    package, _, name = module.rpartition(".")
    folder = files(package) / "assets"
    if not folder.is_dir():
        return []
    return [file for file in folder.iterdir() if file.name.split(".")[0] == name]


@lru_cache
def _tables(task: str, options: str) -> str:
    """A hash of the tables of a tabular task, to nine digits."""
    cmdp = make(task, **json.loads(options)).cmdp
    parts = [*(part.toarray() for part in cmdp.transition), cmdp.reward, cmdp.costs]
    digits = [np.round(np.asarray(x, float), 9) + 0.0 for x in (*parts, cmdp.initial)]
    return _hash(b"".join(x.tobytes() for x in digits))


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]
