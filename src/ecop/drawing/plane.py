"""Animations of one episode: drawn from above with Pillow, or a task's own pictures.

No screen is needed. The file's ending chooses between GIF and MP4.
"""

from __future__ import annotations

import math
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from ecop.drawing.scenes import Pictures, Scene
from ecop.errors import UserError
from ecop.types import Constraint

SIZE = 480  # pixels along the side of a square frame; others have its area
SMOOTH = 2  # drawn this much larger, then shrunk
STRIDE = 2  # steps per frame
SAFE, COSTLY, LINE, ROBOT = "#0b6e99", "#c2261c", "#8a8a8a", "#1b1b1b"


def animate(
    scene: Scene,
    reward: np.ndarray,
    costs: np.ndarray,
    *,
    title: str,
    constraints: Sequence[Constraint],
    file: Path,
) -> None:
    """Write an animation: reward [H], costs [H, C].

    The trace is coloured by whether the step had a cost; the text counts up.
    """
    left, bottom, right, top = scene.window
    width, height = right - left, top - bottom
    scale = SIZE / math.sqrt(width * height)
    size = round(scale * width), round(scale * height)
    pixels = size[0] * SMOOTH, size[1] * SMOOTH
    scale *= SMOOTH
    pose = scene.pose

    def at(x: float, y: float) -> tuple[float, float]:
        return scale * (x - left), scale * (top - y)

    def around(x: float, y: float, radius: float) -> tuple[float, ...]:
        return *at(x - radius, y + radius), *at(x + radius, y - radius)

    canvas = Image.new("RGB", pixels, "white")
    draw = ImageDraw.Draw(canvas)
    font = ImageFont.load_default(size=14 * SMOOTH)
    for discs in scene.discs:
        for x, y in discs.centres:
            draw.ellipse(around(x, y, discs.radius), fill=discs.colour)
    for circle in scene.circles:
        draw.ellipse(around(*circle), outline=LINE, width=2 * SMOOTH)
    for x1, y1, x2, y2 in scene.lines:
        dashed(draw, at(x1, y1), at(x2, y2))
    goal = () if scene.goal is None else (scene.goal,)

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
        for discs in goal:
            x, y = discs.centres[h]
            ring = around(x, y, discs.radius)
            pen.ellipse(ring, outline=discs.colour, width=5 * SMOOTH)
        robot(pen, at(*pose[h, :2]), float(pose[h, 2]))
        text = f"{title}   {progress(h, reward, costs, constraints)}"
        banner(pen, (10 * SMOOTH, 8 * SMOOTH), text, font)
        kinds = [(kind.name, kind.colour) for kind in (*goal, *scene.discs)]
        costly = [("step with a cost", COSTLY)] if kinds else []
        legend(pen, kinds + costly, pixels[1], font)
        frames.append(frame.resize(size, Image.Resampling.LANCZOS))
    save(frames, 50, file)


def caption(
    pictures: Pictures,
    reward: np.ndarray,
    costs: np.ndarray,
    *,
    title: str,
    constraints: Sequence[Constraint],
    file: Path,
) -> None:
    """Write the pictures with the sums of reward [H] and costs [H, C].

    The frame is red where a step since the last picture had a cost.
    """
    shown = range(0, len(reward), pictures.stride)
    font = ImageFont.load_default(size=14)
    frames, last = [], 0
    for h, picture in zip(shown, pictures.frames, strict=True):
        frame = Image.fromarray(picture)
        pen = ImageDraw.Draw(frame)
        if costs[last : h + 1].sum() > 0:
            pen.rectangle((0, 0, *frame.size), outline=COSTLY, width=6)
        text = f"{title}   {progress(h, reward, costs, constraints)}"
        banner(pen, (16, 14), text, font)
        frames.append(frame)
        last = h + 1
    save(frames, round(1000 * pictures.stride * pictures.seconds), file)


def progress(
    h: int, reward: np.ndarray, costs: np.ndarray, constraints: Sequence[Constraint]
) -> str:
    """The text over a picture: sums up to and with step h, each cost and its limit."""
    sums = costs[: h + 1].sum(axis=0)
    words = []
    for constraint, cost in zip(constraints, sums, strict=True):
        limit = constraint.limit
        words.append(
            f"{constraint.name}: cost {round(float(cost), 1):g}, "
            + (f"limit {limit:g}" if math.isfinite(limit) else "no limit")
        )
    first = f"step {h + 1}/{len(reward)}   reward {reward[: h + 1].sum():.1f}"
    return "\n".join([first, "   ".join(words)]).rstrip()


def save(frames: list[Image.Image], milliseconds: int, file: Path) -> None:
    """Write an animation; the last frame of a GIF stays for a moment."""
    if file.suffix.lower() == ".mp4":
        write_mp4(frames, 1000 / milliseconds, file)
        return
    # With fewer colours those that few pixels have are lost, such as a green light's.
    palette = frames[-1].quantize(256)
    frames = [
        frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames
    ]
    durations = [milliseconds] * (len(frames) - 1) + [1500]
    frames[0].save(
        file, save_all=True, append_images=frames[1:], duration=durations, loop=0
    )


def write_mp4(frames: list[Image.Image], rate: float, file: Path) -> None:
    """Write an MP4 with ffmpeg."""
    try:
        import imageio_ffmpeg
    except ImportError:
        raise UserError(
            "MP4 needs ffmpeg: pip install 'ecop[video]'; or ask for a GIF: "
            f"--out {file.with_suffix('.gif')}"
        ) from None
    width, height = frames[0].size
    raw = f"-f rawvideo -pix_fmt rgb24 -s {width}x{height} -r {rate:g} -i -".split()
    # yuv420p, which every player knows, holds even sizes only.
    form = ["-pix_fmt", "yuv420p", "-vf", "pad=ceil(iw/2)*2:ceil(ih/2)*2"]
    program = [imageio_ffmpeg.get_ffmpeg_exe(), "-y", "-loglevel", "error"]
    pixels = b"".join(frame.convert("RGB").tobytes() for frame in frames)
    subprocess.run([*program, *raw, *form, str(file)], input=pixels, check=True)


def banner(draw: Any, place: tuple[float, float], text: str, font: Any) -> None:
    """Text on white."""
    x1, y1, x2, y2 = draw.textbbox(place, text, font=font)
    edge = 3 * SMOOTH
    draw.rectangle((x1 - edge, y1 - edge, x2 + edge, y2 + edge), fill="white")
    draw.text(place, text, fill=ROBOT, font=font)


def legend(draw: Any, names: list[tuple[str, str]], bottom: float, font: Any) -> None:
    """What each colour means, along the lower edge."""
    x, y = 10 * SMOOTH, bottom - 24 * SMOOTH
    for name, colour in names:
        side = 12 * SMOOTH
        text = (x + 18 * SMOOTH, y)
        banner(draw, text, name, font)
        box = (x, y + 2 * SMOOTH, x + side, y + 2 * SMOOTH + side)
        draw.rectangle(box, colour, outline=LINE if colour == "#ffffff" else None)
        x = draw.textbbox(text, name, font=font)[2] + 14 * SMOOTH


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
