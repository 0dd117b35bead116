"""`ecop evaluate`: fresh episodes of a run."""

import sys
from pathlib import Path
from typing import Any

from ecop.cli.commands import load, parse


def evaluate_command(argv: list[str]) -> int:
    """Parse the options and evaluate a run."""
    return parse(evaluate, "evaluate", argv)


def evaluate(
    run: Path,
    /,
    *,
    episodes: int = 100,
    deterministic: bool = False,
    trust: bool = False,
) -> int:
    """Run fresh episodes of a run's policies.

    Args:
        run: run folder
        episodes: episodes per seed
        deterministic: the most likely actions in place of drawn ones
        trust: run the code that the folder names, if its task is none of the library's

    """
    loaded = load(run, trust=trust)
    found = loaded.evaluate(episodes, deterministic=deterministic)
    print_evaluation(found.summary())
    return 0


def print_evaluation(summary: dict[str, Any]) -> None:
    """A table of one row per quantity."""
    from rich.console import Console
    from rich.table import Table

    table = Table(
        title=f"{summary['seeds']} seeds x {summary['episodes']} fresh episodes, "
        "mean and normal 95 % interval"
    )
    for name in (
        "",
        "mean",
        "limit",
        "feasible policies",
        "episodes within",
        "5 % / 50 % / 95 %",
    ):
        table.add_column(name, justify="left" if not name else "right")
    reward = summary["reward"]
    table.add_row("reward", f"{reward['mean']:.2f} ± {reward['interval']:.2f}")
    for entry in summary["constraints"]:
        table.add_row(
            f"cost: {entry['name']}",
            f"{entry['mean']:.2f} ± {entry['interval']:.2f}",
            f"{entry['limit']:g}",
            f"{100 * entry['feasible_policies']:.0f} %",
            f"{100 * entry['feasible_episodes']:.0f} %",
            " / ".join(f"{value:g}" for value in entry["quantiles"].values()),
        )
    table.add_row("failed episodes", f"{100 * summary['failed']:.1f} %")
    width = None if sys.stdout.isatty() else 110
    Console(width=width).print(table)
