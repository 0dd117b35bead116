"""Damaged and hostile files through every reader: refused or said, never a crash."""

import functools
import hashlib
import json
import os
import shutil
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image
from safetensors.numpy import load, save
from strangers import edited

import ecop
from ecop import files, runs
from ecop.bench import results
from ecop.bench.cells import identity
from ecop.cli.plot import plot
from ecop.config import build
from ecop.errors import UserError
from ecop.report import write as report
from ecop.report.page import shrunk
from ecop.watching import Quiet


def attacked(count, *strategies):
    """Run a function with `count` examples, the same every time."""

    def run(function):
        health: Any = list(HealthCheck)
        fixed = settings(
            max_examples=count,
            derandomize=True,
            database=None,
            deadline=None,
            suppress_health_check=health,
        )
        fixed(given(*strategies)(function))()

    return run


TOKENS = [b"NaN", b"Infinity", b"1e999", b"-1", b"9" * 400, b"null", b"{}", b"[]"]
TOKENS += [b'"x"', b"[" * 5000, b'{"a":' * 5000, b"\xff\xfe", b"\x00", b"true", b"1.5"]

KINDS = ["flip", "cut", "zero", "insert", "token", "double", "swap"]


@st.composite
def damages(draw):
    """A function from bytes to other bytes."""
    kind = draw(
        st.sampled_from(["flip", "cut", "zero", "insert", "token", "double", "swap"])
    )
    place = draw(st.floats(0, 1, exclude_max=True))
    size = draw(st.integers(1, 64))
    bit = draw(st.integers(0, 7))
    extra = draw(st.binary(min_size=1, max_size=16))
    token = draw(st.sampled_from(TOKENS))

    def damage(data: bytes) -> bytes:
        i = int(place * len(data))
        changed = {
            "flip": data[:i] + bytes([data[i] ^ (1 << bit)]) + data[i + 1 :],
            "cut": data[:i],
            "zero": data[:i] + bytes(min(size, len(data) - i)) + data[i + size :],
            "insert": data[:i] + extra + data[i:],
            "token": data[:i] + token + data[i + size :],
            "double": data[:i] + data[i : i + size] + data[i:],
            "swap": data[i:] + data[:i],
        }
        return changed[kind]

    damage.kind = kind
    return damage


def copied(source, tmp_path):
    return shutil.copytree(source, tmp_path / "copy")


def outcome(read):
    """What a reader gives; None if it refuses in one sentence."""
    try:
        return read()
    except UserError as error:
        words = str(error)
    assert words.endswith(".")
    assert "\n" not in words
    return None


@pytest.fixture
def learner(finished, monkeypatch):
    """Of the run; what it costs to know its shapes is paid once."""
    made = build(runs.read_config(finished))
    monkeypatch.setattr(runs, "state_shapes", functools.cache(runs.state_shapes))
    return made


def test_damaged_config(finished, tmp_path, tries):
    path = copied(finished, tmp_path)
    file = path / "config.json"
    whole, expected = file.read_bytes(), runs.read_config(path)

    @attacked(tries(60, 1500), damages())
    def check(damage):
        file.write_bytes(damage(whole))
        found = outcome(lambda: runs.read_config(path))
        assert found is None or found == expected


def test_damaged_metrics(finished, tmp_path, tries):
    path = copied(finished, tmp_path)
    file = path / "metrics.jsonl"
    whole = file.read_bytes()
    expected = [json.dumps(line) for line in runs.read_metrics(path)]
    config = runs.read_config(path)

    @attacked(tries(60, 1500), damages())
    def check(damage):
        file.write_bytes(damage(whole))
        found = outcome(lambda: runs.read_metrics(path))
        assert found is not None
        assert {json.dumps(line) for line in found} <= set(expected)
        if damage.kind == "flip":
            assert len(found) >= len(expected) - 1
        unlike = {(line["seed"], line["iteration"]) for line in found}
        assert bool(runs.lost_metrics(config, found, 22)) == (len(unlike) < 44)


@pytest.mark.parametrize("name", ["manifest.json", "state.safetensors"])
def test_damaged_checkpoints_fall_back(name, finished, learner, tmp_path, tries):
    path = copied(finished, tmp_path)
    file = path / "checkpoints" / "00000022" / name
    whole = file.read_bytes()

    @attacked(tries(40, 1250), damages())
    def check(damage):
        data = damage(whole)
        file.write_bytes(data)
        states, said = runs.load_checkpoint(path, learner)
        assert states
        fell = int(states[0].iteration) == 20
        assert len(said) == fell
        # White space around the checksum of a manifest means nothing.
        assert fell or data.split() == whole.split() or same(data, whole)


def same(data, whole):
    """The same JSON, or only its checksum has another name."""
    found, expected = json.loads(data), json.loads(whole)
    del expected["crc32"]
    return expected.items() <= found.items()


