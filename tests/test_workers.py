"""Worker processes: the same bits as in-process, real faults, no orphans."""

import json
import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from ecop.errors import UserError
from ecop.interop.costs import CostFunction, VectorReward
from ecop.interop.gymnasium_in import Factory, Maker
from ecop.simulators.pool import SimulatorError, SimulatorPool
from ecop.simulators.wire import decode, encode, pack, unpack
from ecop.types import HostEnv
from simulators import SPEC, Counter, Make, MakeNested, jax_free, make_gym, work

SEEDS = np.array([1, 2, 5, 7, 9], np.uint32)


def episodes(pool, seeds=SEEDS):
    actions = np.random.default_rng(0).normal(size=(6, 5, 1))[:, : len(seeds)]
    out = [pool.reset(seeds)]
    for action in actions:
        out += [part.copy() for part in pool.step(action)]
    return out


def assert_equal(a, b):
    for x, y in zip(a, b, strict=True):
        assert x.dtype == y.dtype
        np.testing.assert_array_equal(x, y)


def gone(pid, seconds=20.0):
    """Wait until a process is no more (a zombie counts as gone)."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return True
        if state == "Z":
            return True
        time.sleep(0.05)
    return False


def processes(pool):
    return [worker.process.pid for worker in pool._workers]


@pytest.fixture(scope="module")
def expected():
    return episodes(SimulatorPool(Make(), SPEC))


@pytest.mark.parametrize("workers", [1, 2, 9])
def test_processes_give_the_bits_of_one_process(expected, workers):
    pool = SimulatorPool(Make(), SPEC, workers=workers)
    assert isinstance(pool, HostEnv)
    assert_equal(episodes(pool), expected)
    assert_equal(episodes(pool), expected)
    assert pool.ends == {"terminated": 2, "truncated": 0}
    pids = processes(pool)
    assert len(pids) == min(workers, 5)
    pool.close()
    assert all(gone(pid) for pid in pids)
    assert_equal(episodes(pool, SEEDS[:1]), [part[:1] for part in expected])
    pool.close()


def test_an_ended_episode_stands_still(expected):
    observation, reward, costs, failed = (expected[1 + i :: 4] for i in range(4))
    assert [bool(f[2]) for f in failed] == [False, True, True, True, True, True]
    for h in range(2, 6):
        np.testing.assert_array_equal(observation[h][2], observation[1][2])
        assert reward[h][2] == 0
        assert costs[h][2] == 0


def test_workers_import_no_jax():
    pool = SimulatorPool(jax_free, SPEC, workers=1)
    pool.reset(SEEDS)
    pool.close()


@pytest.mark.parametrize("fault", ["raise", "hang", "kill", "exit"])
def test_a_fault_is_mended_once_and_changes_nothing(fault, expected, tmp_path, caplog):
    make = Make(fault, str(tmp_path / "happened"))
    pool = SimulatorPool(make, SPEC, workers=2, timeout=1.5)
    pool.reset(SEEDS)
    before = processes(pool)
    assert_equal(episodes(pool), expected)
    assert pool.faults == 1
    assert gone(before[0])
    words = {"raise": "the cart fell off", "hang": "in misbehave"}
    words |= {"kill": "killed by SIGKILL", "exit": "exit code 7"}
    assert words[fault] in caplog.text
    assert "3 episode(s), 4 step(s) so far" in caplog.text
    pool.close()


@pytest.mark.parametrize("fault", ["raise", "hang", "kill", "exit"])
def test_a_second_fault_stops_and_leaves_no_process(fault, caplog):
    pool = SimulatorPool(Make(fault), SPEC, workers=2, timeout=1.0)
    pool.reset(SEEDS)
    pids = processes(pool)
    with pytest.raises(SimulatorError, match="failed twice") as caught:
        episodes(pool)
    if fault == "raise":
        assert "the cart fell off" in str(caught.value)
        assert "in step 3 of the episode with seed 1" in str(caught.value)
    assert not pool._workers
    assert all(gone(pid) for pid in pids)


def test_a_worker_killed_from_outside_between_steps(expected, caplog):
    pool = SimulatorPool(Make(), SPEC, workers=2)
    out = [pool.reset(SEEDS)]
    for h, action in enumerate(np.random.default_rng(0).normal(size=(6, 5, 1))):
        if h == 4:
            os.kill(processes(pool)[1], signal.SIGKILL)
        out += [part.copy() for part in pool.step(action)]
    assert_equal(out, expected)
    assert pool.faults == 1
    pool.close()


def test_an_error_in_this_process_is_shown_too():
    pool = SimulatorPool(Make("raise"), SPEC)
    with pytest.raises(SimulatorError, match="in step 3 of the episode with seed 1"):
        episodes(pool)


PARENT = """
import sys
sys.path[:0] = {path!r}
import numpy as np
from ecop.simulators.pool import SimulatorPool
from simulators import SPEC, MakeNested, Make
pool = SimulatorPool({make}, SPEC, workers=1, timeout=300.0)
pool.reset(np.array([1], np.uint32))
print(pool._workers[0].process.pid, flush=True)
{rest}
"""


def parent(make, rest):
    code = PARENT.format(path=[str(Path(__file__).parent)], make=make, rest=rest)
    return subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True
    )


def test_a_killed_parent_takes_hung_workers_and_their_children_along(tmp_path):
    file = tmp_path / "pids"
    process = parent(f"MakeNested({str(file)!r})", "pool.step(np.zeros((1, 1)))")
    deadline = time.monotonic() + 60
    while not (file.exists() and file.read_text()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    pids = [int(word) for word in file.read_text().split()]
    assert not any(gone(pid, 0.0) for pid in pids)
    process.kill()
    process.communicate(timeout=20)
    assert all(gone(pid) for pid in pids)


@pytest.mark.parametrize(
    "rest", ["", "raise SystemExit(3)", "import os; os._exit(1)", "del pool"]
)
def test_workers_end_however_the_parent_ends(rest):
    process = parent("Make()", rest)
    output, _ = process.communicate(timeout=60)
    assert gone(int(output))


def test_a_killed_worker_takes_its_children_along(tmp_path):
    file = tmp_path / "pids"
    pool = SimulatorPool(MakeNested(str(file)), SPEC, workers=1, timeout=1.0)
    pool.reset(SEEDS[:1])
    with pytest.raises(SimulatorError, match="hung for"):
        pool.step(np.zeros((1, 1)))
    assert all(gone(int(word)) for word in file.read_text().split())


def test_bad_options():
    with pytest.raises(UserError, match="workers"):
        SimulatorPool(Make(), SPEC, workers=-1)
    bound = Make().__call__
    for unnamed in (lambda: Counter(), partial(lambda: Counter()), bound):
        with pytest.raises(UserError, match="in a module of its own"):
            SimulatorPool(unnamed, SPEC, workers=1)


@pytest.mark.parametrize(
    "x",
    [
        Make("raise", "file"),
        Factory(Maker("Pendulum-v1", 5, {"g": 9.8}), CostFunction(work, ("a", "b"))),
        Factory(Maker(make_gym, None, {}), VectorReward(0, {"effort": 1})),
        ["a", 1, 2.5, None, True, ("b", ("c",)), {"dict": {"name": "x"}, "name": 3}],
    ],
)
def test_names_travel_as_json(x):
    assert decode(json.loads(json.dumps(encode(x)))) == x


def test_a_partial_call_travels():
    made = decode(json.loads(json.dumps(encode(partial(Counter, "raise", once="f")))))()
    assert (made.fault, made.once) == ("raise", "f")


def test_messages_keep_every_bit():
    arrays = [
        np.array([1, 2**32 - 1], np.uint32),
        np.array([[np.nan, -0.0], [1e-300, np.inf]]),
        np.zeros((3, 0), np.float32),
        np.array(10, np.int8),
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    ]
    head, again = unpack(pack({"method": "step\n", "x": 0.1}, arrays))
    assert head == {"method": "step\n", "x": 0.1}
    for a, b in zip(arrays, again, strict=True):
        assert (a.dtype, a.shape, a.tobytes()) == (b.dtype, b.shape, b.tobytes())
