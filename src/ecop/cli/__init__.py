"""The command line. JAX is imported only by the commands that compute."""

import dataclasses
import importlib
import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from ecop.cli.commands import dispatch, parse
from ecop.envs import ENVS, OPTIONS
from ecop.errors import UserError, unknown

USAGE = """\
usage: ecop COMMAND ...

Constrained reinforcement learning with a finite horizon.

commands:
  list        tasks and algorithms
  train       train an algorithm on a task: ecop train PointCircle --seeds 5
  resume      go on with a stopped run, to the bit
  evaluate    fresh episodes of a run: reward, costs, feasibility
  plot        learning curves of a run
  render      animation of an episode
  exact       tabular tasks against their exact optimum
  bench       every table and figure of the paper: ecop bench run smoke
  report      results of the benchmark as one page: ecop report RESULTS
  check       does an environment keep the contract? ecop check gym:Pendulum-v1

'ecop COMMAND --help' explains a command and all its options.
"""

Run = Annotated[Path, tyro.conf.Positional]


@dataclass(frozen=True)
class GymnasiumOptions:
    """Where the costs of a Gymnasium environment are, and where it runs."""

    costs: tuple[str, ...] | None = None
    """keys of info, "tuple" (6-tuple step), or module:function; default: found out"""
    workers: int = 0
    """processes to run the episodes in; 0: this one"""
    timeout: float = 60.0
    """seconds after which a step that has not returned counts as hung"""


@dataclass(frozen=True)
class NoOptions:
    """Most tasks of the library have none."""


def env_options(task: str) -> type:
    """The class of a task's own options."""
    if ":" in task:
        return GymnasiumOptions
    if task not in OPTIONS:
        return NoOptions
    module, _, name = OPTIONS[task].partition(":")
    return getattr(importlib.import_module(module), name)


def env_fields(options: Any) -> dict[str, Any]:
    """The options that are not the defaults, for `ecop.envs.make`, as JSON has them."""
    given = {
        f.name: getattr(options, f.name)
        for f in dataclasses.fields(options)
        if getattr(options, f.name) != f.default
    }
    return given | ({"costs": list(given["costs"])} if "costs" in given else {})


def main(argv: list[str] | None = None) -> None:
    """Entry point of `ecop`."""
    argv = sys.argv[1:] if argv is None else argv
    if argv[:1] == ["--version"]:
        from ecop import __version__

        print(__version__)
        sys.exit(0)
    try:
        code = dispatch(argv, COMMANDS, USAGE)
    except UserError as error:
        print(f"ecop: {error}", file=sys.stderr)
        code = 2
    sys.exit(code)


def list_command(argv: list[str]) -> int:
    """Print tasks and algorithms."""

    def options() -> None:
        """List tasks (with their costs and limits) and algorithms."""

    parse(options, "list", argv)
    from ecop.algorithms import ALGORITHMS
    from ecop.envs import make

    print("tasks")
    for name in ENVS:
        try:
            spec = make(name).spec
        except UserError as missing:
            print(f"  {name:14} {missing}")
            continue
        limits = ", ".join(f"{c.name} <= {c.limit:g}" for c in spec.constraints)
        print(f"  {name:14} H = {spec.horizon}, {limits}")
    print("algorithms")
    for name, kind in ALGORITHMS.items():
        summary = (sys.modules[kind.__module__].__doc__ or "").split("\n")[0]
        print(f"  {name:14} {summary}")
    return 0


