"""`ecop render`: animation of an episode."""

from pathlib import Path

from ecop.cli.commands import load, parse


def render_command(argv: list[str]) -> int:
    """Parse the options and animate an episode of a run."""
    return parse(render, "render", argv)


def render(
    run: Path,
    /,
    *,
    seed: int = 0,
    out: Path | None = None,
    sumo: Path | None = None,
    trust: bool = False,
) -> int:
    """Animate one fresh episode of a run's policy.

    Args:
        run: run folder
        seed: which of the trained policies, 0 being the first
        out: GIF or MP4 to write; default: RUN/episode.gif
        sumo: folder for a replay that opens in sumo-gui (Grid and Bottleneck)
        trust: run the code that the folder names, if its task is none of the library's

    """
    file = out or run / "episode.gif"
    load(run, trust=trust).render(file, seed=seed, sumo=sumo)
    if sumo:
        print(f"sumo-gui -c {sumo / 'replay.sumocfg'}")
    print(file)
    return 0
