"""Grid and Bottleneck on the real simulator."""

import json
import math
import re
import subprocess
import sys
from pathlib import Path

import libsumo
import numpy as np
import pytest
from PIL import Image, ImageColor

import ecop
from ecop import cli
from ecop.drawing.roads import COLOURS, animate_traffic
from ecop.drawing.scenes import Traffic
from ecop.envs.sumo import bottleneck, grid, simulation
from ecop.errors import UserError
from ecop.interop.check import play_host, random_actions
from ecop.simulators.acting import script
from ecop.simulators.pool import SimulatorPool
from ecop.types import Box, Filmed, Part, Played
from simulators import MakeDying

SEEDS = np.array([3, 2**32 - 1, 7], np.uint32)
HORIZON = 12
TASKS = ("Grid", "Bottleneck")


def episodes(task, workers):
    env = ecop.make(task, horizon=HORIZON, workers=workers)
    seen = play_host(env, SEEDS, random_actions(env.spec, len(SEEDS)))
    env.close()
    return seen


@pytest.mark.parametrize(
    ("task", "size", "actions", "limit"),
    [("Grid", 56, 4, 75.0), ("Bottleneck", 141, 20, 50.0)],
)
def test_the_paper_s_sizes(task, size, actions, limit):
    spec = ecop.make(task).spec
    assert (spec.observation_size, spec.action) == (size, Box(actions))
    assert (spec.horizon, spec.limits) == (200, (limit,))
    seen = episodes(task, 0)
    assert seen.observation.shape == (3, HORIZON, size)
    assert np.isfinite(seen.observation).all()
    assert not np.array_equal(seen.observation[0], seen.observation[2])


@pytest.mark.parametrize("task", TASKS)
def test_any_number_of_workers_gives_the_same_bits(task):
    here = episodes(task, 0)
    for workers in (1, 2, 3):
        for a, b in zip(here, episodes(task, workers), strict=True):
            assert a.dtype == b.dtype
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("task", TASKS)
def test_a_worker_that_dies_is_replaced_and_nothing_changes(task, caplog, tmp_path):
    here = ecop.make(task, horizon=HORIZON, workers=0)
    make = MakeDying(task, str(tmp_path / "died"))
    ill = SimulatorPool(make, here.spec, workers=2, live=1)
    actions = random_actions(here.spec, len(SEEDS))
    both = (play_host(env, SEEDS, actions) for env in (here, ill))
    for a, b in zip(*both, strict=True):
        np.testing.assert_array_equal(a, b)
    assert ill.faults == 1
    assert "killed by SIGKILL" in caplog.text
    here.close()
    ill.close()


def test_one_worker_per_core_and_none_for_a_single_one(monkeypatch):
    monkeypatch.setenv("NPROC", "3")
    grids = ecop.make("Grid")
    assert (grids.workers, grids.live) == (3, 1)
    monkeypatch.setenv("NPROC", "1")
    alone = ecop.make("Grid", horizon=2)
    alone.play([script(alone.spec)], [Part(3, 0, np.zeros((2, 4), np.float32))])
    assert libsumo.isLoaded(), "it runs in this process"
    alone.close()
    monkeypatch.setenv("NPROC", "many")
    with pytest.raises(UserError, match="NPROC must be a number"):
        ecop.make("Grid")


def test_grid_counts_red_but_not_yellow():
    """The cost from the colours that SUMO shows, second by second."""
    sim, rng = grid.Grid(), np.random.default_rng(0)
    sim.reset(1)
    red = {(light, axis): 0 for light in grid.LIGHTS for axis in range(2)}
    ended, changing = 0, [0] * 4
    for h in range(-1, 60):
        # Long pauses at first, so that clocks pass the five seconds.
        out = sim.step(rng.normal(-1.0, 1.0, 4)) if h >= 0 else None
        broken = set()
        for light in grid.LIGHTS:
            state = libsumo.trafficlight.getRedYellowGreenState(light)
            assert state[0] == state[2]
            assert state[1] == state[3]
            assert "r" in state, "never green for both"
            for axis in range(2):
                red[light, axis] = red[light, axis] + 1 if state[axis] == "r" else 0
                if red[light, axis] > 5:
                    broken.add(light)
        if out is not None:
            assert out.costs[0] == len(broken)
            clock = out.observation[48:].reshape(4, 2)
            for i, light in enumerate(grid.LIGHTS):
                state = libsumo.trafficlight.getRedYellowGreenState(light)
                if changing[i] and "y" not in state:
                    assert changing[i] == grid.YELLOW
                    ended += 1
                changing[i] = changing[i] + 1 if "y" in state else 0
                for axis in range(2):
                    due = math.log2(max(red[light, axis], 1) / 2) + 0.5
                    waited = 0.0 if changing[i] else due
                    left = -0.1 * (grid.YELLOW + 1 - changing[i]) / grid.YELLOW
                    shown = {"G": 0.0, "y": left, "r": waited}
                    assert clock[i, axis] == pytest.approx(shown[state[axis]])
    assert ended > 10
    sim.close()


