"""The registry of tasks: one name, one class, imported when it is asked for."""

from __future__ import annotations

import importlib
from typing import Any

from ecop.errors import UserError, unknown

ENVS: dict[str, str] = {
    "PointCircle": "ecop.envs.point.circle:PointCircle",
    "PointReach": "ecop.envs.point.reach:PointReach",
    "Navigation": "ecop.envs.point.navigation:Navigation",
    "AntCircle": "ecop.envs.mujoco.ant_circle:AntCircle",
    "AntReach": "ecop.envs.mujoco.ant_reach:AntReach",
    "Humanoid": "ecop.envs.mujoco.humanoid:Humanoid",
    "AntVelocity": "ecop.envs.mujoco.velocity:ant",
    "HalfCheetahVelocity": "ecop.envs.mujoco.velocity:half_cheetah",
    "HopperVelocity": "ecop.envs.mujoco.velocity:hopper",
    "Walker2dVelocity": "ecop.envs.mujoco.velocity:walker2d",
    "SwimmerVelocity": "ecop.envs.mujoco.velocity:swimmer",
    "HumanoidVelocity": "ecop.envs.mujoco.velocity:humanoid",
    "Grid": "ecop.envs.sumo.grid:grid",
    "Bottleneck": "ecop.envs.sumo.bottleneck:bottleneck",
    "FactoredRing": "ecop.envs.tabular:factored_ring",
    "MediaStreaming": "ecop.envs.tabular:media_streaming",
    "Inventory": "ecop.envs.tabular:inventory",
    "Box": "ecop.envs.tabular:box",
    "MarsRover": "ecop.envs.tabular:mars_rover",
    "PeakHours": "ecop.envs.tabular:peak_hours",
    "RandomTable": "ecop.envs.tabular:random_table",
    "Language": "ecop.envs.tabular:language",
}


# Options of a task on the command line, beside its limits and horizon.
OPTIONS: dict[str, str] = {
    "AntCircle": "ecop.envs.mujoco.physics:PhysicsOptions",
    "AntReach": "ecop.envs.mujoco.physics:PhysicsOptions",
    "Humanoid": "ecop.envs.mujoco.humanoid:HumanoidOptions",
    "AntVelocity": "ecop.envs.mujoco.velocity:VelocityOptions",
    "HalfCheetahVelocity": "ecop.envs.mujoco.velocity:VelocityOptions",
    "HopperVelocity": "ecop.envs.mujoco.velocity:VelocityOptions",
    "Walker2dVelocity": "ecop.envs.mujoco.velocity:VelocityOptions",
    "SwimmerVelocity": "ecop.envs.mujoco.velocity:VelocityOptions",
    "HumanoidVelocity": "ecop.envs.mujoco.velocity:VelocityOptions",
    "Grid": "ecop.envs.sumo.simulation:SumoOptions",
    "RandomTable": "ecop.envs.tabular:RandomOptions",
    "Bottleneck": "ecop.envs.sumo.simulation:SumoOptions",
}


def make(name: str, **options: Any) -> Any:
    """Build the task `name`; options go to its constructor (e.g. horizon=100).

    Besides our own: "gym:ID" for Gymnasium's, "module:function" for yours.
    """
    if ":" in name:
        return importlib.import_module("ecop.interop.tasks").from_name(name, **options)
    if name not in ENVS:
        raise UserError(unknown("task", name, ENVS))
    module, _, attribute = ENVS[name].partition(":")
    return getattr(importlib.import_module(module), attribute)(**options)
