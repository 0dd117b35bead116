"""Grid: four traffic lights, simulated by SUMO.

    reward = vehicles that leave the network, above a base flow
    cost   = lights that have been red for more than 5 s in a row

Two streets in each direction cross at 2 x 2 lights; traffic goes straight on, and is
heavier from east to west and back. The lights of an axis are green, yellow or red; a
light switches when its action is above 0.3, and shows yellow in between. One decision
is one second. During the yellow of one axis the other one is still red.
"""

from __future__ import annotations

import numpy as np

from ecop.envs.sumo import simulation
from ecop.simulators.player import Result
from ecop.simulators.pool import SimulatorPool
from ecop.types import Box, Constraint, Spec

ENTRY, INNER, EXIT = 100, 60, 10  # m, edges of a street in this order
LIMIT_SPEED = 12.0  # m/s
INFLOW = {"E": 900, "W": 900, "N": 450, "S": 450}  # vehicles/h of each street
START = 5  # vehicles on each entry edge at the beginning
BASE = 0.3  # vehicles per second that earn nothing
SWITCH = 0.3  # actions above it ask to switch
YELLOW = 3  # s
PATIENCE = 5  # s of red in a row that cost nothing
VEHICLE = (
    'accel="1.0" decel="4.5" sigma="0.5" tau="1" minGap="2" length="5" speedFactor="1"'
)
SPACE = 7.0  # m, a vehicle that stands and its gap
HORIZON = 200
LIMIT = 75.0

HEADINGS = {"E": (1, 0), "W": (-1, 0), "N": (0, 1), "S": (0, -1)}
LIGHTS = ("00", "01", "10", "11")  # column, row
GREEN = ("GrGr", "rGrG")  # north-south, east-west
CHANGE = ("yryr", "ryry")


def street(heading: str, row: int) -> list[str]:
    """Its edges, in the direction of travel."""
    return [f"{heading}{row}_{k}" for k in range(3)]


STREETS = [street(heading, row) for heading in HEADINGS for row in range(2)]
EDGES = [edge for edges in STREETS for edge in edges]
LENGTH = np.tile(np.array([ENTRY, INNER, EXIT], np.float64), len(STREETS))


def traffic() -> str:
    """The route file: vehicles at the start, and a Poisson stream into each street."""
    elements = [f'<vType id="car" {VEHICLE}/>']
    for heading in HEADINGS:
        for row in range(2):
            name = f"{heading}{row}"
            edges = " ".join(street(heading, row))
            elements.append(f'<route id="{name}" edges="{edges}"/>')
    for edges in STREETS:
        name = edges[0][:2]
        for k in range(START):
            elements.append(
                f'<vehicle id="{name}s{k}" type="car" route="{name}" depart="0" '
                'departPos="random_free" departSpeed="desired"/>'
            )
    for edges in STREETS:
        name = edges[0][:2]
        elements.append(
            f'<flow id="{name}f" type="car" route="{name}" begin="0" end="100000" '
            f'period="exp({INFLOW[name[0]] / 3600:.5f})" departSpeed="max"/>'
        )
    return simulation.routes(elements)


def cost(red: np.ndarray) -> float:
    """Lights with an axis that has been red for too long; red [4, 2] in seconds."""
    return float((red > PATIENCE).any(axis=1).sum())


class Grid:
    """The task, one episode at a time."""

    seconds = simulation.TIMESTEP
    legend = (
        ("vehicle", "plain"),
        ("stands", "slow"),
        ("green", "green"),
        ("yellow", "yellow"),
        ("red", "red"),
    )
    stretch = 1.0

    def __init__(self) -> None:
        self.simulation = simulation.Simulation("grid")
        self.sumo = self.simulation.sumo
        self.variables = [
            self.sumo.LAST_STEP_VEHICLE_NUMBER,
            self.sumo.LAST_STEP_MEAN_SPEED,
        ]

    def reset(self, seed: int) -> np.ndarray:
        """Place the vehicles; each light is green for an axis drawn at random."""
        self.simulation.load(seed)
        self.axis = np.random.default_rng(seed).integers(2, size=len(LIGHTS))
        self.yellow = np.zeros(len(LIGHTS), np.int64)  # s left
        self.red = np.zeros((len(LIGHTS), 2))  # s in a row, by axis
        for light in range(len(LIGHTS)):
            self.show(light, GREEN)
        for edge in EDGES:
            self.sumo.edge.subscribe(edge, self.variables)
        self.advance()
        return self.observe()

    def show(self, light: int, states: tuple[str, str]) -> None:
        """Set the colours of a light."""
        state = states[self.axis[light]]
        self.sumo.trafficlight.setRedYellowGreenState(LIGHTS[light], state)

    def switch(self, asked: np.ndarray) -> None:
        """Advance the lights by a second: end of yellow, or its beginning."""
        for light in range(len(LIGHTS)):
            if self.yellow[light]:
                self.yellow[light] -= 1
                if not self.yellow[light]:
                    self.axis[light] ^= 1
                    self.show(light, GREEN)
            elif asked[light]:
                self.yellow[light] = YELLOW
                self.show(light, CHANGE)

    def step(self, action: np.ndarray) -> Result:
        """Let the lights that are asked to switch; simulate one second."""
        self.switch(action > SWITCH)
        left = self.advance()
        return Result(self.observe(), left - BASE, np.array([cost(self.red)]))

    def advance(self) -> int:
        """Simulate a second; return how many vehicles left."""
        waits = self.axis[:, None] != np.arange(2)
        self.red = np.where(waits, self.red + simulation.TIMESTEP, 0.0)
        self.sumo.simulationStep()
        return self.sumo.simulation.getArrivedNumber()

    def observe(self) -> np.ndarray:
        """Density [24] and mean speed [24] of the edges, and the clocks [8].

        A clock is log2(seconds of red / 2) + 1/2, and 0 while green. With 3 s of yellow
        to come, 2 s is when a light has to switch to keep the 5 s: the clock is
        negative before and positive from then on. While a light is yellow it cannot be
        asked to switch: then its clocks are small, so that they say nothing to a
        policy, and only count the yellow down.
        """
        seen = self.sumo.edge.getAllSubscriptionResults()
        count = np.array([seen[edge][self.variables[0]] for edge in EDGES])
        mean = np.array([seen[edge][self.variables[1]] for edge in EDGES])
        due = np.log2(np.maximum(self.red, 1.0) / (PATIENCE - YELLOW)) + 0.5
        clock = np.where(self.yellow[:, None] > 0, 0.0, due)
        rows = np.arange(len(LIGHTS))
        clock[rows, self.axis] = -0.1 * self.yellow / YELLOW
        parts = (SPACE * count / LENGTH, mean / LIMIT_SPEED, clock.reshape(-1))
        return np.concatenate(parts).astype(np.float32)

    def marked(self) -> dict[str, tuple[bool, bool]]:
        """Of each vehicle: never controlled; whether it stands."""
        vehicle = self.sumo.vehicle
        return {v: (False, vehicle.getSpeed(v) < 0.1) for v in vehicle.getIDList()}

    def close(self) -> None:
        """End the simulation."""
        self.simulation.close()


def grid(
    *, horizon: int = HORIZON, workers: int | None = None, timeout: float = 60.0
) -> SimulatorPool:
    """The task as a host environment."""
    spec = Spec(
        observation_size=2 * len(EDGES) + 2 * len(LIGHTS),
        action=Box(len(LIGHTS)),
        horizon=horizon,
        constraints=(Constraint("red", LIMIT, len(LIGHTS) * horizon),),
    )
    return simulation.pool("Grid", Grid, spec, workers, timeout)
