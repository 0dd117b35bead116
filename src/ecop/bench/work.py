"""The process that runs one cell, and how it is started.

A cell runs in a process of its own with one thread for the numbers, so that its bits
depend neither on how many run beside it nor on who started it: the local pool, Ray or
`ecop bench repeat`. The process ends, with all it started, when its parent is gone:
its standard input is a pipe that nobody writes to. Progress leaves it as JSON lines.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from ecop.watching import Quiet

DONE, FAILED, STOPPED = 0, 1, 130  # exit codes
POINTS = 1000  # of a curve that are kept
SHARES = (0.1, 0.25, 0.5)  # of the steps, after which policies are evaluated as well
SHARE_EPISODES = 20  # of such an evaluation
SINGLE = "--xla_cpu_multi_thread_eigen=false"


class Outcome(NamedTuple):
    """How a cell's process ended."""

    code: int
    error: str = ""  # what it said last, if it did not end by itself


# In the parent


class Child:
    """A process that runs a cell."""

    def __init__(self, cell: dict[str, Any], folder: Path, *, clip: bool) -> None:
        job = json.dumps({"cell": cell, "folder": str(folder), "clip": clip})
        code = (
            f"import sys; sys.path[:] = {sys.path!r}; "
            "from ecop.bench.work import main; main()"
        )
        self.asked, self.ended = False, False
        self.log = tempfile.TemporaryFile()  # noqa: SIM115 - closed by wait
        self.process = subprocess.Popen(
            [sys.executable, "-c", code, job],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            start_new_session=True,
            env=environment(),
        )

    def wait(self, progress: Callable[[int, int], None]) -> Outcome:
        """Pass its progress on until it ends."""
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            for line in lines:
                try:
                    done, total = json.loads(line)
                except (ValueError, TypeError):  # something else printed a line
                    continue
                progress(done, total)
        code = self.process.wait()
        self.kill()
        self.log.seek(max(0, self.log.seek(0, os.SEEK_END) - 4000))
        said = self.log.read().decode(errors="replace")
        self.log.close()
        if self.asked and code < 0:  # before the training could save anything
            code = STOPPED
        word = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        return Outcome(code, f"The cell's process ended with {word}.\n{said}".rstrip())

    def stop(self) -> None:
        """Ask it to save and end."""
        self.asked = True
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it and all it started."""
        if self.ended:
            return
        self.ended = self.process.poll() is not None
        assert self.process.stdin is not None
        self.process.stdin.close()
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)


def environment() -> dict[str, str]:
    """The environment of a cell's process: one thread for the numbers."""
    flags = f"{os.environ.get('XLA_FLAGS', '')} {SINGLE}".strip()
    one = dict.fromkeys(("NPROC", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    return {**os.environ, **one, "XLA_FLAGS": flags}


# In the process of the cell


def main() -> None:
    """Run the cell given as JSON on the command line."""
    threading.Thread(target=end_with_parent, daemon=True).start()
    from ecop.api import Stopped
    from ecop.bench import results
    from ecop.bench.cells import describe, identity
    from ecop.files import locked

    job = json.loads(sys.argv[1])
    cell, folder = job["cell"], Path(job["folder"])
    name = identity(cell)
    try:
        (folder / "runs").mkdir(parents=True, exist_ok=True)
        with locked(folder / "runs" / f"{name}.lock", f"Cell {name}", wait=True):
            if not results.finished(folder, name):
                run_cell(cell, folder, clip=job["clip"], watch=Watch())
    except Stopped:
        sys.exit(STOPPED)
    except Exception as error:
        from ecop.runs import provenance

        record = {
            "id": name,
            "cell": cell,
            "error": f"{describe(cell)}: {error or type(error).__name__}",
            "traceback": traceback.format_exc(),
            **provenance(),
        }
        results.write(folder, "failed", name, record)
        sys.exit(FAILED)


def end_with_parent() -> None:
    """Kill this process group when the other end of standard input is closed."""
    while os.read(0, 1):
        pass
    os.killpg(0, signal.SIGKILL)


class Watch(Quiet):
    """Progress as JSON lines, and evaluations on the way.

    They are of fresh episodes, so training does not notice. A mark's is written before
    the training that passed it is saved: whoever goes on after a kill finds it, or
    passes the mark again. Marks are passed at the same iterations however often a run
    was cut: rounds end at the same ones.
    """

    last = 0.0

    def advanced(self, run: Any) -> None:
        """Say how far it is; evaluate if a mark is passed."""
        done = share_done(run)
        now = time.monotonic()
        if now - self.last > 0.5:
            self.last = now
            print(json.dumps([min(done, 1.0), 1.0]), flush=True)
        due = [x for x in SHARES if x <= done and not mark_file(run.path, x).exists()]
        if due:
            found = measured(run, SHARE_EPISODES)
            for share in due:
                write_mark(run.path, share, found)


def share_done(run: Any) -> float:
    """How much of its budget a run has used."""
    if run.config.train.iterations or not run.config.train.steps:
        return run.iteration / run.learner.iterations
    return int(run.states[0].steps) / run.config.train.steps


def mark_file(path: Path, share: float) -> Path:
    """Where the run folder keeps the evaluation at a share of the steps."""
    return path / f"evaluation-{100 * share:.0f}.json"


def write_mark(path: Path, share: float, found: dict[str, Any]) -> None:
    """Keep an evaluation."""
    from ecop import files

    files.write(mark_file(path, share), files.sealed({"share": share, **found}))


def read_marks(path: Path) -> list[dict[str, Any]]:
    """The evaluations that were kept; UserError if one is not as it was written."""
    from ecop import files
    from ecop.bench.results import Mark
    from ecop.errors import UserError

    marks = []
    for file in (mark_file(path, share) for share in SHARES):
        if file.exists():
            mark, intact = files.read(file, Mark)
            if not intact:
                raise UserError(f"'{file}' is damaged: its checksum does not match.")
            marks.append(mark)
    return marks


def measured(run: Any, episodes: int, *, deterministic: bool = False) -> dict[str, Any]:
    """Fresh episodes of a run's policy."""
    found = run.evaluate(episodes, deterministic=deterministic)
    return {
        "env_steps": int(run.states[0].steps),
        "reward": rounded(found.reward[0]),
        "costs": rounded(found.costs[0]),
        "failed": float(found.failed.mean()),
    }


def run_cell(cell: dict[str, Any], folder: Path, *, clip: bool, watch: Any) -> None:
    """Train, or go on with it, evaluate, and write the result."""
    from ecop.bench import results
    from ecop.bench.cells import identity
    from ecop.runs import provenance

    name = identity(cell)
    run = trained(cell, folder / "runs" / name, watch)
    start = time.perf_counter()
    episodes = cell["evaluation_episodes"]
    last = measured(run, episodes)
    document = {
        "id": name,
        "cell": cell,
        "costs": list(run.learner.spec.cost_names),
        "limits": run.metrics[-1]["limits"],
        "horizon": run.learner.spec.horizon,
        "env_steps": run.metrics[-1]["env_steps"],
        "curve": curve(run.metrics),
        "evaluation": last,
        "deterministic": measured(run, episodes, deterministic=True),
        "evaluations": [*read_marks(run.path), {"share": 1.0, **last}],
        "exact": exact(run.learner, run.states[0]),
        "clip": film_clip(run, folder / "clips" / f"{name}.gif") if clip else None,
        **provenance(),
    }
    spent = run.metrics[-1]["seconds"] + time.perf_counter() - start
    times = {"seconds": round(spent, 2), "start_up": run.metrics[0]["seconds"]}
    results.write(folder, "cells", name, document | times)
    (folder / "failed" / f"{name}.json").unlink(missing_ok=True)


def trained(cell: dict[str, Any], path: Path, watch: Any) -> Any:
    """The finished run of a cell, from its newest checkpoint or from the start."""
    from ecop import api, runs
    from ecop.bench.cells import run_config
    from ecop.errors import UserError
    from ecop.learning.options import values

    config = run_config(cell)
    if (path / "config.json").exists():
        try:
            refuse_other(config, runs.read_config(path))
            read_marks(path)
            run = api.resume(path, watch=watch)
            if not runs.lost_metrics(run.config, run.metrics, run.iteration):
                return run
        except UserError:  # not this cell's, no whole checkpoint, a damaged file
            pass
    shutil.rmtree(path, ignore_errors=True)
    return api.train(
        config.task,
        config.algorithm,
        env_options=config.env_options,
        out=path,
        watch=watch,
        **values(config.train),
    )


def refuse_other(config: Any, found: Any) -> None:
    """Refuse the run folder of another config; beta="auto" was found in the run."""
    import dataclasses

    from ecop.errors import UserError

    if getattr(config.algorithm, "beta", None) == "auto":
        algorithm = dataclasses.replace(found.algorithm, beta="auto")
        found = found._replace(algorithm=algorithm)
    if found != config:
        raise UserError("The run folder is of another config.")


def curve(metrics: list[dict[str, Any]]) -> dict[str, Any]:
    """Metrics of one seed by iteration, means over blocks if there are very many."""
    import numpy as np

    blocks = np.array_split(np.arange(len(metrics)), min(POINTS, len(metrics)))

    def means(field: str) -> Any:
        values = np.array([line[field] for line in metrics], float)
        return rounded(np.stack([values[block].mean(axis=0) for block in blocks]))

    return {
        **{
            name: [metrics[block[-1]][name] for block in blocks]
            for name in ("iteration", "env_steps")
        },
        **{name: means(name) for name in ("reward", "costs", "multipliers", "failed")},
    }


def rounded(x: Any) -> Any:
    """An array as nested lists of numbers with 7 digits, which float32 has."""
    import numpy as np

    flat = [float(f"{value:.7g}") for value in np.ravel(np.asarray(x, float))]
    return np.reshape(flat, np.shape(x)).tolist()


def exact(learner: Any, state: Any) -> dict[str, Any] | None:
    """A tabular task's optimum, and what the policy reaches without sampling.

    worst: the least reward that any policy has
    """
    from ecop.envs.tabular import TabularEnv
    from ecop.exact.learned import evaluate_learned
    from ecop.exact.lp import solve
    from ecop.exact.values import best_response

    env = learner.env
    if not isinstance(env, TabularEnv):
        return None
    optimum = solve(env.cmdp.with_limits(*learner.spec.limits))
    most, _, _ = best_response(env.cmdp, -env.cmdp.reward)
    ((value, costs),) = evaluate_learned(learner, [state])
    return {
        "worst": -most,
        "optimum": optimum.value,
        "optimal_costs": optimum.costs.tolist(),
        "value": float(value),
        "costs": [float(cost) for cost in costs],
    }


def film_clip(run: Any, file: Path) -> str:
    """Draw one episode; return why not, or nothing."""
    from ecop.drawing.film import draw_episode
    from ecop.errors import UserError

    file.parent.mkdir(parents=True, exist_ok=True)
    fresh = file.with_name(f".{os.getpid()}-{file.name}")
    try:
        draw_episode(run.learner, run.states[0], run.config.task, fresh)
    except UserError as error:
        fresh.unlink(missing_ok=True)
        return str(error)
    fresh.replace(file)
    return ""
