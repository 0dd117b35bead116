"""Bottleneck: four lanes become one, simulated by SUMO.

    reward = vehicles that leave the network, above a base flow
    cost   = human drivers that have been slow for more than 10 s in a row, over 36

The main lane carries most of the traffic. On the three side lanes some vehicles are
controlled: the action says for each segment whether they go on or stop there, and who
is behind them waits too. Nobody changes lanes; lanes merge like a zip, and a merge that
is fed from both sides lets fewer vehicles through. So the most leave if the side lanes
wait for ever.
"""

from __future__ import annotations

from collections import deque

import numpy as np

from ecop.envs.sumo import simulation
from ecop.simulators.player import Result
from ecop.simulators.pool import SimulatorPool
from ecop.types import Box, Constraint, Spec

LENGTHS = (100, 80, 60, 40, 20)  # m
LANES = (4, 4, 4, 2, 1)
WATCHED = (1, 3, 3, 3, 1)  # segments of each lane in the observation
CONTROLLED = {  # lanes with actions, and their number of segments
    **{f"e{edge}_{lane}": 3 for edge in (1, 2) for lane in (1, 2, 3)},
    **{f"e3_{lane}": 1 for lane in (0, 1)},
}
LIMIT_SPEED = 23.0  # m/s
STOP_SPEED = 0.1  # m/s, of a controlled vehicle that is stopped
GO = 0.2  # actions above it let vehicles go
INFLOW = (2400, 300, 300, 300)  # vehicles/h of each lane
START = 20  # vehicles in the network at the beginning
SHARE = 0.3  # of the vehicles that come on side lanes are controlled
SECONDS = 2  # per decision
BASE = 0.4  # vehicles per decision that earn nothing
SLOW = 1.0  # m/s
PATIENCE = 10.0  # s of slow driving in a row that cost nothing
CROWD = 36  # human drivers that cost 1; there are so many if the side lanes are closed
VEHICLE = (
    'carFollowModel="IDM" accel="1.0" decel="4.5" tau="1" minGap="2.5" length="5" '
    f'maxSpeed="{LIMIT_SPEED:g}" '
    'speedFactor="1" lcStrategic="0" lcSpeedGain="0" lcKeepRight="0" lcCooperative="0"'
)
SPACE = 7.5  # m, a vehicle that stands and its gap
WINDOW = 20  # decisions, of the outflow that is observed
HORIZON = 200
LIMIT = 50.0


def starts() -> list[int]:
    """Index of the first lane-segment of each edge, and their number at the end."""
    counts = [lanes * parts for lanes, parts in zip(LANES, WATCHED, strict=True)]
    return np.cumsum([0, *counts]).tolist()


WATCHED_START = starts()
WATCHES = WATCHED_START[-1]
CONTROLS = sum(CONTROLLED.values())
FIRST_CONTROL = dict(
    zip(CONTROLLED, np.cumsum([0, *CONTROLLED.values()]).tolist(), strict=False)
)
LANE_NAMES = {
    f"e{edge}_{lane}": (edge, lane)
    for edge, lanes in enumerate(LANES)
    for lane in range(lanes)
}
WATCHED_LENGTH = np.repeat(
    np.divide(LENGTHS, WATCHED),
    [lanes * parts for lanes, parts in zip(LANES, WATCHED, strict=True)],
)


def part(position: float, edge: int, parts: int) -> int:
    """The segment of a lane that a position is in."""
    return min(int(position / LENGTHS[edge] * parts), parts - 1)


def traffic() -> str:
    """The route file: vehicles at the start, and a Poisson stream in each lane."""
    elements = [
        '<vTypeDistribution id="mix">',
        f'    <vType id="human" probability="{1 - SHARE}" {VEHICLE}/>',
        f'    <vType id="controlled" probability="{SHARE}" {VEHICLE}/>',
        "</vTypeDistribution>",
        f'<route id="way" edges="{" ".join(f"e{i}" for i in range(len(LANES)))}"/>',
    ]
    elements += [
        f'<vehicle id="s{k}" type="human" route="way" depart="0" departEdge="random" '
        'departLane="random" departPos="random_free" departSpeed="10"/>'
        for k in range(START)
    ]
    elements += [
        f'<flow id="f{lane}" type="{"mix" if lane else "human"}" route="way" '
        'begin="0" end="100000" '
        f'period="exp({inflow / 3600:.5f})" departLane="{lane}" departSpeed="10"/>'
        for lane, inflow in enumerate(INFLOW)
    ]
    return simulation.routes(elements)


def cost(slow: np.ndarray) -> float:
    """Human drivers whose clocks [K] have passed the time allowed, over CROWD."""
    return float((slow > PATIENCE).sum() / CROWD)


def speeds(action: np.ndarray) -> np.ndarray:
    """Actions as speeds in m/s: above GO is go, else stop."""
    return np.where(np.asarray(action) > GO, LIMIT_SPEED, STOP_SPEED)


