"""The library's front door: `train`, `resume`, `load`, and the `Run` they return."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from ecop import runs
from ecop.algorithms import ALGORITHMS
from ecop.algorithms.ecop import ECOP
from ecop.beta import search_beta
from ecop.config import RunConfig, algorithm_name, build, resolve
from ecop.errors import UserError, unknown
from ecop.evaluate import Evaluation, evaluate
from ecop.learning.options import values
from ecop.recipes import Preset
from ecop.rollout import Actor, collector, distribution
from ecop.simulators.pool import SimulatorError, SimulatorPool
from ecop.training import DISPATCH, Learner, TrainConfig, init_seeds, run_seeds, stack
from ecop.types import TrainState

CHECKPOINT_EVERY = 20  # iterations


class Diverged(RuntimeError):
    """A quantity became NaN or infinite; training stopped before using it."""


class Faulted(RuntimeError):
    """The simulator failed for good; the last whole iteration is saved in `run`."""

    def __init__(self, run: Run, error: SimulatorError) -> None:
        self.run = run
        how = f"Training stopped after iteration {run.iteration}."
        if run.path is not None:
            how += f" It is saved; go on with:\n  ecop resume {run.path}"
        super().__init__(f"{error}\n{how}")


class Stopped(KeyboardInterrupt):
    """Ctrl-C or SIGTERM: the iteration was finished and saved; `run` holds it."""

    def __init__(self, run: Run) -> None:
        self.run = run
        how = f"Stopped after iteration {run.iteration}."
        if run.path is not None:
            how += f" It is saved; go on with:\n  ecop resume {run.path}"
        super().__init__(how)


class Watch(Protocol):
    """Somebody who looks on while training runs."""

    def note(self, text: str) -> None:
        """One sentence about something out of the ordinary."""
        ...

    def progress(self, lines: list[dict[str, Any]], total: int) -> None:
        """The newest metrics of every seed; `total` iterations are planned."""
        ...

    def advanced(self, run: Run) -> None:
        """A few more iterations are done; they are not saved yet."""
        ...


class Quiet:
    """A watch that says nothing."""

    def note(self, text: str) -> None:
        """Ignore it."""

    def progress(self, lines: list[dict[str, Any]], total: int) -> None:
        """Ignore it."""

    def advanced(self, run: Run) -> None:
        """Ignore it."""


class Run:
    """A training run: its config, its policies, its metrics."""

    def __init__(
        self,
        config: RunConfig,
        learner: Learner,
        states: list[TrainState],
        metrics: list[dict[str, Any]],
        path: Path | None,
    ) -> None:
        self.config = config
        self.learner = learner
        self.states = states
        self.metrics = metrics
        self.path = path

    @property
    def iteration(self) -> int:
        """Iterations done."""
        return int(self.states[0].iteration)

    @property
    def finished(self) -> bool:
        """Whether all planned iterations, or steps, are done."""
        if self.learner.open_ended:
            steps = min(int(state.steps) for state in self.states)
            return steps >= self.config.train.steps
        return self.iteration >= self.learner.iterations

    def policy(
        self,
        observation: Any,
        h: int,
        *,
        seed: int = 0,
        key: jax.Array | None = None,
    ) -> np.ndarray:
        """Action at step `h` (0 .. H-1) for an observation [O] or several [N, O].

        The most likely action; one drawn from the policy if a JAX `key` is given. The
        costs were kept within their limits by the drawn actions. `seed` picks among
        the trained policies, 0 being the first.
        """
        spec = self.learner.spec
        x = np.asarray(observation, np.float32)
        if x.ndim not in (1, 2) or x.shape[-1] != spec.observation_size:
            raise UserError(
                f"Observations of {self.config.task} have {spec.observation_size} "
                f"entries; the shape given is {x.shape}."
            )
        if not 0 <= h < spec.horizon:
            raise UserError(f"The step must be 0 .. {spec.horizon - 1}, not {h}.")
        if seed not in range(len(self.states)):
            raise UserError(
                f"seed picks one of the {len(self.states)} trained policies: "
                f"0 .. {len(self.states) - 1}, not {seed}."
            )
        state = self.states[seed]
        actor = Actor(state.policy, state.normaliser)
        policy = self.learner.policy
        rows = jnp.asarray(np.atleast_2d(x))
        actions = distribution(policy, actor, rows, jnp.int32(h))
        if key is None:
            action = actions.mode()
        else:
            action = actions.sample(policy.noise(key, rows.shape[:1]))
        return np.asarray(action)[0] if x.ndim == 1 else np.asarray(action)

    def evaluate(
        self, episodes: int = 100, *, deterministic: bool = False
    ) -> Evaluation:
        """Run fresh episodes of every seed's policy.

        Actions are drawn, as in training; `deterministic` takes the most likely ones.
        """
        if episodes < 1:
            raise UserError(f"episodes must be at least 1, not {episodes}.")
        return evaluate(
            self.learner, self.states, episodes, deterministic=deterministic
        )


def train(
    task: Any,
    algorithm: Any = None,
    *,
    preset: Preset = "default",
    limits: Sequence[float] | None = None,
    env_options: dict[str, Any] | None = None,
    out: str | Path | None = None,
    watch: Watch | None = None,
    **options: Any,
) -> Run:
    """Train `algorithm` (default: e-COP), a name or its options, on a task.

    task: a name ("PointCircle", "gym:Pendulum-v1", "module:function"), or an
        environment, such as `ecop.from_gymnasium` makes
    preset: "paper" has the e-COP paper's hyperparameters in place of the defaults and
        of the task's recipe, for an algorithm given by name; `options` override them
    limits: one per cost of the task; math.inf switches a constraint off
    env_options: arguments for making a named task
    out: folder to write config, metrics and checkpoints to; without one the run lives
        in memory only
    options: fields of TrainConfig, such as seeds, iterations, episodes, policy
    """
    configure_jax()
    watch = watch or Quiet()
    algorithm = "ecop" if algorithm is None else algorithm
    name = algorithm if isinstance(algorithm, str) else algorithm_name(algorithm)
    if preset != "default" and name is not algorithm:
        raise UserError("A preset needs the algorithm's name, not its options.")
    refuse_misplaced(options, name)
    bounds = as_limits(limits)
    env, named = None, env_options or {}
    if not isinstance(task, str):
        env = task
        recipe = env.recipe if isinstance(env, SimulatorPool) else None
        task, named = recipe or (type(env).__name__, None)
        if recipe is not None:  # the name alone does not say how long an episode is
            options = {"horizon": env.spec.horizon} | options
            bounds = env.spec.limits if bounds is None and env.spec.enforced else bounds
    if bounds is not None:
        options = {"limits": bounds} | options
    found = resolve(task, name, preset, options)
    chosen = found.algorithm if name is algorithm else algorithm
    config = RunConfig(task, chosen, found.train, named)
    learner = build(config, env)
    notes: dict[str, Any] = {}
    path = None if out is None else Path(out)
    if path is not None:
        runs.refuse_existing(path)
    if isinstance(config.algorithm, ECOP) and config.algorithm.beta == "auto":
        beta, notes["beta_search"] = search_beta(learner, watch.note)
        config = config._replace(
            algorithm=dataclasses.replace(config.algorithm, beta=beta)
        )
        learner = dataclasses.replace(learner, algorithm=config.algorithm)
    if path is not None:
        runs.create(path, config, {"costs": learner.spec.cost_names, **notes})
    run = Run(config, learner, init_seeds(learner), [], path)
    _fit(run, watch)
    return run


def refuse_misplaced(options: dict[str, Any], algorithm: str) -> None:
    """Refuse options of training that are none; say where they belong, if anywhere."""
    known = values(TrainConfig())
    kind = ALGORITHMS.get(algorithm)
    for name in options:
        if kind is not None and name in values(kind()):
            raise UserError(
                f"{name} is an option of the algorithm: "
                f"ecop.train(task, ecop.{kind.__name__}({name}=...))."
            )
        if name not in known:
            raise UserError(unknown("option", name, sorted(known)))


def as_limits(limits: Any) -> tuple[float, ...] | None:
    """Limits as a tuple of numbers."""
    if limits is None:
        return None
    try:
        if isinstance(limits, str | dict):
            raise TypeError
        return tuple(float(limit) for limit in limits)
    except (TypeError, ValueError):
        raise UserError(
            "limits must be a list with one number for each cost of the task, in its "
            f"order, such as limits=[10.0], not {limits!r}."
        ) from None


def load(path: str | Path, *, env: Any = None, watch: Watch | None = None) -> Run:
    """Load a run folder: its newest intact checkpoint and its metrics.

    env: the environment, for a run that was trained on one given as an object
    """
    configure_jax()
    path = Path(path)
    config = runs.read_config(path)
    learner = build(config, env)
    states, damaged = runs.load_checkpoint(path, learner)
    for sentence in damaged:
        (watch or Quiet()).note(f"{sentence} Falling back to the one before it.")
    if states is None:
        states = init_seeds(learner)
    iteration = int(states[0].iteration)
    lines = [m for m in runs.read_metrics(path) if m["iteration"] <= iteration]
    return Run(config, learner, states, lines, path)


def resume(
    path: str | Path,
    *,
    iterations: int | None = None,
    env: Any = None,
    watch: Watch | None = None,
) -> Run:
    """Go on with a run where its last checkpoint is, to the bit.

    iterations: a new total; default: what the run was started with
    env: the environment, for a run that was trained on one given as an object
    """
    run = load(path, env=env, watch=watch)
    assert run.path is not None
    if iterations is not None:
        if iterations < run.iteration:
            raise UserError(
                f"The run has {run.iteration} iterations already; ask for more than "
                f"that, not {iterations}."
            )
        run.config = run.config._replace(
            train=dataclasses.replace(run.config.train, iterations=iterations)
        )
        run.learner = dataclasses.replace(run.learner, config=run.config.train)
        runs.rewrite_train(run.path, run.config.train)
    run.metrics = runs.cut_metrics(run.path, run.iteration)
    _fit(run, watch or Quiet())
    return run


def _fit(run: Run, watch: Watch) -> None:
    total = run.learner.iterations
    spent = max((line["seconds"] for line in run.metrics), default=0.0)
    start = time.perf_counter() - spent
    counts = plan(run)
    if not run.finished:
        watch.note("Compiling; this takes seconds and is kept for the next time.")
    with stop_requests() as stopping, saved_on_fault(run):
        for part in run_seeds(run.learner, run.states, counts):
            seconds = time.perf_counter() - start
            _refuse_nonfinite(run, part.before, part.metrics)
            lines = runs.rows(run.learner, run.iteration, part.metrics, seconds)
            run.metrics += lines
            run.states = part.after
            watch.progress(lines[-len(run.states) :], total)
            watch.advanced(run)
            if run.path is not None:
                runs.append_metrics(run.path, lines)
                due = run.iteration % CHECKPOINT_EVERY == 0 or run.finished
                if due or stopping.is_set():
                    runs.save_checkpoint(run.path, run.states)
            if stopping.is_set() and not run.finished:
                raise Stopped(run)


def plan(run: Run) -> Iterator[int]:
    """Sizes of the calls until the run has finished, cut at every checkpoint."""
    done, total = run.iteration, run.learner.iterations
    while not run.finished if run.learner.open_ended else done < total:
        to_checkpoint = CHECKPOINT_EVERY - done % CHECKPOINT_EVERY
        count = min(DISPATCH, to_checkpoint, max(total - done, 1))
        count = 1 if run.learner.open_ended else count
        yield count
        done += count


def _refuse_nonfinite(
    run: Run, before: list[TrainState], metrics: list[dict[str, np.ndarray]]
) -> None:
    """Stop at the first NaN or infinity; keep the state before it and its batch."""
    for seed, part in enumerate(metrics):
        bad = {
            name: int(np.argmin(np.isfinite(value.reshape(len(value), -1)).all(axis=1)))
            for name, value in part.items()
            if not np.isfinite(value).all()
        }
        if not bad:
            continue
        first = min(bad.values())
        names = ", ".join(name for name, index in bad.items() if index == first)
        number = run.config.train.first_seed + seed
        iteration = run.iteration + first + 1
        message = (
            f"Training stopped: {names} of seed {number} became NaN or infinite in "
            f"iteration {iteration}."
        )
        if run.path is not None:
            runs.save_checkpoint(run.path, before)
            state = before[seed]
            for _ in range(first):
                state = jax.jit(run.learner.iteration)(state)[0]
            actor = Actor(state.policy, state.normaliser)
            collect = collector(
                run.learner.env, run.learner.policy, run.learner.episodes_now(state)
            )
            key = run.learner.keys(state)[:1]
            episodes = collect(stack([actor]), key)
            name = f"bad_batch_seed{number}_iteration{iteration}"
            file = runs.save_episodes(run.path, name, episodes)
            message += (
                f" Its batch is in '{file}'; the last good checkpoint is iteration "
                f"{run.iteration}."
            )
        raise Diverged(message)


@contextlib.contextmanager
def saved_on_fault(run: Run) -> Iterator[None]:
    """Save the last whole iteration if the simulator fails for good."""
    try:
        yield
    except SimulatorError as error:
        if run.path is not None:
            runs.save_checkpoint(run.path, run.states)
        raise Faulted(run, error) from error


@contextlib.contextmanager
def stop_requests() -> Iterator[threading.Event]:
    """Turn Ctrl-C and SIGTERM into a flag, so that the iteration can finish."""
    stopping = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stopping
        return
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {n: signal.signal(n, lambda *_: stopping.set()) for n in numbers}
    try:
        yield stopping
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def configure_jax() -> None:
    """Keep compiled programs in the user's cache folder, unless JAX has one set."""
    if jax.config.values["jax_compilation_cache_dir"] is None:
        home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        folder = Path(home) / "ecop" / "jax"
        jax.config.update("jax_compilation_cache_dir", str(folder))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)
