"""Where simulators play, as options of `ecop train` and `ecop resume`. No JAX here."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, get_args

from ecop.errors import UserError, unknown
from ecop.simulators.on_ray import Actors, connected
from ecop.simulators.pool import SimulatorPool

MOST_ACTORS = 10_000
On = Literal["local", "ray"]


@dataclass(frozen=True)
class Where:
    """Where simulators play; no result depends on it."""

    on: On = "local"
    """where episodes of a simulated task are played; "ray": by actors of a cluster"""
    address: str | None = None
    """of the Ray cluster; default: RAY_ADDRESS, else one is started here"""
    actors: int | None = None
    """of the cluster, one simulator process each; default: one per CPU that it has"""

    def __post_init__(self) -> None:
        if self.on not in get_args(On):
            raise UserError(unknown("place to play", str(self.on), get_args(On)))
        if self.on != "ray" and (self.address, self.actors) != (None, None):
            raise UserError("--address and --actors need --on ray.")
        if self.actors is not None and not 1 <= self.actors <= MOST_ACTORS:
            raise UserError(f"actors must be 1 .. {MOST_ACTORS:,}, not {self.actors}.")

    @contextlib.contextmanager
    def playing(self, env: Any) -> Iterator[None]:
        """Let an environment play there."""
        if self.on == "local":
            yield
            return
        if not isinstance(env, SimulatorPool):
            raise UserError(
                f"{type(env).__name__} is computed in this process; Ray plays SUMO's "
                "tasks, gym:ID, module:function and what ecop.from_gymnasium makes."
            )
        if env.python is not None:
            raise UserError(
                f"--on ray plays with the Python of each node, not '{env.python}'; "
                "leave one of them away."
            )
        with (
            connected(self.address, self.actors) as ray,
            contextlib.closing(Actors(ray, self.actors)) as crew,
            env.played_by(crew),
        ):
            yield
