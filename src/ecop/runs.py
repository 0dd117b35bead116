"""The run folder: plain files, written so that a kill at any moment loses nothing.

    config.json     resolved config, versions, commit
    metrics.jsonl   one line per seed and iteration
    checkpoints/00000020/state.safetensors, manifest.json    the last two are kept

A checkpoint is written under a temporary name, flushed to disk and renamed; its
manifest holds the checksum of every file. Nothing here is ever unpickled.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import platform
import shutil
import subprocess
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from safetensors.numpy import load as parse_tensors
from safetensors.numpy import save as format_tensors

import ecop
from ecop.algorithms import ALGORITHMS
from ecop.config import RunConfig, algorithm_name, from_json, to_json
from ecop.errors import UserError, unknown
from ecop.training import Learner, TrainConfig, init_seeds, stack, unstack
from ecop.types import Episodes, TrainState

FORMAT = 3  # of the folder; raised when what it holds changes its shape
KEEP = 2  # checkpoints


RESULTS_DEPEND_ON = ("jax", "jaxlib", "numpy", "optax", "mujoco", "libsumo")


# Folder and config


def refuse_existing(path: Path) -> None:
    """Raise if a new run cannot have this folder because it holds something."""
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise UserError(
            f"'{path}' exists already and nothing was overwritten; choose another "
            f"folder, or go on with it by 'ecop resume {path}'."
        )


def create(path: Path, config: RunConfig, notes: dict[str, Any]) -> None:
    """Make the folder of a new run; `notes` go into its config.json."""
    refuse_existing(path)
    path.mkdir(parents=True, exist_ok=True)
    (path / "checkpoints").mkdir()
    document = {
        "format": FORMAT,
        **provenance(),
        "task": config.task,
        "env_options": config.env_options,
        "algorithm": {
            "name": algorithm_name(config.algorithm),
            **to_json(config.algorithm),
        },
        "train": to_json(config.train),
        **notes,
    }
    write_atomically(path / "config.json", json.dumps(document, indent=2) + "\n")


def read_document(path: Path) -> dict[str, Any]:
    """The parsed config.json of a run folder that this version can read."""
    file = path / "config.json"
    if not file.is_file():
        raise UserError(f"'{path}' is not a run folder: it has no config.json.")
    try:
        document = json.loads(file.read_text())
        found = int(document["format"])
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"'{file}' is damaged: {error}.") from None
    if found > FORMAT:
        raise UserError(
            f"'{path}' was written by ecop {document.get('ecop')}, which is newer than "
            f"this one ({ecop.__version__}); upgrade ecop to read it."
        )
    if found < FORMAT:
        raise UserError(
            f"'{path}' was written by an older ecop (commit {document.get('commit')}), "
            "whose checkpoints have another shape; use that one, or train again."
        )
    return document


def rewrite_train(path: Path, train: TrainConfig) -> None:
    """Change the training options of a run folder (a new number of iterations)."""
    document = read_document(path) | {"train": to_json(train)}
    write_atomically(path / "config.json", json.dumps(document, indent=2) + "\n")


def read_config(path: Path) -> RunConfig:
    """Rebuild the config of a run folder."""
    document = read_document(path)
    try:
        fields = dict(document["algorithm"])
        name = fields.pop("name")
        if name not in ALGORITHMS:
            raise UserError(unknown("algorithm", name, ALGORITHMS))
        algorithm = from_json(ALGORITHMS[name], fields)
        return RunConfig(
            document["task"],
            algorithm,
            from_json(TrainConfig, document["train"]),
            document.get("env_options", {}),
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise UserError(f"'{path / 'config.json'}' is damaged: {error}.") from None


def provenance() -> dict[str, Any]:
    """What computed a result: versions and commit."""
    return {
        "ecop": ecop.__version__,
        "commit": commit(),
        "versions": {
            "python": platform.python_version(),
            **{d.name: d.version for d in map(installed, RESULTS_DEPEND_ON) if d},
        },
    }


def installed(name: str) -> Distribution | None:
    """A package, if it is there."""
    try:
        return distribution(name)
    except PackageNotFoundError:
        return None


def commit() -> str | None:
    """The commit of the source tree, where ecop runs from one."""
    root = Path(__file__).parents[2]
    if not (root / ".git").exists():
        return None
    command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=40"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None


# Metrics


def rows(
    learner: Learner, done: int, metrics: list[dict[str, np.ndarray]], seconds: float
) -> list[dict[str, Any]]:
    """Lines of metrics.jsonl for the iterations after `done` of every seed."""
    c, spec = learner.config, learner.spec
    limits = [None if math.isinf(limit) else limit for limit in spec.limits]
    lines = []
    for i in range(len(metrics[0]["reward"])):
        for seed, values in enumerate(metrics):
            iteration = done + i + 1
            multipliers = [0.0] * len(limits)
            for place, value in zip(
                spec.enforced, values["multipliers"][i].tolist(), strict=True
            ):
                multipliers[place] = value
            line = {
                "seed": c.first_seed + seed,
                "iteration": iteration,
                **{name: value[i].tolist() for name, value in values.items()},
                "limits": limits,
                "multipliers": multipliers,
                "seconds": round(seconds, 3),
            }
            lines.append(line)
    return lines


def append_metrics(path: Path, lines: list[dict[str, Any]]) -> None:
    """Add lines to metrics.jsonl."""
    text = "".join(json.dumps(line) + "\n" for line in lines)
    with (path / "metrics.jsonl").open("a") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """All whole lines of metrics.jsonl; a line cut short by a kill is left out."""
    file = path / "metrics.jsonl"
    if not file.exists():
        return []
    lines = file.read_text().split("\n")
    return [json.loads(line) for line in lines[:-1]]


def cut_metrics(path: Path, iteration: int) -> list[dict[str, Any]]:
    """Drop lines after `iteration`, which will be computed again; return the rest."""
    kept = [line for line in read_metrics(path) if line["iteration"] <= iteration]
    text = "".join(json.dumps(line) + "\n" for line in kept)
    write_atomically(path / "metrics.jsonl", text)
    return kept


# Checkpoints


def save_checkpoint(path: Path, states: list[TrainState]) -> None:
    """Write the states of all seeds; then drop all but the last two checkpoints."""
    iteration = int(states[0].iteration)
    folder = path / "checkpoints" / f"{iteration:08d}"
    data = format_tensors(to_arrays(stack(states)))
    manifest = {
        "format": FORMAT,
        "iteration": iteration,
        "files": {
            "state.safetensors": {
                "bytes": len(data),
                "sha256": hashlib.sha256(data).hexdigest(),
            }
        },
    }
    fresh = folder.with_name(f"tmp-{iteration:08d}-{os.getpid()}")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir()
    write_durably(fresh / "state.safetensors", data)
    write_durably(fresh / "manifest.json", json.dumps(manifest, indent=2).encode())
    sync_folder(fresh)
    if folder.exists():  # a damaged one, computed again
        shutil.rmtree(folder)
    fresh.rename(folder)
    sync_folder(folder.parent)
    for old in checkpoints(path)[:-KEEP]:
        shutil.rmtree(old)
    for stale in folder.parent.glob("tmp-*"):
        shutil.rmtree(stale, ignore_errors=True)


def checkpoints(path: Path) -> list[Path]:
    """Checkpoint folders, oldest first."""
    return sorted(
        folder for folder in (path / "checkpoints").glob("*") if folder.name.isdigit()
    )


def load_checkpoint(
    path: Path, learner: Learner
) -> tuple[list[TrainState] | None, list[str]]:
    """The newest intact states, and a sentence for each damaged checkpoint.

    None if the run was stopped before its first checkpoint.
    """
    damaged = []
    for folder in reversed(checkpoints(path)):
        try:
            return read_checkpoint(folder, learner), damaged
        except (OSError, ValueError, KeyError, TypeError) as error:
            damaged.append(f"Checkpoint '{folder}' is damaged: {error}")
    if damaged:
        raise UserError(" ".join([*damaged, "No intact checkpoint is left."]))
    return None, damaged


def read_checkpoint(folder: Path, learner: Learner) -> list[TrainState]:
    """States of all seeds; ValueError unless every byte is as it was written."""
    manifest = json.loads((folder / "manifest.json").read_text())
    if manifest["iteration"] != int(folder.name):
        raise ValueError("its manifest is of another iteration.")
    data = (folder / "state.safetensors").read_bytes()
    if (
        hashlib.sha256(data).hexdigest()
        != manifest["files"]["state.safetensors"]["sha256"]
    ):
        raise ValueError("the checksum of state.safetensors does not match.")
    template = jax.eval_shape(lambda: stack(init_seeds(learner)))
    state = from_arrays(parse_tensors(data), template)
    return unstack(state)


def to_arrays(tree: Any) -> dict[str, np.ndarray]:
    """Named NumPy arrays of a tree; keys of JAX's generator become their words."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {
        jax.tree_util.keystr(path): np.asarray(
            jax.random.key_data(leaf) if is_key(leaf) else leaf
        )
        for path, leaf in leaves
    }


