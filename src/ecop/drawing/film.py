"""An animation of one fresh episode of a trained policy, whatever the kind of task."""

from __future__ import annotations

from pathlib import Path

from ecop.drawing.plane import animate, caption
from ecop.drawing.roads import animate_traffic
from ecop.drawing.scenes import Scene, Traffic
from ecop.errors import UserError
from ecop.evaluate import fresh_episode
from ecop.training import Learner
from ecop.types import Filmed, TrainState


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
    if isinstance(film, Traffic):
        animate_traffic(film, *outcome, title=title, file=file)
    elif isinstance(film, Scene):
        animate(film, *outcome, title=title, file=file)
    else:
        caption(film, *outcome, title=title, file=file)
