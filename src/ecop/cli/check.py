"""`ecop check`: whether an environment keeps the contract."""

from typing import Annotated, Any

import tyro

from ecop.cli.commands import parse
from ecop.cli.train import GymnasiumOptions, env_fields
from ecop.envs import ENVS
from ecop.errors import UserError, unknown


def check_command(argv: list[str]) -> int:
    """Parse the options and check an environment."""
    return parse(check, "check", argv)


def check(
    env: str,
    /,
    *,
    gymnasium: Annotated[GymnasiumOptions, tyro.conf.arg(name="")],
    horizon: int | None = None,
    limits: tuple[float, ...] | None = None,
    episodes: int = 8,
) -> int:
    """Does an environment keep the contract? What is wrong, where, how to mend it.

    ENV is a task, gym:ID, or module:function.

    Args:
        env: task, gym:ID, or module:function
        gymnasium: options of Gymnasium environments
        horizon: steps per episode; default: the environment's
        limits: one limit per cost
        episodes: episodes to play

    """
    if episodes < 2:
        raise UserError(f"--episodes must be at least 2, not {episodes}.")
    fields: dict[str, Any] = {}
    if ":" in env:
        fields = env_fields(gymnasium)
    elif env not in ENVS:
        raise UserError(unknown("task", env, ENVS))
    elif env_fields(gymnasium):
        given = ", ".join(f"--{name}" for name in env_fields(gymnasium))
        raise UserError(f"{given}: only for Gymnasium environments.")
    given = {"horizon": horizon, "limits": limits}
    fields |= {name: value for name, value in given.items() if value is not None}
    from ecop.interop.check import check_cmdp

    report = check_cmdp(env, episodes=episodes, **fields)
    print(report)
    return 0 if report.healthy else 1
