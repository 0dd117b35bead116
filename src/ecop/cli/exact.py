"""`ecop exact frontier`: the price of a limit on tabular tasks."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import tyro

from ecop.cli.commands import dispatch, parse
from ecop.errors import UserError, unknown

USAGE = """\
usage: ecop exact COMMAND ...

Tabular problems, whose optimum is known.

commands:
  frontier    optimal reward against the limit, its slope, and what was reached:
              ecop exact frontier Inventory

'ecop bench run exact' trains on all of them and 'ecop report' compares the result with
the optimum.

'ecop exact COMMAND --help' explains a command and all its options.
"""


def exact_command(argv: list[str]) -> int:
    """Run one command; return the exit code."""
    return dispatch(argv, COMMANDS, USAGE)


def frontier_command(argv: list[str]) -> int:
    """Draw the frontier of a task with the points that were reached."""

    def options(
        task: Annotated[str, tyro.conf.Positional],
        results: Path | None = None,
        out: Path | None = None,
    ) -> tuple[str, Path | None, Path | None]:
        """Draw the optimal reward against the limit, and its slope.

        Args:
            task: a tabular task, such as Inventory
            results: folder of 'ecop bench run frontier' (or exact), whose policies are
                shown too, evaluated exactly
            out: picture to write; default: TASK-frontier.png

        """
        return task, results, out

    task, folder, out = parse(options, "exact frontier", argv)
    from ecop.exact.problems import PROBLEMS

    if task not in PROBLEMS:
        raise UserError(unknown("tabular task", task, PROBLEMS))
    import numpy as np

    from ecop.bench import results
    from ecop.exact.lp import frontier, smallest_cost
    from ecop.exact.plots import draw_frontier
    from ecop.exact.values import backward_induction

    cmdp = PROBLEMS[task]()
    least, most = smallest_cost(cmdp), float(backward_induction(cmdp).costs[0])
    line = frontier(cmdp, np.linspace(least, 1.1 * most - 0.1 * least, 45))
    found = [] if folder is None else list(results.read(folder).cells.values())
    reached: dict[str, list[tuple[float, float]]] = {}
    for document in found:
        if document["cell"]["task"] == task and document.get("exact"):
            point = document["exact"]["costs"][0], document["exact"]["value"]
            reached.setdefault(document["cell"]["algorithm"]["name"], []).append(point)
    points = [(*np.array(p).T, name) for name, p in reached.items()]
    file = out or Path(f"{task}-frontier.png")
    draw_frontier(line, file, title=task, cost_name=cmdp.cost_names[0], points=points)
    print(file)
    return 0


COMMANDS = {"frontier": frontier_command}
