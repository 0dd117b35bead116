"""`ecop resume`: go on with a stopped run."""

from pathlib import Path

from ecop.cli.commands import parse


def resume_command(argv: list[str]) -> int:
    """Parse the options and go on with a run."""
    return parse(resume, "resume", argv)


def resume(run: Path, /, *, iterations: int | None = None) -> int:
    """Go on with a stopped run, to the bit.

    Args:
        run: run folder
        iterations: new total number of iterations; default: the run's own

    """
    from ecop import api
    from ecop.cli.display import fit

    return fit(str(run), run, lambda w: api.resume(run, iterations=iterations, watch=w))
