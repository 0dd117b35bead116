"""The run folder: plain files, written so that a kill at any moment loses nothing.

    config.json     resolved config, versions, commit
    metrics.jsonl   one line per seed and iteration, each with its checksum
    checkpoints/00000020/state.safetensors, manifest.json    the last two are kept
    .lock           held by the process that writes

A checkpoint is written under a temporary name, flushed to disk and renamed; its
manifest holds the checksum of every file. Nothing here is ever unpickled, and nothing
that a folder names is run (docs/security.md).
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import platform
import shutil
import subprocess
from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Annotated, Any, TypedDict

import jax
import jax.numpy as jnp
import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load as parse_tensors
from safetensors.numpy import save as format_tensors

import ecop
from ecop import files
from ecop.config import Document, RunConfig, algorithm_name, from_document, to_json
from ecop.errors import UserError
from ecop.files import Count, Name, Within
from ecop.training import Learner, Round, TrainConfig, unstack
from ecop.types import Episodes, TrainState

FORMAT = 4  # of the folder; raised when what it holds changes its shape
KEEP = 2  # checkpoints
LOCK = ".lock"
NOTHING = (LOCK, "checkpoints", files.FRESH)  # of a run that has no config


RESULTS_DEPEND_ON = ("jax", "jaxlib", "numpy", "optax", "mujoco", "libsumo")


# Of a line of metrics: how long it took, which no seed decides.
TIMES = ("seconds", "collecting", "learning", "busy")


class Config(Document, total=False):
    """config.json."""

    ecop: Name
    commit: Name | None
    versions: dict[str, Name]
    costs: list[Name]


class Line(TypedDict):
    """A line of metrics.jsonl; the algorithm's own metrics come on top."""

    seed: Count
    iteration: Annotated[int, Within(1, 10**9)]
    env_steps: Count
    reward: float
    costs: list[float]
    limits: list[float | None]
    multipliers: list[float]
    seconds: Annotated[float, Within(0, 1e12)]


class Check(TypedDict):
    """What a manifest says of a file."""

    bytes: Count
    sha256: Name


class Manifest(TypedDict):
    """manifest.json."""

    format: Count
    iteration: Count
    files: dict[str, Check]


# Folder and config


def refuse_existing(path: Path) -> None:
    """Raise if a new run cannot have this folder because it holds something.

    What is left of a run that was killed before it had a config is nothing.
    """
    try:
        if path.exists() and not path.is_dir():
            raise UserError(f"'{path}' is a file; a run needs a folder of its own.")
        held = [entry.name for entry in path.iterdir()] if path.exists() else []
    except OSError as error:
        raise UserError(
            f"'{path}' cannot be used: {error.strerror}; choose another folder."
        ) from None
    if all(name.startswith(NOTHING) for name in held) and not checkpoints(path):
        return
    go_on = f", or go on with it by 'ecop resume {path}'"
    raise UserError(
        f"'{path}' exists already and nothing was overwritten; choose another folder"
        f"{go_on if 'config.json' in held else ''}."
    )


@contextlib.contextmanager
def writing(path: Path, *, new: bool = False) -> Iterator[bool]:
    """Be the only writer of a run folder; False if its disk has no locks.

    new: make it, and leave nothing behind if it cannot be written
    """
    made = new and not path.exists()
    if new:
        refuse_existing(path)
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(
                f"'{path}' cannot be made: {error.strerror}; choose another folder."
            ) from None
    elif not (path / "config.json").is_file():
        raise no_run(path)
    elif (path / "checkpoints").is_symlink():
        raise UserError(f"'{path / 'checkpoints'}' is a link; a run writes no links.")
    with files.locked(path / LOCK, f"'{path}'") as held:
        clear(path)
        try:
            if new:
                refuse_existing(path)
            yield held
        finally:
            if made and not (path / "config.json").exists():
                shutil.rmtree(path, ignore_errors=True)


def no_run(path: Path) -> UserError:
    """Say that a folder is none of a run, and what to do."""
    if not path.is_dir():
        return UserError(f"'{path}' is not a run folder: it does not exist.")
    why = f"'{path}' is not a run folder: it has no config.json."
    if all(entry.name.startswith(NOTHING) for entry in path.iterdir()):
        why += (
            " If its run was stopped before it began, start it again by 'ecop train "
            f"... --out {path}'."
        )
    return UserError(why)


def create(path: Path, config: RunConfig, notes: dict[str, Any]) -> None:
    """Write the config of a new run; `notes` go into it too."""
    with files.on_disk(path):
        (path / "checkpoints").mkdir(exist_ok=True)
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
    files.write(path / "config.json", files.sealed(document, indent=2))


