"""An animation of one fresh episode of a trained policy, whatever the kind of task."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from ecop.drawing import plane
from ecop.drawing.roads import animate_traffic
from ecop.errors import UserError
from ecop.evaluate import film, fresh_episode
from ecop.simulators.pool import SimulatorPool
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
    env: Any = learner.env
    traffic = env.film if isinstance(env, SimulatorPool) else None
    if isinstance(env, SimulatorPool) and traffic is None:
        raise UserError(
            f"{title} has no picture of ours; make it with render_mode and step it "
            "with run.policy(observation, h)."
        )
    if replay and not traffic:
        raise UserError(f"--sumo is for tasks on SUMO, which {title} is not.")
    if traffic:
        episodes, seed = fresh_episode(learner, state)
        seen: Any = traffic(seed, np.asarray(episodes.action[0, 0]), replay)
    else:
        episodes, seen = film(learner, state)
    reward, costs = (np.asarray(x[0, 0]) for x in (episodes.reward, episodes.costs))
    if traffic:
        animate_traffic(seen, reward, costs, title=title, file=file)
    elif isinstance(env, Filmed):
        shown = list(range(0, len(seen), env.stride))
        plane.film(
            env.pictures([seen[h] for h in shown]),
            shown,
            reward[: len(seen)],
            costs[: len(seen)],
            title=title,
            interval=env.stride * env.interval,
            file=file,
        )
    else:
        plane.animate(learner.env.scene(seen), reward, costs, title=title, file=file)