def reseal(folder, **changes):
    """A checkpoint as a stranger would write it: with checksums that fit."""
    arrays = load((folder / "state.safetensors").read_bytes()) | changes
    data = save({k: v for k, v in arrays.items() if v is not None})
    stamp(folder, data)


def stamp(folder, data):
    (folder / "state.safetensors").write_bytes(data)
    check = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    manifest = {"format": runs.FORMAT, "iteration": 22}
    manifest |= {"files": {"state.safetensors": check}}
    (folder / "manifest.json").write_text(files.sealed(manifest))


HOSTILE: dict[str, Any] = {
    "float64": {".normaliser.count": np.zeros(2, np.float64)},
    "half": {".normaliser.count": np.zeros(2, np.float16)},
    "int": {".normaliser.count": np.zeros(2, np.int32)},
    "shape": {".normaliser.count": np.zeros((2, 1), np.float32)},
    "seeds": {".iteration": np.full(3, 22, np.int32)},
    "nan": {".normaliser.mean": np.full((2, 9), np.nan, np.float32)},
    "infinity": {".normaliser.mean": np.full((2, 9), np.inf, np.float32)},
    "iteration": {".iteration": np.full(2, 7, np.int32)},
    "key": {".key": np.zeros((2, 3), np.uint32)},
    "more": {"extra": np.zeros(3, np.float32)},
    "fewer": {".key": None},
}


@pytest.mark.parametrize("name", list(HOSTILE))
def test_hostile_checkpoints_fall_back(name, finished, learner, tmp_path, tries):
    tries(1, 1)
    path = copied(finished, tmp_path)
    reseal(path / "checkpoints" / "00000022", **HOSTILE[name])
    states, said = runs.load_checkpoint(path, learner)
    assert states
    assert int(states[0].iteration) == 20
    assert len(said) == 1