def read_document(path: Path) -> Config:
    """The config.json of a run folder that this version can read."""
    file = path / "config.json"
    if not file.is_file():
        raise no_run(path)
    document, intact = files.read(file, dict[str, Any])
    found = document.get("format")
    if not isinstance(found, int):
        raise UserError(f"'{file}' is damaged: it has no format.")
    if found > FORMAT:
        raise UserError(
            f"'{path}' was written by an ecop that is newer than this one "
            f"({ecop.__version__}); upgrade ecop to read it."
        )
    if found < FORMAT:
        raise UserError(
            f"'{path}' was written by an older ecop (commit "
            f"{str(document.get('commit'))[:60]}), whose files have another shape; "
            "use that one, or train again."
        )
    try:
        if intact is False:
            raise UserError(
                "its checksum does not match; put a good copy in its place or, if you "
                'changed it yourself, delete its last entry, "crc32"'
            )
        files.conform(document, Config)
    except UserError as error:
        raise UserError(f"'{file}' is damaged: {error}.") from None
    return document  # pyright: ignore[reportReturnType]


def rewrite_train(path: Path, train: TrainConfig) -> None:
    """Change the training options of a run folder (a new number of iterations)."""
    document = {**read_document(path), "train": to_json(train)}
    files.write(path / "config.json", files.sealed(document, indent=2))


def read_config(path: Path) -> RunConfig:
    """Rebuild the config of a run folder."""
    document = read_document(path)
    try:
        return from_document(document)
    except UserError as error:
        raise UserError(f"'{path / 'config.json'}' cannot be used: {error}") from None


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
    learner: Learner, done: int, part: Round, seconds: float
) -> list[dict[str, Any]]:
    """Lines of metrics.jsonl for the iterations after `done` of every seed."""
    metrics = part.metrics
    shares = {name: round(share, 3) for name, share in part.shares.items()}
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
                **shares,
            }
            lines.append(line)
    return lines


