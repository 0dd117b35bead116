"""What the SUMO tasks share: one simulation per process, files, pool, pictures.

A simulation is started by `load` with the episode's seed, which repeats to the bit in
any process; SUMO's saved states do not. Imports no JAX.
"""

from __future__ import annotations

import contextlib
import importlib
import itertools
import math
import re
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from ecop.drawing.scenes import Traffic
from ecop.errors import UserError
from ecop.simulators.cores import cores
from ecop.simulators.player import Simulator
from ecop.simulators.pool import SimulatorPool
from ecop.types import Played, Spec

TIMESTEP = 1.0  # s, of the simulation


@dataclass(frozen=True)
class SumoOptions:
    """Where the simulations run."""

    workers: int | None = None
    """processes to run the episodes in; 0: this one; default: one per core, and with a
    single core (or NPROC=1) this one"""
    timeout: float = 60.0
    """seconds after which a step that has not returned counts as hung"""


def libsumo() -> Any:
    """The simulator, or one sentence that says how to get it."""
    try:
        return importlib.import_module("libsumo")
    except ModuleNotFoundError:
        raise UserError(
            "This task needs the traffic simulator SUMO, whose library is not "
            "installed: pip install 'ecop[sumo]'"
        ) from None
    except ImportError as error:
        raise UserError(
            f"SUMO's library is installed but cannot be loaded ({error}); on a slim "
            "Debian: apt install libgl1 libx11-6 libxext6 libxrender1 libatomic1"
        ) from None


class Simulation:
    """The simulation of this process, by the name of its files."""

    def __init__(self, name: str) -> None:
        self.sumo = libsumo()
        self._files = contextlib.ExitStack()
        folder = self._files.enter_context(as_file(files("ecop.envs.sumo") / "assets"))
        self.network = folder / f"{name}.net.xml"
        self.traffic = folder / f"{name}.rou.xml"
        self.extra: list[str] = []  # options for SUMO

    def load(self, seed: int) -> None:
        """Start anew at time zero."""
        options = [
            *self.extra,
            *("--net-file", str(self.network), "--route-files", str(self.traffic)),
            *("--seed", str(seed % 2**31), "--step-length", str(TIMESTEP)),
            *("--time-to-teleport", "-1", "--no-step-log", "--no-warnings"),
        ]
        if self.sumo.isLoaded():
            self.sumo.load(options)
        else:
            self.sumo.start(["sumo", *options])

    def close(self) -> None:
        """End the simulation."""
        if self.sumo.isLoaded():
            self.sumo.close()
        self._files.close()


def pool(
    name: str,
    make: Callable[[], Drawn],
    spec: Spec,
    workers: int | None,
    timeout: float,
) -> SimulatorPool:
    """The task as a host environment."""
    libsumo()
    default = cores() if cores() > 1 else 0
    return SimulatorPool(
        make,
        spec,
        workers=default if workers is None else workers,
        timeout=timeout,
        live=1,
        film=partial(film, make),
        recipe=(name, {"workers": workers, "timeout": timeout}),
    )


class Drawn(Simulator, Protocol):
    """A simulator that can be drawn."""

    simulation: Simulation
    seconds: float  # per step
    legend: tuple[tuple[str, str], ...]
    stretch: float

    def marked(self) -> dict[str, tuple[bool, bool]]:
        """Whether each vehicle is controlled, and whether it is slow."""
        ...


def film(make: Callable[[], Drawn], episode: Played) -> Traffic:
    """Play an episode again, in this process, and record it."""
    simulator = make()
    simulation = simulator.simulation
    vehicles, lights = [], []
    with tempfile.TemporaryDirectory() as folder:
        trajectories = Path(folder) / "trajectories.xml"
        simulation.extra = ["--fcd-output", str(trajectories)]
        with contextlib.closing(simulator):
            simulator.reset(episode.seed)
            for action in [None, *episode.action]:
                if action is not None:
                    simulator.step(action)
                vehicles.append(seen_vehicles(simulation.sumo, simulator.marked()))
                lights.append(seen_lights(simulation.sumo))
            lane = simulation.sumo.lane
            names = lane.getIDList()
            shapes = [np.array(lane.getShape(name)) for name in names]
            left, bottom, right, top = (
                value
                for corner in simulation.sumo.simulation.getNetBoundary()
                for value in corner
            )
            length = simulation.sumo.vehicletype.getLength("DEFAULT_VEHTYPE")
            width = lane.getWidth(names[0])
        replay = replay_files(simulation, lights, trajectories.read_text())
    margin = 2.5 * width
    return Traffic(
        window=(left, bottom - margin, right, top + margin),
        lanes=shapes,
        lane_width=width,
        length=length,
        vehicles=vehicles,
        lights=[light.places for light in lights],
        seconds=simulator.seconds,
        legend=simulator.legend,
        replay=replay,
        stretch=simulator.stretch,
    )


