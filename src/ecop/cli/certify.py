"""`ecop certify`: the best policy of a run that is within the limits, with proof."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from ecop.cli.commands import load, parse


def certify_command(argv: list[str]) -> int:
    """Parse the options and certify a run."""
    return parse(certify, "certify", argv)


def certify(
    run: Path,
    /,
    *,
    confidence: float = 0.95,
    limits: tuple[float, ...] | None = None,
    bounds: tuple[float, ...] | None = None,
    episodes: int = 10_000,
    deterministic: bool = False,
    out: Path | None = None,
    trust: bool = False,
) -> int:
    """Find the best policy of a run whose mean costs are shown to be within the limits.

    Draws fresh episodes of all seeds and saved checkpoints until it is clear, writes a
    certificate and says in one sentence what it holds. The exit code is 0 only if there
    is such a policy.

    Args:
        run: run folder
        confidence: that all verdicts are right, the choice among policies included
        limits: one per cost; default: those of the run
        bounds: the most that an episode can cost, one per cost; default: what the task
            declares
        episodes: at most so many of each policy
        deterministic: the most likely actions in place of drawn ones
        out: file to write; default: RUN/certificate.json
        trust: run the code that the folder names, if its task is none of the library's

    """
    from ecop import files
    from ecop.runs import provenance
    from ecop.watching import Quiet

    class Lines(Quiet):
        def note(self, text: str) -> None:
            print(text, flush=True)

    loaded = load(run, trust=trust)
    found = loaded.certify(
        confidence,
        limits=limits,
        bounds=bounds,
        episodes=episodes,
        deterministic=deterministic,
        watch=Lines(),
    )
    document = {"task": loaded.config.task, **found.document(), **provenance()}
    file = out or run / "certificate.json"
    files.write(file, files.sealed(document, indent=2))
    print_candidates(document)
    print(f"{found.sentence}\n{file}")
    return 0 if found.verdict == "within" else 1


def print_candidates(document: dict[str, Any]) -> None:
    """A table of one row per policy and cost."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title=f"{100 * document['confidence']:g} % confidence, all together")
    for name in ("seed", "iteration", "verdict", "episodes", "reward"):
        table.add_column(name, justify="right")
    table.add_column("cost")
    for name in ("mean", "at least", "at most", "limit"):
        table.add_column(name, justify="right")
    for entry in document["candidates"]:
        row = [str(entry[x]) for x in ("seed", "iteration", "verdict", "episodes")]
        row.append(f"{entry['reward']:.2f}")
        for cost in entry["costs"]:
            numbers = (cost[x] for x in ("mean", "at_least", "at_most", "limit"))
            table.add_row(*row, cost["name"], *(f"{x:.4g}" for x in numbers))
            row = [""] * 5
    width = None if sys.stdout.isatty() else 110
    Console(width=width).print(table)