def train_command(argv: list[str]) -> int:
    """Parse `TASK [ALGORITHM] options`, train, say where the results are."""
    if not argv or argv[0].startswith("-"):
        if "-h" in argv or "--help" in argv:
            argv = [next(iter(ENVS)), *argv]
        else:
            raise UserError(f"Which task? ecop train TASK; known: {', '.join(ENVS)}.")
    task, argv = argv[0], argv[1:]
    if task not in ENVS and ":" not in task:
        raise UserError(unknown("task", task, ENVS))
    name = "ecop"
    if argv and not argv[0].startswith("-"):
        name, argv = argv[0], argv[1:]

    from ecop.algorithms import ALGORITHMS
    from ecop.recipes import Kind, preset
    from ecop.training import TrainConfig

    if name not in ALGORITHMS:
        raise UserError(unknown("algorithm", name, ALGORITHMS))
    kind = ALGORITHMS[name]
    values = preset(preset_option(argv), name)
    usual_train, usual_algorithm = TrainConfig(**values.train), kind(**values.options)
    env_kind = env_options(task)

    def options(
        env: Annotated[env_kind, tyro.conf.arg(name="")],  # pyright: ignore
        train: Annotated[TrainConfig, tyro.conf.arg(name="")] = usual_train,
        algorithm: Annotated[kind, tyro.conf.arg(name="")] = usual_algorithm,  # pyright: ignore
        out: Path | None = None,
        preset: Kind = "default",
    ) -> tuple[TrainConfig, Any, Any, Path | None]:
        """Train an algorithm (default: ecop) on a task; see 'ecop list' for both.

        Args:
            train: how to train
            algorithm: options of the algorithm
            env: options of the task
            out: folder for config, metrics and checkpoints;
                default: runs/TASK-ALGORITHM-N
            preset: values in place of the defaults: "paper" has those of the e-COP
                paper's table, "tuned" the outcome of a search on PointCircle;
                other options still override them

        """
        return train, algorithm, env, out

    train, algorithm, env, out = parse(options, "train TASK [ALGORITHM]", argv)
    from ecop import api

    stem = re.sub(r"[^\w.-]+", "-", task)
    out = out or free_folder(Path("runs"), f"{stem}-{name}")
    fields = {f.name: getattr(train, f.name) for f in dataclasses.fields(train)}
    return fit(
        f"{task} {name}",
        out,
        lambda w: api.train(
            task, algorithm, env_options=env_fields(env), out=out, watch=w, **fields
        ),
    )


def preset_option(argv: list[str]) -> Any:
    """The value of --preset, which decides the defaults of the other options."""
    for i, word in enumerate(argv):
        if word == "--preset":
            return argv[i + 1] if i + 1 < len(argv) else ""
        if word.startswith("--preset="):
            return word.removeprefix("--preset=")
    return "default"


def resume_command(argv: list[str]) -> int:
    """Go on with a run."""

    @dataclass
    class Resume:
        """Go on with a stopped run, to the bit."""

        run: Run
        """run folder"""
        iterations: int | None = None
        """new total number of iterations; default: the run's own"""

    options = parse(Resume, "resume", argv)
    from ecop import api

    return fit(
        str(options.run),
        options.run,
        lambda w: api.resume(options.run, iterations=options.iterations, watch=w),
    )


def fit(title: str, folder: Path, work: Any) -> int:
    """Train under a display; print the result, or how to go on."""
    from ecop.api import Diverged, Faulted, Stopped
    from ecop.cli.display import LiveWatch, watch

    shown = watch(title)
    try:
        if isinstance(shown, LiveWatch):
            with shown:
                work(shown)
        else:
            work(shown)
    except (Diverged, Faulted) as error:
        print(f"ecop: {error}", file=sys.stderr)
        return 1
    except Stopped as stop:
        print(stop)
        return 130
    print(f"Done: {folder}\n  ecop evaluate {folder}\n  ecop plot {folder}")
    return 0


def evaluate_command(argv: list[str]) -> int:
    """Print reward, costs and feasibility of fresh episodes."""

    @dataclass
    class Evaluate:
        """Run fresh episodes of a run's policies."""

        run: Run
        """run folder"""
        episodes: int = 100
        """episodes per seed"""

    options = parse(Evaluate, "evaluate", argv)
    run = load(options.run)
    evaluation = run.evaluate(options.episodes)
    print_evaluation(evaluation.summary())
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


def plot_command(argv: list[str]) -> int:
    """Draw the learning curves."""

    @dataclass
    class Plot:
        """Draw reward and cost curves of a run."""

        run: Run
        """run folder"""
        out: Path | None = None
        """picture to write; default: RUN/curves.png"""

    options = parse(Plot, "plot", argv)
    from ecop import runs
    from ecop.config import algorithm_name
    from ecop.drawing.curves import plot_metrics
    from ecop.envs import make

    config = runs.read_config(options.run)
    metrics = runs.read_metrics(options.run)
    if not metrics:
        raise UserError(f"'{options.run}' has no metrics yet.")
    file = options.out or options.run / "curves.png"
    title = f"{algorithm_name(config.algorithm)} on {config.task}"
    names = runs.read_document(options.run).get("costs")
    plot_metrics(metrics, names or make(config.task).spec.cost_names, title, file)
    print(file)
    return 0


