"""Worker processes: the same bits as in-process, real faults, no orphans."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from ecop.errors import UserError
from ecop.interop.costs import CostFunction, VectorReward
from ecop.interop.gymnasium_in import Factory, Maker
from ecop.simulators.acting import script
from ecop.simulators.on_ray import connected
from ecop.simulators.pool import SimulatorError, SimulatorPool
from ecop.simulators.processes import Process
from ecop.simulators.wire import decode, encode, pack, unpack
from ecop.types import Discrete, Part, Playing, Spec
from simulators import (
    SPEC,
    Counted,
    Counter,
    Make,
    MakeMarked,
    MakeNested,
    MakeNoted,
    MakeUnsteady,
    Misshapen,
    Slow,
    Wide,
    jax_free,
    make_gym,
    work,
)

SEEDS = np.array([1, 2, 5, 7, 9], np.uint32)


def episodes(pool, seeds=SEEDS, ahead=()):
    """Episodes with actions that depend on the seed alone."""
    draws = [np.random.default_rng(99 + s).normal(size=(6, 1)) for s in seeds]
    parts = [Part(int(s), 0, rows) for s, rows in zip(seeds, draws, strict=True)]
    return pool.play([script(SPEC)], parts, ahead)


def assert_equal(a, b):
    for one, other in zip(a, b, strict=True):
        assert one.ended == other.ended
        for x, y in zip(one[:4], other[:4], strict=True):
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
    return [worker.line.process.pid for worker in pool._workers]


@pytest.fixture(scope="module")
def expected():
    return episodes(SimulatorPool(Make(), SPEC))


@pytest.mark.parametrize("workers", [1, 2, 9])
def test_processes_give_the_bits_of_one_process(expected, workers):
    pool = SimulatorPool(Make(), SPEC, workers=workers)
    assert isinstance(pool, Playing)
    assert_equal(episodes(pool), expected)
    assert_equal(episodes(pool), expected)
    assert pool.ends == {"terminated": 2, "truncated": 0}
    pids = processes(pool)
    assert len(pids) == min(workers, 5)
    pool.close()
    assert all(gone(pid) for pid in pids)
    assert_equal(episodes(pool, SEEDS[:1]), expected[:1])
    pool.close()


def test_an_episode_ends_where_it_ends(expected):
    assert [record.ended for record in expected] == [0, 0, 1, 0, 0]
    assert [len(record.reward) for record in expected] == [6, 6, 2, 6, 6]
    assert [record.observation.shape for record in expected][2] == (2, 2)


@pytest.mark.parametrize("live", [1, 2, 8])
def test_live_simulators_are_bounded(expected, live):
    """No more are made, and each step is one of a living episode."""
    made = []

    def make():
        made.append(Counted())
        return made[-1]

    pool = SimulatorPool(make, SPEC, live=live)
    for _ in range(2):
        assert_equal(episodes(pool), expected)
    assert len(made) == min(live, 5)
    assert sum(simulator.steps for simulator in made) == 2 * 26
    pool.close()
    assert all(simulator.closed for simulator in made)


def test_a_worker_has_its_share_of_live_simulators(tmp_path):
    pool = SimulatorPool(MakeMarked(str(tmp_path)), SPEC, workers=2, live=2)
    episodes(pool)
    episodes(pool)
    pool.close()
    made = [file.name.split("-")[0] for file in tmp_path.iterdir()]
    assert max(made.count(pid) for pid in made) == 2


def test_workers_import_no_jax():
    pool = SimulatorPool(jax_free, SPEC, workers=1)
    episodes(pool)
    pool.close()


@pytest.mark.parametrize("fault", ["raise", "hang", "kill", "exit"])
def test_a_fault_is_mended_once_and_changes_nothing(fault, expected, tmp_path, caplog):
    """Episode 1 fails in the middle; those beside it begin again too."""
    make = Make(fault, str(tmp_path / "happened"))
    pool = SimulatorPool(make, SPEC, workers=2, timeout=1.5)
    assert_equal(episodes(pool, SEEDS[1:2]), expected[1:2])
    before = processes(pool)
    assert_equal(episodes(pool), expected)
    assert pool.faults == 1
    assert gone(before[0])
    words = {"raise": "the cart fell off", "hang": "in misbehave"}
    words |= {"kill": "killed by SIGKILL", "exit": "exit code 7"}
    assert words[fault] in caplog.text
    assert "A fresh worker takes its place" in caplog.text
    assert_equal(episodes(pool), expected)
    pool.close()


@pytest.mark.parametrize("fault", ["raise", "hang", "kill", "exit"])
def test_a_second_fault_stops_and_leaves_no_process(fault, caplog):
    pool = SimulatorPool(Make(fault), SPEC, workers=2, timeout=1.0)
    episodes(pool, SEEDS[1:3])
    pids = processes(pool)
    with pytest.raises(SimulatorError, match="failed twice") as caught:
        episodes(pool)
    if fault == "raise":
        assert "the cart fell off" in str(caught.value)
        assert "in step 3 of the episode with seed 1" in str(caught.value)
    assert not pool._workers
    assert all(gone(pid) for pid in pids)
    assert len(episodes(pool, SEEDS[1:])) == 4, "it can go on with others"
    pool.close()


def test_episodes_in_the_queue_are_not_to_blame(expected, tmp_path, caplog):
    pool = SimulatorPool(MakeUnsteady(str(tmp_path)), SPEC, workers=1, live=1)
    assert_equal(episodes(pool), expected)
    assert pool.faults == 4, "the episode with seed 5 ends before"
    pool.close()


@pytest.mark.parametrize("moment", ["between batches", "in an episode"])
def test_a_worker_killed_from_outside(moment, expected, caplog):
    """It is replaced, and all episodes have the bits they had."""
    pool = SimulatorPool(Slow, SPEC, workers=2)
    episodes(pool, SEEDS[1:3])
    victim = processes(pool)[0]
    kill = partial(os.kill, victim, signal.SIGKILL)
    if moment == "between batches":
        kill()
        gone(victim)
    else:
        threading.Timer(0.15, kill).start()
    assert_equal(episodes(pool), expected)
    assert pool.faults == 1
    pool.close()


def test_a_worker_that_stands_still_is_killed(expected, caplog, monkeypatch):
    """One that was stopped cannot end by itself."""
    monkeypatch.setattr(Process, "slack", 0.5)
    pool = SimulatorPool(Make(), SPEC, workers=1, timeout=1.0)
    episodes(pool, SEEDS[:1])
    os.kill(processes(pool)[0], signal.SIGSTOP)
    assert_equal(episodes(pool), expected)
    assert "did not answer and was killed" in caplog.text
    pool.close()


def test_the_time_out_is_of_a_step_not_of_an_episode(expected):
    """Thirty steps of 0.1 s pass a time-out of 1.5 s."""
    pool = SimulatorPool(Slow, SPEC, workers=1, timeout=1.5)
    assert_equal(episodes(pool), expected)
    assert pool.faults == 0
    pool.close()


@pytest.mark.parametrize("live", [1, 3])
def test_simulators_are_reset_for_what_comes(expected, tmp_path, live):
    """Each seed once, before its batch; what does not come harms nobody."""
    file = tmp_path / "notes"
    pool = SimulatorPool(MakeNoted(str(file)), SPEC, workers=1, live=live)
    assert_equal(episodes(pool, SEEDS[:1], ahead=[2, 77, 7]), expected[:1])
    wanted = ["reset 1", "step 1", "reset 2", "reset 77", "reset 7"][: 2 + live]
    deadline = time.monotonic() + 20
    while len(file.read_text().splitlines()) < len(wanted):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert file.read_text().splitlines() == wanted
    assert_equal(episodes(pool), expected)
    notes = file.read_text().splitlines()
    for seed in (2, 7)[:live]:
        assert notes.count(f"reset {seed}") == 1
    assert 0.0 < pool.busy <= 1.0
    pool.close()


def test_a_fault_while_nothing_is_played_is_mended(expected, tmp_path, caplog):
    """The simulator cannot be reset early, once."""
    make = Make("reset", str(tmp_path / "happened"))
    pool = SimulatorPool(make, SPEC, workers=2)
    episodes(pool, SEEDS[1:3], ahead=[1, 2])
    assert_equal(episodes(pool), expected)
    assert pool.faults == 1
    pool.close()


def test_an_interrupt_leaves_no_batch_behind(expected):
    pool = SimulatorPool(Slow, SPEC, workers=2)
    episodes(pool, SEEDS[1:3])
    pids = processes(pool)
    threading.Timer(0.15, signal.raise_signal, [signal.SIGINT]).start()
    with pytest.raises(KeyboardInterrupt):
        episodes(pool)
    assert all(gone(pid) for pid in pids)
    assert_equal(episodes(pool), expected)
    pool.close()


def test_episodes_of_any_size_pass_both_ways():
    """Noise and records that no pipe holds, more of them than a worker has at once."""
    spec = Spec(50_000, Discrete(700), 6)
    noise = np.random.default_rng(0).normal(size=(12, 6, 60_000)).astype(np.float32)
    parts = [Part(n, 0, noise[n]) for n in range(12)]
    here, there = (SimulatorPool(Wide, spec, workers=w, live=2) for w in (0, 2))
    plays = [pool.play([script(spec)], parts) for pool in (here, there)]
    assert_equal(*plays)
    there.close()


@pytest.mark.parametrize(
    ("illness", "words"),
    [
        ("observation", r"shape \(3,\), not \(2,\)"),
        ("costs", "1 were expected"),
    ],
)
def test_wrong_shapes_are_refused(illness, words):
    with pytest.raises(SimulatorError, match=words):
        episodes(SimulatorPool(partial(Misshapen, illness), SPEC))


def test_an_error_in_this_process_is_shown_too():
    pool = SimulatorPool(Make("raise"), SPEC)
    with pytest.raises(SimulatorError, match="in step 3 of the episode with seed 1"):
        episodes(pool)


PARENT = """
import sys
sys.path[:0] = {path!r}
import numpy as np
from ecop.simulators.pool import SimulatorPool
from ecop.simulators.acting import script
from ecop.types import Part
from simulators import SPEC, MakeNested, Make
pool = SimulatorPool({make}, SPEC, workers=1, timeout=300.0)
parts = [Part(1, 0, np.zeros((6, 1)))]
pool.play([script(SPEC)], [parts[0]._replace(seed=2)])
print(pool._workers[0].line.process.pid, flush=True)
{rest}
"""


def parent(make, rest):
    code = PARENT.format(path=[str(Path(__file__).parent)], make=make, rest=rest)
    return subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True
    )


def test_a_killed_parent_takes_hung_workers_and_their_children_along(tmp_path):
    file = tmp_path / "pids"
    process = parent(f"MakeNested({str(file)!r})", "pool.play([script(SPEC)], parts)")
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
    with pytest.raises(SimulatorError, match="hung, here"):
        episodes(pool, SEEDS[:1])
    assert all(gone(int(word)) for word in file.read_text().split())


def test_ray_that_is_not_there(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UserError, match="pip install"), connected(None, 1):
        pass


def test_bad_options():
    with pytest.raises(UserError, match="workers"):
        SimulatorPool(Make(), SPEC, workers=-1)
    with pytest.raises(UserError, match="live"):
        SimulatorPool(Make(), SPEC, live=0)
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