def append_metrics(path: Path, lines: list[dict[str, Any]]) -> None:
    """Add lines to metrics.jsonl."""
    files.append(path / "metrics.jsonl", "".join(map(files.sealed, lines)))


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The lines of metrics.jsonl, without those that are damaged or cut short."""
    found = files.read_lines(path / "metrics.jsonl", Line)
    return [dict(line) for line in found if whole(line)]


def whole(line: Line) -> bool:
    """Whether a line has as many limits and multipliers as costs."""
    return len(line["costs"]) == len(line["limits"]) == len(line["multipliers"])


def lost_metrics(config: RunConfig, lines: list[dict[str, Any]], done: int) -> str:
    """A sentence if lines of the first `done` iterations are missing, or nothing."""
    there = {(line["seed"], line["iteration"]) for line in lines}
    lost = config.train.seeds * done - len(there)
    if lost <= 0:
        return ""
    return (
        f"{lost} line(s) of metrics.jsonl are damaged or missing and are left out; the "
        "policies are not affected."
    )


def cut_metrics(path: Path, kept: list[dict[str, Any]]) -> None:
    """Leave only these lines; the others will be computed again."""
    files.write(path / "metrics.jsonl", "".join(map(files.sealed, kept)))


# Checkpoints


def save_checkpoint(path: Path, states: list[TrainState]) -> None:
    """Write the states of all seeds; then drop all but the last two checkpoints."""
    iteration = int(states[0].iteration)
    folder = path / "checkpoints" / f"{iteration:08d}"
    data = format_tensors(to_arrays(states))
    digest = hashlib.sha256(data).hexdigest()
    manifest = {
        "format": FORMAT,
        "iteration": iteration,
        "files": {"state.safetensors": {"bytes": len(data), "sha256": digest}},
    }
    fresh = folder.with_name(f"{files.FRESH}{iteration:08d}")
    with files.on_disk(folder):
        clear(path)
        try:
            fresh.mkdir()
            files.write(fresh / "state.safetensors", data)
            files.write(fresh / "manifest.json", files.sealed(manifest, indent=2))
            if folder.exists():  # a damaged one, computed again
                remove(folder)
            fresh.rename(folder)
        except BaseException:
            shutil.rmtree(fresh, ignore_errors=True)
            raise
        files.sync_folder(folder.parent)
        for later in checkpoints(path):
            if int(later.name) > iteration:  # damaged too, or we would not be here
                remove(later)
        drop_old(path, iteration)


def drop_old(path: Path, iteration: int) -> None:
    """Keep the last two checkpoints up to `iteration`."""
    for old in [x for x in checkpoints(path) if int(x.name) <= iteration][:-KEEP]:
        remove(old)


def remove(folder: Path) -> None:
    """Remove a checkpoint: nobody sees half of it."""
    gone = folder.rename(folder.with_name(f"{files.FRESH}old-{folder.name}"))
    shutil.rmtree(gone)


def clear(path: Path) -> None:
    """Remove what a killed process left half written or half removed."""
    for stale in (
        *path.glob(f"{files.FRESH}*"),
        *(path / "checkpoints").glob(f"{files.FRESH}*"),
    ):
        if stale.is_dir() and not stale.is_symlink():
            shutil.rmtree(stale)
        else:
            stale.unlink()


def checkpoints(path: Path) -> list[Path]:
    """Checkpoint folders, oldest first."""
    return sorted((path / "checkpoints").glob("[0-9]" * 8))


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
        except (UserError, SafetensorError) as error:
            damaged.append(f"Checkpoint '{folder}' is damaged: {error}")
    if damaged:
        raise UserError(
            " ".join([*damaged, "No intact checkpoint is left; train again."])
        )
    return None, damaged


def read_checkpoint(folder: Path, learner: Learner) -> list[TrainState]:
    """States of all seeds; UserError unless every byte is as it was written."""
    manifest, intact = files.read(folder / "manifest.json", Manifest)
    check = manifest["files"].get("state.safetensors")
    if not intact or check is None:
        raise UserError("the checksum of its manifest does not match.")
    if manifest["iteration"] != int(folder.name):
        raise UserError("its manifest is of another iteration.")
    data = files.read_bytes(folder / "state.safetensors", check["bytes"])
    if hashlib.sha256(data).hexdigest() != check["sha256"]:
        raise UserError("the checksum of state.safetensors does not match.")
    states = from_arrays(tensors(data), state_shapes(learner))
    if any(state.iteration != int(folder.name) for state in states):
        raise UserError("its state is of another iteration.")
    return states


def tensors(data: bytes) -> dict[str, np.ndarray]:
    """Named arrays; UserError for types that NumPy does not have."""
    try:
        return parse_tensors(data)
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"state.safetensors cannot be read: {error!r:.80}.") from None


def state_shapes(learner: Learner) -> TrainState:
    """Shapes and types of the states of all seeds, with a leading axis S."""
    one = jax.eval_shape(learner.init, jax.ShapeDtypeStruct((), jnp.uint32))
    count = learner.config.seeds
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct((count, *x.shape), x.dtype), one)


def to_arrays(trees: list[Any]) -> dict[str, np.ndarray]:
    """Named arrays [S, ...] of S trees; keys of JAX's generator become their words."""
    leaves = zip(*(jax.tree_util.tree_leaves_with_path(x) for x in trees), strict=True)
    return {
        jax.tree_util.keystr(same[0][0]): np.stack(
            [np.asarray(jax.random.key_data(x) if is_key(x) else x) for _, x in same]
        )
        for same in leaves
    }


def from_arrays(arrays: dict[str, np.ndarray], shapes: Any) -> list[Any]:
    """Rebuild S trees with the structure of `shapes`; all numbers must be finite."""
    leaves, structure = jax.tree_util.tree_flatten_with_path(shapes)
    names = [jax.tree_util.keystr(path) for path, _ in leaves]
    if set(names) != set(arrays):
        raise UserError("it holds other arrays than this run's config asks for.")
    values = []
    for name, (_, leaf) in zip(names, leaves, strict=True):
        form = jax.eval_shape(jax.random.key_data, leaf) if is_key(leaf) else leaf
        value = arrays[name]
        if value.shape != form.shape or value.dtype != form.dtype:
            raise UserError(f"array {name} has another shape or type.")
        if not np.isfinite(value).all():
            raise UserError(f"array {name} holds NaN or infinity.")
        whole = jnp.asarray(value)
        values.append(jax.random.wrap_key_data(whole) if is_key(leaf) else whole)
    return unstack(jax.tree_util.tree_unflatten(structure, values))


def is_key(leaf: Any) -> bool:
    """Whether a leaf is a key of JAX's generator."""
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def save_episodes(path: Path, name: str, episodes: Episodes) -> Path:
    """Write a batch of episodes [S, N, H] beside the run, for a post-mortem."""
    file = path / f"{name}.safetensors"
    files.write(
        file, format_tensors({k: v[0] for k, v in to_arrays([episodes]).items()})
    )
    return file
