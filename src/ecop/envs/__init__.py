"""The registry of tasks: one name, one class, imported when it is asked for."""

from __future__ import annotations

import difflib
import importlib
from typing import Any

from ecop.types import UserError

ENVS: dict[str, str] = {
    "PointCircle": "ecop.envs.point_circle:PointCircle",
    "PointReach": "ecop.envs.point_reach:PointReach",
    "Navigation": "ecop.envs.navigation:Navigation",
    "AntCircle": "ecop.envs.ant_circle:AntCircle",
    "AntReach": "ecop.envs.ant_reach:AntReach",
    "Humanoid": "ecop.envs.humanoid:Humanoid",
    "Grid": "ecop.envs.grid:grid",
    "Bottleneck": "ecop.envs.bottleneck:bottleneck",
    "FactoredRing": "ecop.exact.task:factored_ring",
    "MediaStreaming": "ecop.exact.task:media_streaming",
    "Inventory": "ecop.exact.task:inventory",
    "Box": "ecop.exact.task:box",
    "MarsRover": "ecop.exact.task:mars_rover",
    "PeakHours": "ecop.exact.task:peak_hours",
    "Language": "ecop.exact.task:language",
}


# Options of a task on the command line, beside its limits and horizon.
OPTIONS: dict[str, str] = {
    "AntCircle": "ecop.envs.physics:PhysicsOptions",
    "AntReach": "ecop.envs.physics:PhysicsOptions",
    "Humanoid": "ecop.envs.humanoid:HumanoidOptions",
    "Grid": "ecop.envs.sumo:SumoOptions",
    "Bottleneck": "ecop.envs.sumo:SumoOptions",
}


def make(name: str, **options: Any) -> Any:
    """Build the task `name`; options go to its constructor (e.g. horizon=100).

    Besides our own: "gym:ID" for Gymnasium's, "module:function" for yours.
    """
    if ":" in name:
        return importlib.import_module("ecop.interop").from_name(name, **options)
    if name not in ENVS:
        raise UserError(unknown("task", name, ENVS))
    module, _, attribute = ENVS[name].partition(":")
    return getattr(importlib.import_module(module), attribute)(**options)


def unknown(kind: str, name: str, known: Any) -> str:
    """Say that `name` is not known, with the nearest name that is."""
    lower = {entry.lower(): entry for entry in known}
    near = difflib.get_close_matches(name.lower(), lower, n=1, cutoff=0.4)
    hint = f" Did you mean '{lower[near[0]]}'?" if near else ""
    more = "; gym:ID, module:function" if kind == "task" else ""
    return f"There is no {kind} '{name}'.{hint} Known: {', '.join(known)}{more}."
