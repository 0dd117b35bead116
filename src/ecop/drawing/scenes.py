"""A film of an episode, as data that a task returns; `plane` and `roads` draw it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np


class Discs(NamedTuple):
    """Round things of one kind, for animations; lengths in metres."""

    name: str
    colour: str
    radius: float
    centres: np.ndarray  # [K, 2]; of a goal [H, 2], one per step


class Scene(NamedTuple):
    """An episode seen from above, for animations; lengths in metres."""

    window: tuple[float, float, float, float]  # left, bottom, right, top
    pose: np.ndarray  # [H, 3] x, y, heading of the robot
    circles: tuple[tuple[float, float, float], ...] = ()  # x, y, radius
    lines: tuple[tuple[float, float, float, float], ...] = ()  # x1, y1, x2, y2
    discs: tuple[Discs, ...] = ()
    goal: Discs | None = None


class Traffic(NamedTuple):
    """An episode on roads seen from above, for animations; metres.

    `vehicles` and `lights` have an entry for the start and one for the end of each
    step.
    """

    window: tuple[float, float, float, float]  # left, bottom, right, top
    lanes: list[np.ndarray]  # centre lines, each [P, 2]
    lane_width: float
    length: float  # of a vehicle
    vehicles: list[np.ndarray]  # [K, 5] x, y (front), heading, controlled, slow
    lights: list[np.ndarray]  # [L, 3] x, y, colour (0 green, 1 yellow, 2 red)
    seconds: float  # per step
    legend: tuple[tuple[str, str], ...]  # name, kind: see roads.COLOURS
    replay: dict[str, str]  # files for sumo-gui: name, text
    stretch: float = 1.0  # of the y axis, for a long road


class Pictures(NamedTuple):
    """An episode in a task's own pictures: of the first step, then every `stride`."""

    frames: Iterator[np.ndarray]  # [height, width, 3] uint8, all of one size
    stride: int
    seconds: float  # per step


Film = Scene | Traffic | Pictures
