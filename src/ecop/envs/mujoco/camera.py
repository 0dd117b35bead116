"""Pictures of a MuJoCo episode, without a screen.

Mesa draws them in memory, by EGL or by OSMesa, whichever is there; MUJOCO_GL=egl or
MUJOCO_GL=osmesa chooses.
"""

from __future__ import annotations

import copy
import ctypes
import importlib
import os
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from ecop.envs.mujoco.physics import library
from ecop.errors import UserError
from ecop.types import Played

WIDTH, HEIGHT = 640, 480
LIBRARIES = {"egl": "libEGL.so.1", "osmesa": "libOSMesa.so.8"}
PLATFORM = "PYOPENGL_PLATFORM"  # MuJoCo's contexts want it to be theirs or nobody's

GREEN, RED = (0.1, 0.6, 0.3, 1.0), (0.76, 0.15, 0.11, 1.0)
VIOLET = (0.55, 0.35, 0.85, 0.7)


class Disc(NamedTuple):
    """A flat round thing on the floor."""

    centre: tuple[float, float]
    radius: float
    colour: tuple[float, float, float, float]


class Path(NamedTuple):
    """A line on the floor through these points [K, 2]."""

    points: np.ndarray
    colour: tuple[float, float, float, float]


class View(NamedTuple):
    """Where the camera is; it follows the torso unless `centre` is given.

    A robot that cannot leave the plane of x and z has `sideways` false.
    """

    distance: float  # m
    elevation: float  # degrees
    azimuth: float = 90.0  # degrees
    centre: tuple[float, float, float] | None = None
    sideways: bool = True


def circle(radius: float) -> np.ndarray:
    """Points [65, 2] of a circle around the origin."""
    angle = np.linspace(0.0, 2.0 * np.pi, 65)
    return radius * np.stack([np.cos(angle), np.sin(angle)], axis=1)


def context() -> Any:
    """A place to draw in memory."""
    asked = os.environ.get("MUJOCO_GL", "")
    tried = []
    for name in [asked] if asked in LIBRARIES else list(LIBRARIES):
        before = os.environ.get(PLATFORM)
        try:
            ctypes.CDLL(LIBRARIES[name])
            os.environ[PLATFORM] = name
            made = importlib.import_module(f"mujoco.{name}").GLContext(WIDTH, HEIGHT)
            made.make_current()
            return made
        # What goes wrong in a driver has no common type.
        except Exception as error:
            tried.append(f"{name}: {error}")
            os.environ.pop(PLATFORM, None)
            if before is not None:
                os.environ[PLATFORM] = before
    raise UserError(
        "No way to draw without a screen; install Mesa's EGL (apt-get install libegl1 "
        "libegl-mesa0) or OSMesa (apt-get install libosmesa6). Tried "
        + "; ".join(tried)
    )


def poses(env: Any, episode: Played, stride: int) -> np.ndarray:
    """Play the episode again; poses [F, nq] before the first step and every stride."""
    env.reset(np.array([episode.seed], np.uint32))
    rows = []
    for action in episode.action:
        rows.append(env.robots.position[0].copy())
        env.step(action[None])
    return np.stack(rows[::stride])


def frames(
    model: Any, positions: np.ndarray, props: tuple[Disc | Path, ...], view: View
) -> Iterator[np.ndarray]:
    """Pictures [HEIGHT, WIDTH, 3] uint8 of the poses [F, nq]."""
    mujoco = library()
    model = pale_floor(model)
    place = context()
    drawing = mujoco.MjrContext(model, mujoco.mjtFontScale.mjFONTSCALE_100)
    mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN, drawing)
    scene = mujoco.MjvScene(model, maxgeom=2000)
    scene.flags[mujoco.mjtRndFlag.mjRND_REFLECTION] = 0
    camera, options = mujoco.MjvCamera(), mujoco.MjvOption()
    camera.distance, camera.elevation = view.distance, view.elevation
    camera.azimuth = view.azimuth
    data, area = mujoco.MjData(model), mujoco.MjrRect(0, 0, WIDTH, HEIGHT)
    picture = np.empty((HEIGHT, WIDTH, 3), np.uint8)
    everything = mujoco.mjtCatBit.mjCAT_ALL
    try:
        for position in positions:
            data.qpos[:] = position
            mujoco.mj_forward(model, data)
            x, y = position[0], position[1] if view.sideways else 0.0
            camera.lookat[:] = view.centre or (x, y, 0.5)
            mujoco.mjv_updateScene(
                model, data, options, None, camera, everything, scene
            )
            for prop in props:
                add(scene, prop)
            mujoco.mjr_render(area, scene, drawing)
            mujoco.mjr_readPixels(picture, None, area, drawing)
            yield picture[::-1].copy()
    finally:
        drawing.free()
        place.free()


def pale_floor(model: Any) -> Any:
    """A copy of the model whose black and white floor is in two greys."""
    model = copy.copy(model)
    floor = model.texture("texplane").id
    start = model.tex_adr[floor]
    size = model.tex_height[floor] * model.tex_width[floor] * model.tex_nchannel[floor]
    texels = model.tex_data[start : start + size]
    texels[:] = 185 + texels // 6
    return model


def add(scene: Any, prop: Disc | Path) -> None:
    """Put a prop into the scene; it has no body, it is only drawn."""
    mujoco = library()

    def new(kind: Any, size: list[float], place: list[float]) -> Any:
        if scene.ngeom == scene.maxgeom:
            return mujoco.MjvGeom()
        geom = scene.geoms[scene.ngeom]
        scene.ngeom += 1
        colour = np.array(prop.colour, np.float32)
        mujoco.mjv_initGeom(geom, kind, size, place, np.eye(3).ravel(), colour)
        return geom

    if isinstance(prop, Disc):
        new(mujoco.mjtGeom.mjGEOM_CYLINDER, [prop.radius, 0.01, 0], [*prop.centre, 0.0])
        return
    for start, end in zip(prop.points[:-1], prop.points[1:], strict=True):
        kind = mujoco.mjtGeom.mjGEOM_CAPSULE
        geom = new(kind, [0.0, 0.0, 0.0], [0.0, 0.0, 0.0])
        mujoco.mjv_connector(geom, kind, 0.03, [*start, 0.02], [*end, 0.02])