def from_arrays(arrays: dict[str, np.ndarray], template: Any) -> Any:
    """Rebuild a tree with the structure, shapes and dtypes of `template`."""
    leaves, structure = jax.tree_util.tree_flatten_with_path(template)
    names = [jax.tree_util.keystr(path) for path, _ in leaves]
    if set(names) != set(arrays):
        raise ValueError("it holds other arrays than this run's config asks for.")
    values = []
    for name, (_, leaf) in zip(names, leaves, strict=True):
        value = jnp.asarray(arrays[name])
        if is_key(leaf):
            value = jax.random.wrap_key_data(value)
        if value.shape != leaf.shape or value.dtype != leaf.dtype:
            raise ValueError(f"array {name} has another shape or type.")
        values.append(value)
    return jax.tree_util.tree_unflatten(structure, values)


def is_key(leaf: Any) -> bool:
    """Whether a leaf is a key of JAX's generator."""
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def save_episodes(path: Path, name: str, episodes: Episodes) -> Path:
    """Write a batch of episodes beside the run, for a post-mortem."""
    file = path / f"{name}.safetensors"
    write_durably(file, format_tensors(to_arrays(episodes)))
    return file


# Files


def write_durably(file: Path, data: bytes) -> None:
    """Write and flush to disk."""
    with file.open("wb") as handle:
        handle.write(data)
        handle.flush()
        os.fsync(handle.fileno())


def write_atomically(file: Path, text: str) -> None:
    """Replace a file in one step: readers see the old or the new, never a mixture."""
    fresh = file.with_name(f".{file.name}.{os.getpid()}")
    write_durably(fresh, text.encode())
    fresh.replace(file)
    sync_folder(file.parent)


def sync_folder(folder: Path) -> None:
    """Flush a folder's entries to disk, where the system can."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
