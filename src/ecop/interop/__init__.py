"""Gymnasium, both ways: our tasks for its users, its environments for our learner.

Gymnasium is an extra; it is imported when one of these functions is called. Its
environments for our learner are made in `tasks`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ecop.errors import UserError

if TYPE_CHECKING:
    from ecop.interop.gymnasium_out import SixTuple, TaskEnv, TaskVectorEnv


def need_gymnasium() -> None:
    """Refuse, with the command to type, if Gymnasium is not installed."""
    try:
        import gymnasium  # noqa: F401
    except ImportError:
        raise UserError(
            "This needs Gymnasium, which is not installed: pip install 'ecop[gym]'"
        ) from None


def make_gymnasium(name: str, **options: Any) -> TaskEnv:
    """One of our JAX tasks as a `gymnasium.Env`; options go to the task.

    `info` has "cost" (the sum), "costs" [C] and "cost_<name>"; the environment has
    `cost_names`, `cost_limits`, `cost_bounds` and `horizon`.
    """
    need_gymnasium()
    from ecop.interop.gymnasium_out import TaskEnv

    return TaskEnv(name, **options)


def make_gymnasium_vec(name: str, num_envs: int, **options: Any) -> TaskVectorEnv:
    """`num_envs` episodes of a JAX task, stepped as one batch: a `VectorEnv`.

    Its autoreset mode is NEXT_STEP: the step after an episode's last one ignores its
    action, returns the next episode's first observation, and has no reward and cost.
    """
    need_gymnasium()
    from ecop.interop.gymnasium_out import TaskVectorEnv

    return TaskVectorEnv(name, num_envs, **options)


def to_safety_gymnasium(env: Any) -> SixTuple:
    """Wrap any environment with `info["cost"]`: `step` returns the cost third."""
    need_gymnasium()
    from ecop.interop.gymnasium_out import SixTuple

    return SixTuple(env)
