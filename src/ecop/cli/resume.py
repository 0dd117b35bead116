"""`ecop resume`: go on with a stopped run."""

from pathlib import Path

from ecop.cli.commands import parse


def resume_command(argv: list[str]) -> int:
    """Parse the options and go on with a run."""
    return parse(resume, "resume", argv)


def resume(
    run: Path,
    /,
    *,
    iterations: int | None = None,
    limits: tuple[float, ...] | None = None,
    trust: bool = False,
) -> int:
    """Go on with a stopped run, to the bit.

    Args:
        run: run folder
        iterations: new total number of iterations; default: the run's own
        limits: other limits from here on, one per cost; multipliers go on from where
            they are ('ecop train TASK --start RUN' begins a new run)
        trust: run the code that the folder names, if its task is none of the library's

    """
    from ecop import api
    from ecop.cli.display import fit

    given = {"iterations": iterations, "limits": limits, "trust": trust}
    return fit(run, lambda: api.resume(run, **given))