def test_grid_yellow_lasts_three_seconds_whatever_is_asked():
    sim = grid.Grid()
    sim.reset(2)
    shown = []
    for _ in range(9):
        sim.step(np.ones(4))
        shown.append(libsumo.trafficlight.getRedYellowGreenState("00"))
    colours = ["y" if "y" in state else "G" for state in shown]
    assert "".join(colours) == "yyyGyyyGy"
    assert shown[3] != shown[7]
    sim.close()


def test_grid_switches_when_asked_to():
    """Above 0.3, and not at 0.3."""
    sim = grid.Grid()
    sim.reset(2)
    sim.step(np.array([0.3, 0.31, -1.0, 1.0]))
    shown = [libsumo.trafficlight.getRedYellowGreenState(x) for x in grid.LIGHTS]
    assert ["y" in state for state in shown] == [False, True, False, True]
    sim.close()


@pytest.mark.parametrize(("threshold", "late"), [(0.0, False), (0.6, True)])
def test_grid_clocks_are_positive_when_it_is_time_to_switch(threshold, late):
    """To switch at once keeps the 5 s for ever; a second later breaks them."""
    sim = grid.Grid()
    observation, total = sim.reset(2), 0.0
    for _ in range(60):
        clocks = observation[48:].reshape(4, 2).max(axis=1)
        out = sim.step(np.where(clocks > threshold, 1.0, -1.0))
        observation, total = out.observation, total + out.costs[0]
    assert (total > 0) == late
    sim.close()


def test_bottleneck_cost_and_controlled_speeds():
    """Clocks from SUMO's speeds; who is asked for which speed on which lane."""
    sim = bottleneck.Bottleneck()
    speeds: dict[str, list[float]] = {}
    merging = asked = 0
    advance = sim.advance

    def watched(wanted):
        nonlocal merging, asked
        left = advance(wanted)
        for name in libsumo.vehicle.getIDList():
            speeds.setdefault(name, []).append(libsumo.vehicle.getSpeed(name))
            # A vehicle with a speed of its own has a type of its own: controlled@s1.
            if libsumo.vehicle.getTypeID(name).startswith("controlled"):
                lane = libsumo.vehicle.getLaneID(name)
                free = lane[:2] not in ("e1", "e2", "e3")
                assert free or lane not in ("e1_0", "e2_0"), "humans only"
                merging += lane.startswith(":")
                asked += not free
                expected = 23.0 if free else wanted[0]
                assert libsumo.vehicle.getMaxSpeed(name) == expected
        return left

    sim.advance = watched
    sim.reset(0)
    total = 0.0
    for h in range(60):
        out = sim.step(np.full(20, -0.75 if h < 30 else 0.25))
        humans = [
            name
            for name in libsumo.vehicle.getIDList()
            if libsumo.vehicle.getTypeID(name) == "human"
        ]
        slow = [
            len(speeds[name]) > 10 and all(v < 1.0 for v in speeds[name][-11:])
            for name in humans
        ]
        assert out.costs[0] == pytest.approx(sum(slow) / 36)
        total += out.costs[0]
    assert total > 1
    assert asked > 100
    assert merging > 0
    sim.close()


def test_actions_above_the_threshold_are_go():
    wanted = bottleneck.speeds(np.array([-2.0, 0.0, 0.2, 0.21, 2.0]))
    np.testing.assert_allclose(wanted, [0.1, 0.1, 0.1, 23.0, 23.0])
    assert bottleneck.cost(np.zeros(0)) == 0.0
    assert bottleneck.cost(np.array([10.0, 11.0, 0.0, 30.0])) == 2 / 36


