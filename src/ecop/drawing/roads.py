"""A top-down animation of an episode on roads, drawn with Pillow."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from ecop.drawing.plane import SMOOTH, STRIDE, banner, legend, progress, save
from ecop.drawing.scenes import Traffic
from ecop.types import Constraint

WIDTH = 640  # pixels of a square frame's side
WIDE = 1000  # pixels of a long road
MARGIN = 50  # pixels above and below, for the text
ROAD, EDGE = "#c9ccd1", "#7d828a"
COLOURS = {
    "plain": "#ffffff",
    "slow": "#3b6fd4",
    "controlled": "#d7261e",
    "green": "#1f9d45",
    "yellow": "#f2c500",
    "red": "#d7261e",
}
LIGHTS = ("green", "yellow", "red")
MILLISECONDS = 100  # per frame
BODY = 2.6  # m, width of a vehicle, wider than life to be seen


def animate_traffic(
    traffic: Traffic,
    reward: np.ndarray,
    costs: np.ndarray,
    *,
    title: str,
    constraints: Sequence[Constraint],
    file: Path,
) -> None:
    """Write an animation: reward [H], costs [H, C]; a frame shows the end of a step."""
    left, bottom, right, top = traffic.window
    long = (right - left) > 2 * (top - bottom)
    across = (WIDE if long else WIDTH) / (right - left)
    scale = np.array([across, across * traffic.stretch]) * SMOOTH
    size = round(across * (right - left)), round(scale[1] / SMOOTH * (top - bottom))
    pixels = size[0] * SMOOTH, (size[1] + 2 * MARGIN) * SMOOTH
    origin = np.array([0.0, MARGIN * SMOOTH])
    corner = np.array([left, top])
    font = ImageFont.load_default(size=14 * SMOOTH)

    def at(points: np.ndarray) -> list[tuple[float, float]]:
        flipped = (np.asarray(points) - corner) * [1.0, -1.0]
        return [(float(x), float(y)) for x, y in flipped * scale + origin]

    canvas = Image.new("RGB", pixels, "white")
    pen = ImageDraw.Draw(canvas)
    for colour, width in ((EDGE, 1.15), (ROAD, 0.9)):
        for shape in traffic.lanes:
            for a, b in itertools.pairwise(shape):
                pen.polygon(at(strip(a, b, width * traffic.lane_width)), fill=colour)

    frames = []
    count = len(reward)
    for h in [*range(0, count, STRIDE), *([count - 1] if count % STRIDE == 0 else [])]:
        frame = canvas.copy()
        pen = ImageDraw.Draw(frame)
        for x, y, heading, controlled, slow in traffic.vehicles[h + 1]:
            front = np.array([x, y])
            back = front - traffic.length * np.array([np.cos(heading), np.sin(heading)])
            body = strip(front, back, BODY)
            kind = "controlled" if controlled else "slow" if slow else "plain"
            fill = COLOURS[kind]
            pen.polygon(at(body), fill=fill, outline="#1b1b1b", width=SMOOTH)
        for x, y, colour in traffic.lights[h + 1]:
            (u, v), r = at(np.array([[x, y]]))[0], 4 * SMOOTH
            pen.ellipse((u - r, v - r, u + r, v + r), fill=COLOURS[LIGHTS[int(colour)]])
        text = f"{title}   {traffic.seconds * (h + 1):g} s   "
        text += progress(h, reward, costs, constraints)
        banner(pen, (10 * SMOOTH, 8 * SMOOTH), text, font)
        names = [(name, COLOURS[kind]) for name, kind in traffic.legend]
        legend(pen, names, pixels[1], font)
        shape = (size[0], size[1] + 2 * MARGIN)
        frames.append(frame.resize(shape, Image.Resampling.LANCZOS))
    save(frames, MILLISECONDS, file)


def strip(a: np.ndarray, b: np.ndarray, width: float) -> np.ndarray:
    """The corners [4, 2] of a straight strip from a to b."""
    along = (b - a) / max(float(np.linalg.norm(b - a)), 1e-9)
    aside = np.array([-along[1], along[0]]) * width / 2
    return np.stack([a - aside, a + aside, b + aside, b - aside])
