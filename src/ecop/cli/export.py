"""`ecop export`: a trained policy as a file for use without this library."""

from pathlib import Path

from ecop.cli.commands import load, parse


def export_command(argv: list[str]) -> int:
    """Parse the options and write the policy."""
    return parse(export, "export", argv)


def export(run: Path, file: Path, /, *, seed: int = 0, trust: bool = False) -> int:
    """Write a run's policy as a file for use without this library.

    Args:
        run: run folder
        file: POLICY.npz, which NumPy plays (ecop.player), POLICY.onnx or
            POLICY.stablehlo (JAX)
        seed: which of the trained policies, 0 being the first
        trust: run the code that the folder names, if its task is none of the library's

    """
    print(load(run, trust=trust).export(file, seed=seed))
    return 0
