"""An animation of one fresh episode of a trained policy, whatever the kind of task."""

from __future__ import annotations

import base64
import tempfile
from pathlib import Path
from typing import NamedTuple

from ecop import files
from ecop.drawing.plane import animate, caption
from ecop.drawing.roads import animate_traffic
from ecop.drawing.scenes import Scene, Traffic
from ecop.errors import UserError
from ecop.evaluate import fresh_episode
from ecop.training import Learner
from ecop.types import Filmed, TrainState


class Clip(NamedTuple):
    """An animation that notebooks show by themselves."""

    file: Path | None  # where it was written, if it was
    kind: str  # "gif" or "mp4"
    data: bytes

    def __repr__(self) -> str:
        where = "" if self.file is None else f" '{self.file}'"
        return f"<Clip{where}: {self.kind}, {len(self.data):,} bytes>"

    def _repr_html_(self) -> str:
        coded = base64.b64encode(self.data).decode()
        if self.kind == "mp4":
            return f'<video controls src="data:video/mp4;base64,{coded}"></video>'
        return f'<img src="data:image/gif;base64,{coded}" alt="an episode">'


def clip(
    learner: Learner,
    state: TrainState,
    title: str,
    file: Path | None = None,
    replay: Path | None = None,
) -> Clip:
    """One fresh episode of a policy as an animation, written to a file if one is given.

    replay: folder for the simulator's own files of the episode, where it has such
    """
    kind = "gif" if file is None else file.suffix.lower().removeprefix(".")
    if kind not in ("gif", "mp4"):
        raise UserError(
            f"The file must end in .gif or .mp4, not '{Path(file or '').name}'."
        )
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / f"episode.{kind}"
        draw_episode(learner, state, title, made, replay)
        data = made.read_bytes()
    if file is not None:
        files.write(file, data)
    return Clip(file, kind, data)


def draw_episode(
    learner: Learner,
    state: TrainState,
    title: str,
    file: Path,
    replay: Path | None = None,
) -> None:
    """Write a GIF or MP4.

    replay: folder for the simulator's own files of the episode, where it has such
    """
    if not isinstance(learner.env, Filmed):
        raise UserError(
            f"{title} has no picture: a task needs a method 'film' (ecop.types.Filmed) "
            "to be animated; 'ecop plot' draws its learning curves."
        )
    episode = fresh_episode(learner, state)
    film = learner.env.film(episode)
    if replay:
        if not isinstance(film, Traffic):
            raise UserError(f"--sumo is for tasks on SUMO, which {title} is not.")
        replay.mkdir(parents=True, exist_ok=True)
        for name, text in film.replay.items():
            (replay / name).write_text(text)
    outcome = episode.reward, episode.costs
    limits = learner.spec.constraints
    if isinstance(film, Traffic):
        animate_traffic(film, *outcome, title=title, constraints=limits, file=file)
    elif isinstance(film, Scene):
        animate(film, *outcome, title=title, constraints=limits, file=file)
    else:
        caption(film, *outcome, title=title, constraints=limits, file=file)