def seen_vehicles(sumo: Any, marked: dict[str, tuple[bool, bool]]) -> np.ndarray:
    """Front, heading, controlled, slow of each vehicle [K, 5]."""
    rows = []
    for name, flags in marked.items():
        x, y = sumo.vehicle.getPosition(name)
        heading = math.radians(90.0 - sumo.vehicle.getAngle(name))
        rows.append((x, y, heading, *flags))
    return np.array(rows, np.float64).reshape(-1, 5)


class Lights(NamedTuple):
    """All lights at one time."""

    time: float  # s
    states: dict[str, str]  # of each junction, a letter per lane
    places: np.ndarray  # [L, 3] x, y at the stop lines, colour 0 green 1 yellow 2 red


def seen_lights(sumo: Any) -> Lights:
    """Their states and where to draw them."""
    states, rows = {}, []
    for name in sumo.trafficlight.getIDList():
        state = sumo.trafficlight.getRedYellowGreenState(name)
        states[name] = state
        for lane, letter in zip(
            sumo.trafficlight.getControlledLanes(name), state, strict=True
        ):
            x, y = sumo.lane.getShape(lane)[-1]
            rows.append((x, y, "gyr".index(letter.lower())))
    places = np.array(rows, np.float64).reshape(-1, 3)
    return Lights(sumo.simulation.getTime(), states, places)


def replay_files(
    simulation: Simulation, lights: list[Lights], trajectories: str
) -> dict[str, str]:
    """What sumo-gui needs: network, trajectories, types, signals, configuration.

    Vehicles repeat the trajectories, which SUMO wrote, by its fcd-replay device, and
    each light repeats its states by a program of its own.
    """
    types = re.findall(r"<vType .*?/>", simulation.traffic.read_text())
    colours = {"car": "white", "human": "white", "controlled": "red"}
    painted = [
        re.sub(
            r' id="(\w+)"( probability="[^"]*")?',
            lambda found: f' id="{found[1]}" color="{colours[found[1]]}"',
            kind,
        )
        for kind in types
    ]
    programs = []
    for name in lights[0].states:
        programs.append(f'<tlLogic id="{name}" type="static" programID="replay">')
        for now, after in itertools.pairwise(lights):
            # What a step shows is set at its beginning.
            seconds, state = after.time - now.time, after.states[name]
            programs.append(f'    <phase duration="{seconds:g}" state="{state}"/>')
        programs.append("</tlLogic>")
    body = "\n".join(f"    {line}" for line in [*painted, *programs])
    options = {
        "net-file": "network.net.xml",
        "additional-files": "replay.add.xml",
        "device.fcd-replay.files": "trajectories.xml",
        "step-length": f"{TIMESTEP:g}",
        "begin": "0",
        "end": f"{lights[-1].time:g}",
        "time-to-teleport": "-1",
        "insertion-checks": "none",  # each vehicle appears when it did
    }
    lines = "\n".join(f'    <{key} value="{v}"/>' for key, v in options.items())
    return {
        "network.net.xml": simulation.network.read_text(),
        # SUMO's comment has the folders of this computer in it.
        "trajectories.xml": re.sub(r"<!--.*?-->\s*", "", trajectories, flags=re.DOTALL),
        "replay.add.xml": f"<additional>\n{body}\n</additional>\n",
        "replay.sumocfg": f"<configuration>\n{lines}\n</configuration>\n",
    }


def routes(elements: list[str]) -> str:
    """A route file."""
    return "\n".join(["<routes>", *(f"    {x}" for x in elements), "</routes>", ""])
