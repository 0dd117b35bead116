"""The command line: one file per command; JAX is imported by those that compute."""

import os
import sys

from ecop.cli.bench import bench_command
from ecop.cli.certify import certify_command
from ecop.cli.check import check_command
from ecop.cli.commands import dispatch
from ecop.cli.evaluate import evaluate_command
from ecop.cli.exact import exact_command
from ecop.cli.export import export_command
from ecop.cli.frontier import frontier_command
from ecop.cli.plot import plot_command
from ecop.cli.render import render_command
from ecop.cli.report import report_command
from ecop.cli.resume import resume_command
from ecop.cli.show import show_command
from ecop.cli.tasks import list_command
from ecop.cli.train import train_command
from ecop.cli.watch import watch_command
from ecop.errors import DiskError, Diverged, UserError

USAGE = """\
usage: ecop COMMAND ...

Constrained reinforcement learning with a finite horizon.

commands:
  list        tasks and algorithms
  show        the options of a task and an algorithm, and where each comes from
  train       train an algorithm on a task: ecop train PointCircle --seeds 5
  resume      go on with a stopped run, to the bit
  evaluate    fresh episodes of a run: reward, costs, feasibility
  certify     the best policy within the limits, with proof: ecop certify RUN
  frontier    what relaxing a limit buys: ecop frontier TASK --limits 5 10 20
  plot        learning curves of one or several runs
  watch       a page on this machine that follows a run while it is trained
  render      animation of an episode
  export      a trained policy as a file: .npz for NumPy, .onnx
  exact       tabular tasks against their exact optimum
  bench       every table and figure of the paper: ecop bench run smoke
  report      results of the benchmark as one page: ecop report RESULTS
  check       does an environment keep the contract? ecop check gym:Pendulum-v1

'ecop COMMAND --help' explains a command and all its options. Exit codes: 0 done, 1 it
failed on the way, 2 a mistake in what was asked for, 130 stopped.
"""

COMMANDS = {
    "list": list_command,
    "show": show_command,
    "train": train_command,
    "resume": resume_command,
    "evaluate": evaluate_command,
    "certify": certify_command,
    "frontier": frontier_command,
    "plot": plot_command,
    "watch": watch_command,
    "render": render_command,
    "export": export_command,
    "exact": exact_command,
    "bench": bench_command,
    "report": report_command,
    "check": check_command,
}


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
    except (DiskError, Diverged) as error:
        print(f"ecop: {error}", file=sys.stderr)
        code = 1
    except MemoryError:
        print("ecop: There is not enough memory for this.", file=sys.stderr)
        code = 1
    except BrokenPipeError:  # whoever read our words has gone
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - until the end
        code = 1
    except OSError as error:
        where = f"'{error.filename}'" if error.filename else "a file"
        print(f"ecop: {where} cannot be used: {error.strerror}.", file=sys.stderr)
        code = 1
    except KeyboardInterrupt:
        code = 130
    sys.exit(code)