class Vehicle:
    """What is remembered of a vehicle, and where it was last seen."""

    def __init__(self, controlled: bool) -> None:
        self.controlled = controlled
        self.slow = 0.0  # s in a row
        self.asked = LIMIT_SPEED  # m/s, if controlled
        self.lane = ""
        self.position = 0.0  # m along the lane
        self.speed = 0.0  # m/s


class Bottleneck:
    """The task, one episode at a time."""

    seconds = SECONDS * simulation.TIMESTEP
    legend = (
        ("human driver", "plain"),
        ("slow for more than 10 s", "slow"),
        ("controlled", "controlled"),
    )
    stretch = 5.0

    def __init__(self) -> None:
        self.simulation = simulation.Simulation("bottleneck")
        self.sumo = self.simulation.sumo

    def reset(self, seed: int) -> np.ndarray:
        """Place the vehicles of the start."""
        self.simulation.load(seed)
        self.vehicles: dict[str, Vehicle] = {}
        self.outflow = deque([0] * WINDOW, WINDOW)
        self.advance(np.full(CONTROLS, LIMIT_SPEED))
        return self.observe()

    def step(self, action: np.ndarray) -> Result:
        """Simulate one decision; the cost is that of where it ends."""
        wanted = speeds(action)
        left = sum(self.advance(wanted) for _ in range(SECONDS))
        self.outflow.append(left)
        slow = [v.slow for v in self.vehicles.values() if not v.controlled]
        costs = np.array([cost(np.array(slow))])
        return Result(self.observe(), left - BASE, costs)

    def advance(self, wanted: np.ndarray) -> int:
        """Simulate a second; return how many vehicles left."""
        sumo = self.sumo
        sumo.simulationStep()
        for name in sumo.simulation.getArrivedIDList():
            del self.vehicles[name]
        variables = [
            sumo.VAR_LANE_ID,
            sumo.VAR_LANEPOSITION,
            sumo.VAR_SPEED,
        ]
        for name in sumo.simulation.getDepartedIDList():
            sumo.vehicle.subscribe(name, variables)
            controlled = sumo.vehicle.getTypeID(name) == "controlled"
            self.vehicles[name] = Vehicle(controlled)
        seen = sumo.vehicle.getAllSubscriptionResults()
        lane, position, speed = variables
        for name, vehicle in self.vehicles.items():
            entry = seen[name]
            vehicle.lane, vehicle.position = entry[lane], entry[position]
            vehicle.speed = entry[speed]
            vehicle.slow = vehicle.slow + 1.0 if vehicle.speed < SLOW else 0.0
            if vehicle.controlled:
                self.ask(name, vehicle, wanted)
        return sumo.simulation.getArrivedNumber()

    def ask(self, name: str, vehicle: Vehicle, wanted: np.ndarray) -> None:
        """Ask a controlled vehicle for the speed of its segment.

        Outside of the segments, also on the lanes inside of a merge, it is free: a
        slow vehicle would block the merge for all.
        """
        speed = LIMIT_SPEED
        parts = CONTROLLED.get(vehicle.lane)
        if parts:
            edge, _ = LANE_NAMES[vehicle.lane]
            segment = part(vehicle.position, edge, parts)
            speed = float(wanted[FIRST_CONTROL[vehicle.lane] + segment])
        if speed != vehicle.asked:
            self.sumo.vehicle.setMaxSpeed(name, speed)
            vehicle.asked = speed

    def observe(self) -> np.ndarray:
        """Density and mean speed of each lane-segment, for both kinds, and outflow.

        [35] densities of human, [35] of controlled vehicles, [35 + 35] speeds (0 if
        there is none), [1] vehicles that left in the last 20 decisions, per decision.
        """
        count, total = np.zeros((2, WATCHES)), np.zeros((2, WATCHES))
        for vehicle in self.vehicles.values():
            if vehicle.lane in LANE_NAMES:
                edge, lane = LANE_NAMES[vehicle.lane]
                parts = WATCHED[edge]
                row = WATCHED_START[edge] + lane * parts
                row += part(vehicle.position, edge, parts)
                count[int(vehicle.controlled), row] += 1
                total[int(vehicle.controlled), row] += vehicle.speed
        density = SPACE * count / WATCHED_LENGTH
        speed = total / np.maximum(count, 1.0) / LIMIT_SPEED
        flow = np.array([sum(self.outflow) / WINDOW])
        parts = (density.reshape(-1), speed.reshape(-1), flow)
        return np.concatenate(parts).astype(np.float32)

    def marked(self) -> dict[str, tuple[bool, bool]]:
        """Of each vehicle: whether it is controlled, and slow for too long."""
        return {
            name: (v.controlled, v.slow > PATIENCE) for name, v in self.vehicles.items()
        }

    def close(self) -> None:
        """End the simulation."""
        self.simulation.close()


def bottleneck(
    *, horizon: int = HORIZON, workers: int | None = None, timeout: float = 60.0
) -> SimulatorPool:
    """The task as a host environment."""
    spec = Spec(
        observation_size=4 * WATCHES + 1,
        action=Box(CONTROLS),
        horizon=horizon,
        constraints=(Constraint("slow", LIMIT),),
    )
    return simulation.pool("Bottleneck", Bottleneck, spec, workers, timeout)