def test_the_files_are_those_of_the_code_and_in_the_wheel():
    folder = Path(simulation.__file__).parent / "assets"
    assert (folder / "grid.rou.xml").read_text() == grid.traffic()
    assert (folder / "bottleneck.rou.xml").read_text() == bottleneck.traffic()
    text = (folder / "bottleneck.net.xml").read_text()
    assert "<!--" not in text
    for i, (lanes, length) in enumerate(
        zip(bottleneck.LANES, bottleneck.LENGTHS, strict=True)
    ):
        for lane in range(lanes):
            found = re.search(rf'id="e{i}_{lane}".*length="([\d.]+)"', text)
            assert found is not None
            assert float(found[1]) == pytest.approx(length, abs=20)
    wheel = pytest.importorskip("hatchling.builders.wheel", reason="no hatchling")
    root = str(Path(__file__).parents[1])
    inside = wheel.WheelBuilder(root).recurse_included_files()
    paths = {file.distribution_path for file in inside}
    for name in ("grid", "bottleneck"):
        assert f"ecop/envs/sumo/assets/{name}.net.xml" in paths
        assert f"ecop/envs/sumo/assets/{name}.rou.xml" in paths


def test_without_libsumo_there_is_one_sentence(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "libsumo", None)
    with pytest.raises(UserError, match=r"pip install 'ecop\[sumo\]'"):
        ecop.make("Grid")
    with pytest.raises(SystemExit) as stop:
        cli.main(["list"])
    assert stop.value.code == 0
    assert "ecop[sumo]" in capsys.readouterr().out


# In a process of its own: SUMO's device replays once per process.
REPLAY = """
import json, sys, libsumo
libsumo.start(["sumo", "-c", sys.argv[1], "--no-warnings"])
places = []
for h in range(21):
    for _ in range(int(sys.argv[2]) if h else 1):
        libsumo.simulationStep()
    vehicle = libsumo.vehicle
    places.append([vehicle.getPosition(name) for name in vehicle.getIDList()])
print()
print(json.dumps(places))
"""


@pytest.mark.parametrize("task", TASKS)
def test_the_picture_and_the_replay_show_the_episode(task, tmp_path):
    env = ecop.make(task, workers=0)
    actions = random_actions(env.spec, 1)[:20, 0]
    told = {"title": task, "constraints": env.spec.constraints}
    assert isinstance(env, Filmed)
    ones = np.ones((20, 1))
    traffic = env.film(Played(5, actions, ones[:, 0], ones, None))
    assert isinstance(traffic, Traffic)
    assert len(traffic.vehicles) == len(traffic.lights) == 21
    assert all(len(rows) > 10 for rows in traffic.vehicles)
    assert len(traffic.lights[0]) == (16 if task == "Grid" else 0)
    if task == "Bottleneck":
        assert any(rows[:, 3].any() for rows in traffic.vehicles)
    file = tmp_path / "episode.gif"
    animate_traffic(traffic, ones[:, 0], ones, **told, file=file)
    with Image.open(file) as animation:
        assert animation.format == "GIF"
        animation.seek(5)
        pixels = np.asarray(animation.convert("RGB"), np.int64).reshape(-1, 3)
    for name, kind in traffic.legend:
        away = np.abs(pixels - ImageColor.getrgb(COLOURS[kind])).max(axis=1)
        assert away.min() < 16, f"{name} keeps its colour"

    for name, text in traffic.replay.items():
        (tmp_path / name).write_text(text)
    config = tmp_path / "replay.sumocfg"
    command = [sys.executable, "-c", REPLAY, str(config), str(int(traffic.seconds))]
    shown = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    places = json.loads(shown.splitlines()[-1])
    assert len(places) == len(traffic.vehicles)
    for there, rows in zip(places, traffic.vehicles, strict=True):
        there, here = np.array(there), rows[:, :2]
        np.testing.assert_allclose(
            np.sort(there, axis=0), np.sort(here, axis=0), atol=0.02
        )


def test_train_evaluate_and_render_from_the_command_line(tmp_path, capsys):
    path = tmp_path / "run"
    options = f"--seeds 1 --iterations 1 --episodes 3 --workers 2 --out {path}"
    for argv in (
        ["train", "Grid", "--horizon", "6", *options.split()],
        ["evaluate", str(path), "--episodes", "3"],
        ["render", str(path), "--sumo", str(tmp_path / "replay")],
    ):
        with pytest.raises(SystemExit) as stop:
            cli.main(argv)
        assert stop.value.code == 0
    assert "sumo-gui -c" in capsys.readouterr().out
    assert (path / "episode.gif").exists()
    assert (tmp_path / "replay" / "replay.sumocfg").exists()
