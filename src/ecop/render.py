"""A top-down animation of one episode, drawn with Pillow (no screen needed)."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from ecop.types import Scene

SIZE = 480  # pixels of a frame
SMOOTH = 2  # drawn this much larger, then shrunk
STRIDE = 2  # steps per frame
SAFE, COSTLY, LINE, ROBOT = "#0b6e99", "#c2261c", "#8a8a8a", "#1b1b1b"


def animate(
    scene: Scene,
    pose: np.ndarray,
    reward: np.ndarray,
    costs: np.ndarray,
    *,
    title: str,
    file: Path,
) -> None:
    """Write a GIF: pose [H, 3], reward [H], costs [H, C].

    The trace is coloured by whether the step had a cost; the text counts up.
    """
    pixels = SIZE * SMOOTH
    scale = pixels / (2 * scene.extent)

    def at(x: float, y: float) -> tuple[float, float]:
        return pixels / 2 + scale * x, pixels / 2 - scale * y

    canvas = Image.new("RGB", (pixels, pixels), "white")
    draw = ImageDraw.Draw(canvas)
    for x, y, radius in scene.circles:
        left, top = at(x - radius, y + radius)
        right, bottom = at(x + radius, y - radius)
        draw.ellipse((left, top, right, bottom), outline=LINE, width=2 * SMOOTH)
    for x1, y1, x2, y2 in scene.lines:
        dashed(draw, at(x1, y1), at(x2, y2))

    font = ImageFont.load_default(size=14 * SMOOTH)
    frames = []
    for h in range(len(pose)):
        if h:
            colour = COSTLY if costs[h - 1].sum() > 0 else SAFE
            line = (at(*pose[h - 1, :2]), at(*pose[h, :2]))
            draw.line(line, fill=colour, width=2 * SMOOTH)
        if h % STRIDE and h < len(pose) - 1:
            continue
        frame = canvas.copy()
        pen = ImageDraw.Draw(frame)
        robot(pen, at(*pose[h, :2]), float(pose[h, 2]))
        text = (
            f"{title}   step {h + 1}/{len(pose)}   "
            f"reward {reward[: h + 1].sum():.1f}   "
            f"cost {' / '.join(f'{c:g}' for c in costs[: h + 1].sum(axis=0))}"
        )
        pen.text((10 * SMOOTH, 8 * SMOOTH), text, fill=ROBOT, font=font)
        frames.append(frame.resize((SIZE, SIZE), Image.Resampling.LANCZOS))
    palette = frames[-1].quantize(64)
    frames = [frame.quantize(palette=palette) for frame in frames]
    durations = [50] * (len(frames) - 1) + [1500]
    frames[0].save(
        file, save_all=True, append_images=frames[1:], duration=durations, loop=0
    )


def dashed(draw: Any, start: tuple[float, float], end: tuple[float, float]) -> None:
    """A dashed line."""
    length = math.dist(start, end)
    count = max(1, int(length / (8 * SMOOTH)))
    points = [
        tuple(a + (b - a) * i / count for a, b in zip(start, end, strict=True))
        for i in range(count + 1)
    ]
    for i in range(0, count, 2):
        draw.line((*points[i], *points[i + 1]), fill=COSTLY, width=2 * SMOOTH)


def robot(draw: Any, centre: tuple[float, float], heading: float) -> None:
    """An arrowhead that points along the heading."""
    corners = [
        (
            centre[0] + r * SMOOTH * math.cos(heading + turn),
            centre[1] - r * SMOOTH * math.sin(heading + turn),
        )
        for r, turn in ((13, 0.0), (10, 2.5), (4, math.pi), (10, -2.5))
    ]
    draw.polygon(corners, fill=ROBOT)
