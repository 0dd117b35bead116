"""Episodes on Ray actors: the same bits as in this process, whatever is lost."""

import logging
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import ecop
from ecop import runs
from ecop.errors import UserError
from ecop.simulators import on_ray
from ecop.simulators.pool import SimulatorError, SimulatorPool
from simulators import SPEC, Make, MakeNested, Slow, make_gym
from test_workers import SEEDS, assert_equal, episodes, gone

ray = pytest.importorskip("ray", reason="needs the extra 'ray'")
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def cluster():
    """Ray on this machine, for all tests of the module."""
    with on_ray.connected(None, 2) as connection:
        yield connection


@pytest.fixture
def crew(cluster):
    crew = on_ray.Actors(cluster)
    yield crew
    crew.close()


@pytest.fixture(scope="module")
def expected():
    return episodes(SimulatorPool(Make(), SPEC))


def test_actors_give_the_bits_of_one_process(crew, expected):
    pool = SimulatorPool(Make(), SPEC)
    with pool.played_by(crew):
        for _ in range(3):
            assert_equal(episodes(pool, ahead=SEEDS.tolist()), expected)
        assert len(pool._workers) == 2, "one per CPU"
        assert 0.0 < pool.busy <= 1.0
    assert pool._workers == []
    assert_equal(episodes(pool), expected)


SLOW = [pytest.param(fault, marks=pytest.mark.slow) for fault in ("kill", "exit")]


@pytest.mark.parametrize("fault", ["raise", "hang", *SLOW])
def test_a_fault_is_mended_once_and_changes_nothing(
    fault, crew, expected, tmp_path, caplog
):
    pool = SimulatorPool(Make(fault, str(tmp_path / "happened")), SPEC, timeout=1.5)
    with pool.played_by(crew):
        assert_equal(episodes(pool), expected)
    assert pool.faults == 1
    words = {"raise": "the cart fell off", "hang": "in misbehave"}
    words |= {"kill": "killed by SIGKILL", "exit": "exit code 7"}
    assert words[fault] in caplog.text


@pytest.mark.slow
def test_a_second_fault_stops(crew, caplog):
    pool = SimulatorPool(Make("raise"), SPEC)
    with pool.played_by(crew):
        with pytest.raises(SimulatorError, match="in step 3 of the episode with seed"):
            episodes(pool)
        assert len(episodes(pool, SEEDS[1:])) == 4, "it can go on with others"


def relays(pool):
    """Processes of the actors."""
    pids = [worker.line.relay.__ray_call__ for worker in pool._workers]
    return ray.get([call.remote(lambda _: os.getpid()) for call in pids])


def test_a_killed_actor_is_replaced_and_takes_its_process_along(
    crew, expected, tmp_path, caplog
):
    pool = SimulatorPool(Slow, SPEC, live=1)
    with pool.played_by(crew):
        episodes(pool, SEEDS[1:3])
        victim = relays(pool)[0]
        children = Path(f"/proc/{victim}/task").glob("*/children")
        child = next(int(x) for file in children for x in file.read_text().split())
        threading.Timer(0.3, os.kill, [victim, signal.SIGKILL]).start()
        assert_equal(episodes(pool), expected)
        assert pool.faults == 1
        assert gone(child)


@pytest.mark.slow
def test_what_a_simulator_started_ends_with_it(crew, tmp_path):
    file = tmp_path / "pids"
    pool = SimulatorPool(MakeNested(str(file)), SPEC, timeout=1.0)
    with pool.played_by(crew), pytest.raises(SimulatorError, match="hung, here"):
        episodes(pool, SEEDS[:1])
    assert all(gone(int(word)) for word in file.read_text().split())


@pytest.mark.slow
def test_more_actors_than_cpus_wait_for_room(cluster, expected):
    crew = on_ray.Actors(cluster, 4)
    pool = SimulatorPool(Make(), SPEC)
    with pool.played_by(crew):
        assert_equal(episodes(pool), expected)
        assert sum(worker.placed for worker in pool._workers) <= 2
    crew.close()


@pytest.mark.slow
def test_a_node_that_cannot_start_an_actor_is_said(crew, monkeypatch):
    def without_folders(start):
        return on_ray.Remote(crew, crew._relay.remote(start, None))

    monkeypatch.setattr(crew, "hire", without_folders)
    pool = SimulatorPool(Make(), SPEC)
    with pool.played_by(crew), pytest.raises(SimulatorError, match="TypeError"):
        episodes(pool)


def numbers(path):
    states = runs.checkpoints(path)[-1] / "state.safetensors"
    times = dict.fromkeys(runs.TIMES, 0)
    return states.read_bytes(), [line | times for line in runs.read_metrics(path)]


def test_training_has_the_bits_of_a_local_run(cluster, tmp_path):
    """Started by two actors, gone on with by one."""
    options = {"seeds": 2, "episodes": 3, "hidden": (8,), "limits": [3.0]}
    env = ecop.from_gymnasium(make_gym, horizon=6)
    here, there = tmp_path / "here", tmp_path / "there"
    ecop.train(env, iterations=3, out=here, **options)
    run = ecop.train(env, iterations=2, out=there, on="ray", **options)
    assert run.evaluate(episodes=2).reward.shape == (2, 2), "the pool is local again"
    ecop.resume(there, iterations=3, env=env, on="ray", actors=1)
    assert numbers(here) == numbers(there)
    line = runs.read_metrics(there)[-1]
    assert 0 <= line["busy"] <= 1
    assert 0 < line["collecting"] + line["learning"] <= 1.001


def test_what_cannot_be_played_on_ray_is_said(cluster):
    with pytest.raises(UserError, match="computed in this process"):
        ecop.train("PointCircle", on="ray", iterations=1)
    env = ecop.from_gymnasium(lambda: make_gym(), horizon=6, limits=[3.0])
    with pytest.raises(UserError, match="in a module of its own"):
        ecop.train(env, on="ray", iterations=1)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"actors": 2}, "need --on ray"),
        ({"on": "ray", "actors": 0}, "actors must be 1"),
        ({"on": "rye"}, "Did you mean 'ray'"),
    ],
)
def test_bad_options(options, words):
    with pytest.raises(UserError, match=words):
        ecop.train("PointCircle", iterations=1, **options)


ALONE = """
import ecop, signal
from ecop.simulators import on_ray
try:
    with on_ray.connected("127.0.0.1:1", None):
        pass
except ecop.UserError as error:
    print(error)
mine = lambda *_: None
signal.signal(signal.SIGTERM, mine)
with on_ray.connected(None, 1):
    assert signal.getsignal(signal.SIGTERM) is mine
"""


@pytest.mark.slow
def test_no_cluster_is_one_sentence_and_signals_stay_ours():
    done = subprocess.run(
        [sys.executable, "-c", ALONE], capture_output=True, text=True, check=True
    )
    assert "There is no Ray cluster to use at '127.0.0.1:1'" in done.stdout
    assert len(done.stdout.strip().splitlines()) == 1


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["nodes", "actors", "partition", "driver", "hang"])
def test_faults_of_a_cluster_of_four_nodes(fault):
    """A sample of benchmarks/faults.py, which compares the bits itself."""
    script = Path(__file__).parents[1] / "benchmarks" / "faults.py"
    command = [sys.executable, script, "--minutes", "0.4", "--faults", fault]
    done = subprocess.run(command, capture_output=True, text=True, timeout=400)
    logging.info(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "| equal |" in done.stdout