def test_hostile_headers_fall_back(finished, learner, tmp_path, tries):
    """Headers of safetensors that lie, under checksums that fit."""
    path = copied(finished, tmp_path)
    folder = path / "checkpoints" / "00000022"
    whole = (folder / "state.safetensors").read_bytes()
    deep = b'{"a":' * 3000 + b"1" + b"}" * 3000
    brain = b'{"x":{"dtype":"BF16","shape":[2],"data_offsets":[0,4]}}'
    for header in (deep, brain, b"{}", b"[]", b""):
        data = len(header).to_bytes(8, "little") + header + bytes(4)
        stamp(folder, data)
        assert runs.load_checkpoint(path, learner)[1]

    @attacked(tries(30, 750), damages())
    def check(damage):
        data = damage(whole)
        stamp(folder, data)
        states, said = runs.load_checkpoint(path, learner)
        assert states
        assert len(said) == (int(states[0].iteration) == 20)


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**20), 10**20)
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from([10**9, -1, "evil:make", "gym:x:Y-v0", "../..", "\n", "<b>"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=4,
)


@st.composite
def edits(draw):
    """A function that changes a few entries of a JSON document, anywhere in it."""
    picks = draw(st.lists(st.tuples(st.floats(0, 1), values), min_size=1, max_size=3))

    def edit(document):
        for place, value in picks:
            spots = list(paths(document))
            where, key = spots[min(int(place * len(spots)), len(spots) - 1)]
            if value == "../..":
                del where[key]
            else:
                where[key] = value
        return document

    return edit


def paths(node):
    """(container, key) of every entry."""
    if isinstance(node, dict | list):
        for key, value in node.items() if isinstance(node, dict) else enumerate(node):
            yield node, key
            yield from paths(value)


def forged(document):
    """JSON with a good checksum, whatever it holds."""
    text = json.dumps(document)[:-1]
    return f'{text}, "crc32": "{files._sum(text.encode()).decode()}"}}'


def test_hostile_config(finished, tmp_path, tries):
    path = copied(finished, tmp_path)
    whole = json.loads((path / "config.json").read_text())
    del whole["crc32"]

    @attacked(tries(60, 1000), edits())
    def check(edit):
        document = edit(json.loads(json.dumps(whole)))
        (path / "config.json").write_text(forged(document))
        config = outcome(lambda: runs.read_config(path))
        if config is not None:
            assert config.train.seeds <= 1000


@pytest.mark.parametrize("part", ["cells", "plans", "failed"])
def test_damaged_results(part, bench_folder, tmp_path, tries):
    folder = copied(bench_folder, tmp_path)
    (file,) = (folder / part).glob("*.json")
    whole, expected = file.read_bytes(), results.read(folder)

    @attacked(tries(30, 600), damages())
    def check(damage):
        file.write_bytes(damage(whole))
        found = results.read(folder)
        if found.problems:
            return
        assert same(file.read_bytes(), whole)
        assert set(found.cells) == set(expected.cells)
        assert len(found.plans) == len(found.failed) == 1


@pytest.mark.parametrize("part", ["cells", "plans", "failed"])
def test_hostile_results(part, bench_folder, tmp_path, tries):
    folder = copied(bench_folder, tmp_path)
    (file,) = (folder / part).glob("*.json")
    whole = json.loads(file.read_text())
    del whole["crc32"]
    count = tries(30, 600)
    draw = iter(range(10**9))

    @attacked(count, edits())
    def check(edit):
        nonlocal file
        document = edit(json.loads(json.dumps(whole)))
        file.unlink()
        if part != "plans":  # the name follows, as far as it can
            try:
                name = identity(document["cell"])
                document["id"] = name
            except (KeyError, TypeError, ValueError):
                name = "f" * 16
            file = file.with_name(f"{name}.json")
        file.write_text(forged(document))
        found = results.read(folder)
        if found.cells and next(draw) % 20 == 0:
            for kind in ("html", "md", "latex"):
                out = tmp_path / "out" / f"report.{kind}"
                outcome(functools.partial(report.write, folder, out, kind))


def test_damaged_clips(tmp_path, tries):
    frames = [Image.new("RGB", (64, 48), c) for c in ("white", "black", "red")]
    file = tmp_path / "clip.gif"
    frames[0].save(file, save_all=True, append_images=frames[1:])
    whole = file.read_bytes()

    @attacked(tries(30, 400), damages())
    def check(damage):
        file.write_bytes(damage(whole))
        found = shrunk(file)
        assert found is None or found.startswith(b"GIF8")


def test_a_flipped_byte_costs_a_line_and_stops_nobody(finished, tmp_path, capsys):
    path = copied(finished, tmp_path)
    file = path / "metrics.jsonl"
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 0x10
    file.write_bytes(data)
    notes = []

    class Notes(Quiet):
        def note(self, text):
            notes.append(text)

    assert len(ecop.load(path, watch=Notes()).metrics) == 43
    assert any("1 line(s) of metrics.jsonl" in note for note in notes)
    assert plot((path,)) == 0
    assert "1 line(s)" in capsys.readouterr().err
    run = ecop.resume(path, iterations=24)
    assert len(run.metrics) == 43 + 4


def test_two_damaged_checkpoints_and_an_older_one(finished, tmp_path):
    """What is saved after a fall is kept, not the damaged ones after it."""
    path = copied(finished, tmp_path)
    folder = path / "checkpoints"
    for name in ("00000040", "00000060"):
        shutil.copytree(folder / "00000022", folder / name)
    ecop.resume(path, iterations=24)
    assert sorted(x.name for x in folder.iterdir()) == ["00000022", "00000024"]


def test_large_deep_and_odd_files_are_refused(finished, tmp_path):
    path = copied(finished, tmp_path)
    file = path / "config.json"
    file.write_text('{"format": 4, "x": ' + "[" * 10**6 + "]" * 10**6 + "}")
    with pytest.raises(UserError, match="nested too deeply"):
        runs.read_config(path)
    with file.open("wb") as handle:
        handle.truncate(2**40)
    tracemalloc.start()
    with pytest.raises(UserError, match="too large"):
        runs.read_config(path)
    assert tracemalloc.get_traced_memory()[1] < 10**7
    tracemalloc.stop()
    file.unlink()
    os.mkfifo(file)
    with pytest.raises(UserError, match="run folder"):
        runs.read_config(path)
    (path / "metrics.jsonl").unlink()
    (path / "metrics.jsonl").symlink_to("/dev/zero")
    with pytest.raises(UserError, match="not a plain file"):
        runs.read_metrics(path)


@pytest.mark.parametrize(
    ("train", "words"),
    [
        ({"seeds": 10**9}, "seeds must be at most 1,000"),
        ({"hidden": [10**9]}, "hidden must be at most"),
        ({"hidden": [4] * 10**5}, "hidden must be at most"),
        ({"horizon": 10**9}, "horizon must be at most"),
        ({"episodes": 10**12}, "episodes must be at most"),
        ({"first_seed": 2**40}, "Seeds end at"),
        ({"discount": "1"}, "discount must be a number"),
        ({"seeds": True}, "seeds must be a whole number"),
        ({"limits": [[1.0]]}, "limits must be"),
    ],
)
def test_sizes_and_types(train, words, finished, tmp_path):
    path = copied(finished, tmp_path)
    document = json.loads((path / "config.json").read_text())
    edited(path, train=document["train"] | train)
    with pytest.raises(UserError, match=words):
        runs.read_config(path)


def test_every_json_reader_is_the_one_of_files():
    """`json.load` is called nowhere else but for what our own processes say."""
    root = Path(ecop.__file__).parent
    own = {"files.py", "simulators/wire.py", "bench/work.py", "bench/on_ray.py"}
    own |= {"bench/constants.py", "interop/tasks.py"}
    found = {
        str(file.relative_to(root))
        for file in root.rglob("*.py")
        if "json.load" in file.read_text()
    }
    assert found <= own