def render_command(argv: list[str]) -> int:
    """Animate an episode."""

    @dataclass
    class Render:
        """Animate one fresh episode of a run's policy."""

        run: Run
        """run folder"""
        seed: int = 0
        """which of the trained policies, 0 being the first"""
        out: Path | None = None
        """GIF or MP4 to write; default: RUN/episode.gif"""
        sumo: Path | None = None
        """folder for a replay that opens in sumo-gui (Grid and Bottleneck)"""

    options = parse(Render, "render", argv)
    run = load(options.run)
    if not 0 <= options.seed < len(run.states):
        raise UserError(f"--seed must be 0 .. {len(run.states) - 1}.")
    file = options.out or options.run / "episode.gif"
    if file.suffix.lower() not in (".gif", ".mp4"):
        raise UserError(f"--out must end in .gif or .mp4, not '{file.name}'.")
    from ecop.drawing.film import draw_episode

    state = run.states[options.seed]
    draw_episode(run.learner, state, run.config.task, file, options.sumo)
    if options.sumo:
        print(f"sumo-gui -c {options.sumo / 'replay.sumocfg'}")
    print(file)
    return 0


def exact_command(argv: list[str]) -> int:
    """Commands about tabular tasks, whose optimum is known."""
    from ecop.cli.exact import command

    return command(argv)


def bench_command(argv: list[str]) -> int:
    """Commands of the benchmark."""
    from ecop.cli.bench import command

    return command(argv)


def report_command(argv: list[str]) -> int:
    """Show results of the benchmark."""
    from ecop.cli.bench import report_command as report

    return report(argv)


def check_command(argv: list[str]) -> int:
    """Check an environment; code 1 if something is wrong."""

    @dataclass(frozen=True)
    class Check:
        """Does an environment keep the contract? What is wrong, where, how to mend it.

        ENV is a task, gym:ID, or module:function.
        """

        env: Annotated[str, tyro.conf.Positional]
        """task, gym:ID, or module:function"""
        gymnasium: Annotated[GymnasiumOptions, tyro.conf.arg(name="")]
        """options of Gymnasium environments"""
        horizon: int | None = None
        """steps per episode; default: the environment's"""
        limits: tuple[float, ...] | None = None
        """one limit per cost"""
        episodes: int = 8
        """episodes to play"""

    options = parse(Check, "check", argv)
    if options.episodes < 2:
        raise UserError(f"--episodes must be at least 2, not {options.episodes}.")
    fields: dict[str, Any] = {}
    if ":" in options.env:
        fields = env_fields(options.gymnasium) | {"limits": options.limits}
    elif options.env not in ENVS:
        raise UserError(unknown("task", options.env, ENVS))
    if options.horizon is not None:
        fields["horizon"] = options.horizon
    from ecop.interop.check import check_cmdp

    report = check_cmdp(options.env, episodes=options.episodes, **fields)
    print(report)
    return 0 if report.healthy else 1


def load(path: Path) -> Any:
    """Load a run; sentences about damaged checkpoints go to standard error."""
    from ecop import api

    class Stderr(api.Quiet):
        def note(self, text: str) -> None:
            print(f"ecop: {text}", file=sys.stderr)

    return api.load(path, watch=Stderr())


def free_folder(parent: Path, stem: str) -> Path:
    """The first parent/stem-N that does not exist."""
    number = 1
    while os.path.lexists(parent / f"{stem}-{number}"):
        number += 1
    return parent / f"{stem}-{number}"


COMMANDS = {
    "list": list_command,
    "train": train_command,
    "resume": resume_command,
    "evaluate": evaluate_command,
    "plot": plot_command,
    "render": render_command,
    "exact": exact_command,
    "bench": bench_command,
    "report": report_command,
    "check": check_command,
}

if __name__ == "__main__":
    main()
