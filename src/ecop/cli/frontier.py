"""`ecop frontier`: what relaxing a budget buys."""

import math
import re
import sys
from pathlib import Path
from typing import Annotated, Any

import tyro

from ecop.cli.commands import parse
from ecop.cli.train import NoOptions, env_fields, env_options
from ecop.envs import ENVS
from ecop.errors import UserError, unknown


def frontier_command(argv: list[str]) -> int:
    """Parse the options, train at every limit, print and draw what was reached."""
    task = argv[0] if argv and not argv[0].startswith("-") else ""
    if task and task not in ENVS and ":" not in task:
        raise UserError(unknown("task", task, ENVS))
    env_kind = env_options(task) if task else NoOptions

    def options(
        task: Annotated[str, tyro.conf.Positional],
        env: Annotated[env_kind, tyro.conf.arg(name="")],  # pyright: ignore
        algorithm: Annotated[str, tyro.conf.Positional] = "ecop",
        limits: tuple[float, ...] = (),
        cost: str | None = None,
        seeds: int | None = None,
        iterations: int | None = None,
        steps: int | None = None,
        horizon: int | None = None,
        episodes: int = 100,
        out: Path | None = None,
    ) -> dict[str, Any]:
        """Train at several limits; show reward and shadow price by the limit.

        The same command again goes on where it was stopped, and may have more limits.
        Options that are not given are those of 'ecop train'.

        Args:
            task: a task of 'ecop list', gym:ID, or module:function
            env: options of the task
            algorithm: an algorithm of 'ecop list'
            limits: of the cost that is varied, two or more
            cost: its name; default: the first. The others have the task's limits
            seeds: independent runs at each limit
            iterations: policy updates
            steps: environment steps per seed, in place of iterations
            horizon: steps per episode
            episodes: fresh ones of each policy, to measure reward and cost
            out: folder for a run per limit, frontier.json and frontier.png;
                default: runs/frontier-TASK-ALGORITHM

        """
        return locals()

    asked = parse(options, "frontier", argv)
    from ecop import budgets, files
    from ecop.cli.display import fit

    task, algorithm, episodes = (asked[x] for x in ("task", "algorithm", "episodes"))
    limits = budgets.ascending(asked["limits"])
    if episodes < 1:
        raise UserError(f"--episodes must be at least 1, not {episodes}.")
    stem = re.sub(r"[^\w.-]+", "-", f"{task}-{algorithm}")
    out = asked["out"] or Path("runs") / f"frontier-{stem}"
    training = ("seeds", "iterations", "steps", "horizon")
    plan = budgets.plan(
        task,
        algorithm,
        cost=asked["cost"],
        env_options=env_fields(asked["env"]),
        out=out,
        **{name: asked[name] for name in training if asked[name] is not None},
    )
    found = []
    for limit in limits:
        trained: list[Any] = []

        def work(limit: float = limit, trained: list[Any] = trained) -> Any:
            trained.append(plan.train(limit))
            return trained[0]

        print(f"{task} {algorithm}, {plan.cost_name} <= {limit:g}", flush=True)
        code = fit(out / budgets.folder(limit), work)
        if code:
            return code
        found.append(trained[0].evaluate(episodes))
        budgets.close(trained[0].learner.env)
    points = budgets.document(budgets.points(limits, found, plan.index))
    document = {"task": task, "algorithm": algorithm, "cost": plan.cost_name}
    files.write(
        out / "frontier.json", files.sealed({**document, "points": points}, indent=2)
    )
    from ecop.drawing.budgets import draw_budgets

    with files.replacing(out / "frontier.png") as fresh:
        draw_budgets(points, plan.cost_name, f"{algorithm} on {task}", fresh)
    print_points(points, plan.cost_name)
    print(f"{out / 'frontier.json'}\n{out / 'frontier.png'}")
    return 0


def print_points(points: list[dict[str, Any]], cost_name: str) -> None:
    """A table of one row per limit."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title=f"what the budget of '{cost_name}' buys, normal 95 % intervals")
    for name in ("limit", "cost", "policies within", "reward", "shadow price"):
        table.add_column(name, justify="right")
    for point in points:
        table.add_row(
            f"{point['limit']:g}",
            with_interval(point, "cost"),
            f"{100 * point['within']:.0f} %",
            with_interval(point, "reward"),
            with_interval(point, "price"),
        )
    width = None if sys.stdout.isatty() else 110
    Console(width=width).print(table)


def with_interval(point: dict[str, Any], name: str) -> str:
    """A mean and half of its interval, in digits that fit its size."""
    half = point[f"{name}_interval"]
    size = abs(half or point[name]) or 1.0
    digits = min(max(1 - math.floor(math.log10(size)), 0), 6)
    shown = "?" if half is None else f"{half:.{digits}f}"
    return f"{point[name]:.{digits}f} ± {shown}"
