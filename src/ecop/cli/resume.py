"""`ecop resume`: go on with a stopped run."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import tyro

from ecop.cli.commands import parse
from ecop.simulators.where import Where


def resume_command(argv: list[str]) -> int:
    """Parse the options and go on with a run."""

    def resume(
        run: Path,
        /,
        *,
        iterations: int | None = None,
        limits: tuple[float, ...] | None = None,
        trust: bool = False,
        where: Annotated[Where, tyro.conf.arg(name="")] = Where(),  # noqa: B008
    ) -> tuple[Path, dict[str, Any]]:
        """Go on with a stopped run, to the bit.

        Args:
            run: run folder
            iterations: new total number of iterations; default: the run's own
            limits: other limits from here on, one per cost; multipliers go on from
                where they are ('ecop train TASK --start RUN' begins a new run)
            trust: run the code that the folder names, if its task is none of the
                library's
            where: where simulators play; no result depends on it

        """
        given = {"iterations": iterations, "limits": limits, "trust": trust}
        return run, given | asdict(where)

    run, options = parse(resume, "resume", argv)
    from ecop import api
    from ecop.cli.display import fit

    return fit(run, lambda: api.resume(run, **options))
