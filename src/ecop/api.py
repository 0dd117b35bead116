"""The library's front door: `train`, `resume`, `load`, and the `Run` they return."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from safetensors import SafetensorError

from ecop import files, runs
from ecop.algorithms import ALGORITHMS
from ecop.algorithms.ecop import ECOP
from ecop.beta import search_beta
from ecop.certify import Certificate, certify
from ecop.config import RunConfig, algorithm_name, build, refuse_code, resolve
from ecop.errors import DiskError, Diverged, UserError, unknown
from ecop.evaluate import Evaluation, evaluate, nonfinite
from ecop.learning.options import values
from ecop.player import Memory, Player, to_bytes
from ecop.recipes import Preset
from ecop.rollout import Actor, collector, distribution, exporter, recall
from ecop.showing import table_html, table_text
from ecop.simulators.forms import plain
from ecop.simulators.pool import SimulatorError, SimulatorPool
from ecop.simulators.where import On, Where
from ecop.training import (
    DISPATCH,
    Learner,
    Round,
    TrainConfig,
    init_seeds,
    run_seeds,
    stack,
)
from ecop.types import TrainState
from ecop.warm import shape_of, warm_states
from ecop.watching import Watch, watch_of
from ecop.watching.compiling import heard

if TYPE_CHECKING:
    from ecop.drawing.curves import Curves
    from ecop.drawing.film import Clip

CHECKPOINT_EVERY = 20  # iterations


class Faulted(RuntimeError):
    """Simulator, disk or a watch failed; `run` holds the last whole iteration."""

    def __init__(self, run: Run, error: Exception) -> None:
        self.run = run
        how = f"Training stopped after iteration {run.iteration}."
        if isinstance(error, DiskError):
            how += f" The checkpoints before it are whole; make room and {go_on(run)}"
        elif run.path is not None:
            how += f" It is saved; {go_on(run)}"
        known = isinstance(error, DiskError | SimulatorError)
        what = error if known else f"A watch raised {type(error).__name__}: {error}"
        super().__init__(f"{what}\n{how}")


class Stopped(KeyboardInterrupt):
    """Ctrl-C or a signal: the iteration was finished and saved; `run` holds it."""

    def __init__(self, run: Run) -> None:
        self.run = run
        how = f"Stopped after iteration {run.iteration}."
        if run.path is not None:
            how += f" It is saved; {go_on(run)}"
        super().__init__(how)


def go_on(run: Run) -> str:
    """The command that goes on with a run."""
    trust = " --trust" if ":" in run.config.task else ""
    return f"go on with:\n  ecop resume {run.path}{trust}"


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
        self.stopped: str | None = None  # why a watch ended training, if one did
        self._acting: tuple[TrainState, Player] | None = None

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

        Vectors in the library's form, computed by JAX; `act` is for environments. A
        policy with a memory needs all observations [h + 1, O] of its episode.

        The most likely action; one drawn from the policy if a JAX `key` is given. The
        costs were kept within their limits by the drawn actions. `seed` picks among
        the trained policies, 0 being the first.
        """
        spec = self.learner.spec
        x = np.asarray(observation, np.float32)
        if spec.image is not None and x.shape[-3:] == spec.image:
            x = x.reshape(*x.shape[:-3], -1)
        if x.ndim not in (1, 2) or x.shape[-1] != spec.observation_size:
            raise UserError(
                f"Observations of {self.config.task} have {spec.observation_size} "
                f"entries; the shape given is {x.shape}."
            )
        if not 0 <= h < spec.horizon:
            raise UserError(f"The step must be 0 .. {spec.horizon - 1}, not {h}.")
        state = self.state(seed)
        actor = Actor(state.policy, state.normaliser)
        policy = self.learner.policy
        rows = jnp.asarray(np.atleast_2d(x))
        if policy.encoder is not None and policy.encoder.remembers:
            if len(rows) != h + 1:
                raise UserError(
                    f"The policy remembers its episode: at step {h} give the "
                    f"observations of steps 0 .. {h}, [{h + 1}, "
                    f"{spec.observation_size}], not {x.shape}."
                )
            actions = jax.tree.map(lambda y: y[0, -1:], recall(policy, actor, rows))
            rows, x = rows[-1:], x.reshape(-1)
        else:
            actions = distribution(policy, actor, rows, jnp.int32(h))
        if key is None:
            action = actions.mode()
        else:
            action = actions.sample(policy.noise(key, rows.shape[:1]))
        return np.asarray(action)[0] if x.ndim == 1 else np.asarray(action)

    def state(self, seed: int) -> TrainState:
        """What training has made of a seed, 0 being the first."""
        if seed not in range(len(self.states)):
            raise UserError(
                f"seed picks one of the {len(self.states)} trained policies: "
                f"0 .. {len(self.states) - 1}, not {seed}."
            )
        return self.states[seed]

    def player(self, seed: int = 0) -> Player:
        """A trained policy in NumPy, which acts by itself."""
        state = self.state(seed)
        if nonfinite(state):
            raise Diverged(
                f"The policy of seed {seed} holds NaN or infinity; train again with "
                "smaller steps."
            )
        spec = self.learner.spec
        actor = Actor(state.policy, state.normaliser)
        policy, spread = exporter(self.learner.policy)(actor)
        forms = getattr(self.learner.env, "forms", None)
        return Player(
            self.config.task,
            spec.horizon,
            policy,
            np.atleast_2d(spread),
            forms or plain(spec.observation_size, spec.action),
            Memory(),
        )

    def act(
        self,
        observation: Any,
        h: int,
        *,
        seed: int = 0,
        rng: np.random.Generator | None = None,
    ) -> Any:
        """The action for `env.step` at step `h` (0 .. H-1), from its raw observation.

        Observations and actions are those of the Gymnasium environment: Dict and other
        spaces, bounds, starts. The most likely action; one drawn from the policy, as in
        training, if a NumPy generator is given. A policy with a memory plays one
        episode at a time, step by step from 0.
        """
        state = self.state(seed)
        if self._acting is None or self._acting[0] is not state:
            self._acting = state, self.player(seed)
        return self._acting[1].act(observation, h, rng=rng)

    def export(self, file: str | Path, *, seed: int = 0) -> Path:
        """Write a trained policy for use without this library (docs/deploy.md).

        file: ends in .npz (NumPy plays it, `ecop.player`), .onnx or .stablehlo (JAX)
        """
        file, player = Path(file), self.player(seed)
        if file.suffix == ".npz":
            files.write(file, to_bytes(player))
        elif file.suffix == ".onnx":
            from ecop.onnx_file import to_onnx

            files.write(file, to_onnx(player))
        elif file.suffix == ".stablehlo":
            from ecop.stablehlo_file import to_stablehlo

            actor = Actor(self.states[seed].policy, self.states[seed].normaliser)
            form = player.forms.action
            files.write(file, to_stablehlo(self.learner.policy, actor, form))
        else:
            raise UserError(
                f"The file must end in .npz, .onnx or .stablehlo, not '{file.name}'."
            )
        return file

    def plot(
        self,
        file: str | Path | None = None,
        *,
        x: Literal["iterations", "episodes", "steps", "seconds"] = "iterations",
    ) -> Curves:
        """Learning curves: a figure, which notebooks show, and a picture if asked for.

        file: ends in .png, .svg or .pdf
        """
        from ecop.drawing.curves import Series, draw_curves

        title = f"{algorithm_name(self.config.algorithm)} on {self.config.task}"
        if not self.metrics:
            raise UserError("The run has no metrics yet; nothing can be plotted.")
        series = Series("", self.metrics, self.learner.spec.cost_names)
        figure = draw_curves([series], title, x)
        if file is not None:
            if Path(file).suffix.lower() not in (".png", ".svg", ".pdf"):
                raise UserError(f"'{file}' must end in .png, .svg or .pdf.")
            with files.replacing(Path(file)) as fresh:
                figure.savefig(fresh, dpi=130)
        return figure

    def render(
        self,
        file: str | Path | None = None,
        *,
        seed: int = 0,
        sumo: str | Path | None = None,
    ) -> Clip:
        """An animation of a fresh episode, which notebooks show.

        file: ends in .gif or .mp4
        seed: which of the trained policies, 0 being the first
        sumo: folder for a replay that opens in sumo-gui (Grid and Bottleneck)
        """
        from ecop.drawing.film import clip

        return clip(
            self.learner,
            self.state(seed),
            self.config.task,
            None if file is None else Path(file),
            None if sumo is None else Path(sumo),
        )

    def __repr__(self) -> str:
        where = "" if self.path is None else f", '{self.path}'"
        rows = [
            (name, value if limit is None else f"{value} / {limit:g}")
            for name, value, limit in self._newest()
        ]
        return table_text(f"<Run {self._title()}{where}>", rows)

    def _repr_html_(self) -> str:
        rows = [
            [escape(name), value, "" if limit is None else f"{limit:g}"]
            for name, value, limit in self._newest()
        ]
        below = "" if self.path is None else str(self.path)
        header = ("last iteration, mean over seeds", "", "limit")
        return table_html(self._title(), header, rows, below)

    def _title(self) -> str:
        count = len(self.states)
        return (
            f"{self.config.task} {algorithm_name(self.config.algorithm)}: iteration "
            f"{self.iteration}/{self.learner.iterations}, {count} "
            f"seed{'s' * (count > 1)}"
        )

    def _newest(self) -> list[tuple[str, str, float | None]]:
        """Reward and costs of the last iteration, means over seeds, with limits."""
        lines = self.metrics[-len(self.states) :]
        if not lines:
            return []
        rows: list[tuple[str, str, float | None]] = []
        rewards = [line["reward"] for line in lines]
        rows.append(("reward", f"{np.mean(rewards):.2f}", None))
        for i, name in enumerate(self.learner.spec.cost_names):
            costs = [line["costs"][i] for line in lines]
            rows.append((name, f"{np.mean(costs):.2f}", lines[-1]["limits"][i]))
        return rows

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

    def certify(
        self,
        confidence: float = 0.95,
        *,
        limits: Sequence[float] | None = None,
        bounds: Sequence[float] | None = None,
        episodes: int = 10_000,
        deterministic: bool = False,
        watch: Watch | None = None,
    ) -> Certificate:
        """Find the best policy whose mean costs are within the limits, with proof.

        The candidates are the policies of all seeds, at the checkpoints that the
        folder still has. Fresh episodes are drawn until it is clear.

        confidence: that all verdicts are right, the choice among policies included
        limits: one per cost; default: those of the run
        bounds: the most that an episode can cost, one per cost; default: the task's
        episodes: at most so many of each policy
        deterministic: the most likely actions in place of drawn ones
        """
        watch = watch_of(watch, "certify")
        saved = [] if self.path is None else runs.checkpoints(self.path)
        every = [self.states]
        for folder in saved:
            if int(folder.name) == self.iteration:
                continue
            try:
                every.append(runs.read_checkpoint(folder, self.learner))
            except (UserError, SafetensorError) as error:
                watch.note(f"Checkpoint '{folder}' is left out: {error}")
        first = self.config.train.first_seed
        return certify(
            self.learner,
            [(first + s, state) for states in every for s, state in enumerate(states)],
            confidence=confidence,
            limits=as_limits(limits),
            bounds=as_limits(bounds),
            episodes=episodes,
            deterministic=deterministic,
            note=watch.note,
        )


def train(
    task: Any,
    algorithm: Any = None,
    *,
    preset: Preset = "default",
    limits: Sequence[float] | None = None,
    env_options: dict[str, Any] | None = None,
    out: str | Path | None = None,
    start: Run | str | Path | None = None,
    on: On = "local",
    address: str | None = None,
    actors: int | None = None,
    watch: Any = "progress",
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
    start: a run of the same task, or its folder, whose policies, critics and statistics
        of observations this one begins with; limits and constants may be others
    on, address, actors: where simulators play, see `Where`; no result depends on it
    watch: who looks on: "progress", "tensorboard", "wandb", a watch of your own
        (`ecop.watching`), a list of these, or None
    options: fields of TrainConfig, such as seeds, iterations, episodes, policy
    """
    configure_jax()
    where = Where(on, address, actors)
    algorithm = "ecop" if algorithm is None else algorithm
    name = algorithm if isinstance(algorithm, str) else algorithm_name(algorithm)
    if preset != "default" and name is not algorithm:
        raise UserError("A preset needs the algorithm's name, not its options.")
    refuse_misplaced(options, name)
    bounds = as_limits(limits)
    env, named = None, env_options or {}
    if not isinstance(task, str):
        env, recipe = task, None
        task, named = type(env).__name__, None
        if isinstance(env, SimulatorPool):
            recipe = env.recipe
            task, named = recipe or (env.name, None)
        if recipe is not None:  # the name alone does not say how long an episode is
            options = {"horizon": env.spec.horizon} | options
            bounds = env.spec.limits if bounds is None and not env.unknown else bounds
    if bounds is not None:
        options = {"limits": bounds} | options
    if start is not None:
        options = shape_of(start) | options
    found = resolve(task, name, preset, options)
    chosen = found.algorithm if name is algorithm else algorithm
    config = RunConfig(task, chosen, found.train, named)
    learner = build(config, env)
    path = None if out is None else Path(out)
    watch = watch_of(watch, f"{task} {name}")
    with (
        stop_requests() as stopping,
        writer(path, watch, new=True),
        where.playing(learner.env),
    ):
        run = _begin(config, learner, path, watch, start)
        _fit(run, watch, stopping)
    return run


def _begin(
    config: RunConfig, learner: Learner, path: Path | None, watch: Watch, start: Any
) -> Run:
    notes: dict[str, Any] = {}
    if isinstance(config.algorithm, ECOP) and config.algorithm.beta == "auto":
        beta, notes["beta_search"] = search_beta(learner, watch.note)
        config = config._replace(
            algorithm=dataclasses.replace(config.algorithm, beta=beta)
        )
        learner = dataclasses.replace(learner, algorithm=config.algorithm)
    warm = None if start is None else warm_states(config, learner, start)
    run = Run(config, learner, warm or init_seeds(learner), [], path)
    watch.began(run)
    if path is not None:
        if warm:  # first, so that no kill leaves a run that would begin without it
            (path / "checkpoints").mkdir(exist_ok=True)
            runs.save_checkpoint(path, warm)
            notes["start"] = str(start.path if isinstance(start, Run) else start)
        runs.create(path, config, {"costs": learner.spec.cost_names, **notes})
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


@contextlib.contextmanager
def writer(path: Path | None, watch: Watch, *, new: bool = False) -> Iterator[None]:
    """Be the only writer of a run folder, if there is one."""
    if path is None:
        yield
        return
    with runs.writing(path, new=new) as held:
        if not held:
            watch.note("This disk has no locks: let no other process write to the run.")
        yield


def load(
    path: str | Path,
    *,
    env: Any = None,
    trust: bool = False,
    watch: Any = "progress",
) -> Run:
    """Load a run folder: its newest intact checkpoint and its metrics.

    env: the environment, for a run that was trained on one given as an object
    trust: import and run the code that the folder names, if its task is none of the
        library's; without it such a folder is refused, unless `env` is given
    watch: who hears of damaged files; None: nobody
    """
    configure_jax()
    path = Path(path)
    watch = watch_of(watch, str(path))
    config = runs.read_config(path)
    if env is None and not trust:
        refuse_code(config, path, "--trust (in Python trust=True, or env=... again)")
    learner = build(config, env)
    states, damaged = runs.load_checkpoint(path, learner)
    for sentence in damaged:
        watch.note(f"{sentence} Falling back to the one before it.")
    if states is None:
        states = init_seeds(learner)
    done = int(states[0].iteration)
    lines = [line for line in runs.read_metrics(path) if line["iteration"] <= done]
    lost = runs.lost_metrics(config, lines, done)
    if lost:
        watch.note(lost)
    return Run(config, learner, states, lines, path)


def resume(
    path: str | Path,
    *,
    iterations: int | None = None,
    limits: Sequence[float] | None = None,
    env: Any = None,
    trust: bool = False,
    on: On = "local",
    address: str | None = None,
    actors: int | None = None,
    watch: Any = "progress",
) -> Run:
    """Go on with a run where its last checkpoint is, to the bit.

    iterations: a new total; default: what the run was started with
    limits: other limits from here on, one per cost; all else, multipliers too, goes on
        from where it is. `train(..., start=run)` is a new run with other limits
    env, trust: as for `load`
    on, address, actors: as for `train`, whatever they were before
    watch: as for `train`
    """
    path, where = Path(path), Where(on, address, actors)
    watch = watch_of(watch, str(path))
    with stop_requests() as stopping, writer(path, watch):
        run = load(path, env=env, trust=trust, watch=watch)
        if iterations is not None:
            if iterations < run.iteration:
                raise UserError(
                    f"The run has {run.iteration} iterations already; ask for more "
                    f"than that, not {iterations}."
                )
            run.config = run.config._replace(
                train=dataclasses.replace(run.config.train, iterations=iterations)
            )
            run.learner = dataclasses.replace(run.learner, config=run.config.train)
        if limits is not None:
            _relimit(run, as_limits(limits) or (), watch)
        if iterations is not None or limits is not None:
            runs.rewrite_train(path, run.config.train)
        runs.drop_old(path, run.iteration)
        runs.cut_metrics(path, run.metrics)
        watch.began(run)
        with where.playing(run.learner.env):
            _fit(run, watch, stopping)
    return run


def _relimit(run: Run, limits: tuple[float, ...], watch: Watch) -> None:
    """Go on with other limits."""
    old, spec = run.learner.spec, run.learner.spec.with_limits(limits)
    if old.enforced != spec.enforced:
        raise UserError(
            "A limit can be changed in a run, but not switched on or off: there is a "
            "critic for each that is on; begin a new run with ecop.train(..., "
            "start=run, limits=...) (--start)."
        )
    train = dataclasses.replace(run.config.train, limits=limits)
    run.config = run.config._replace(train=train)
    run.learner = dataclasses.replace(run.learner, spec=spec, config=train)
    before, after = (", ".join(f"{x:g}" for x in s.limits) for s in (old, spec))
    watch.note(
        f"From iteration {run.iteration + 1} on the limits are {after} in place of "
        f"{before}; policy, critics and multipliers go on from where they are."
    )


def _fit(run: Run, watch: Watch, stopping: threading.Event) -> None:
    try:
        _train(run, watch, stopping)
    except BaseException:
        with contextlib.suppress(Exception):  # the first one counts
            watch.ended(run)
        raise
    try:
        watch.ended(run)
    except Exception as error:
        raise Faulted(run, error) from error


def _train(run: Run, watch: Watch, stopping: threading.Event) -> None:
    total = run.learner.iterations
    spent = max((line["seconds"] for line in run.metrics), default=0.0)
    start = time.perf_counter() - spent
    if stopping.is_set() and not run.finished:
        raise Stopped(run)
    words = "Compiling; this takes seconds and is kept for the next time."
    with saved_on_fault(run), heard(lambda: watch.note(words)):
        for part in run_seeds(run.learner, run.states, plan(run)):
            seconds = time.perf_counter() - start
            _refuse_nonfinite(run, part)
            lines = runs.rows(run.learner, run.iteration, part, seconds)
            run.metrics += lines
            run.states = part.after
            told = _tell(run, watch, lines, total)
            if run.path is not None:
                runs.append_metrics(run.path, lines)
                due = run.iteration % CHECKPOINT_EVERY == 0 or run.finished
                if due or told or stopping.is_set():
                    runs.save_checkpoint(run.path, run.states)
            if isinstance(told, Exception):
                raise Faulted(run, told) from told
            if stopping.is_set() and not run.finished:
                raise Stopped(run)
            if told and not run.finished:
                run.stopped = told
                watch.note(told)
                return


def _tell(
    run: Run, watch: Watch, lines: list[dict[str, Any]], total: int
) -> str | Exception | None:
    """A watch's reason to stop here, or what it raised: the run is saved first."""
    try:
        watch.progress(lines[-len(run.states) :], total)
        return watch.advanced(run)
    except (DiskError, Diverged, SimulatorError):
        raise
    except Exception as error:
        return error


def plan(run: Run) -> Iterator[int]:
    """Sizes of the calls until the run has finished, cut at every checkpoint."""
    done, total = run.iteration, run.learner.iterations
    while not run.finished if run.learner.open_ended else done < total:
        to_checkpoint = CHECKPOINT_EVERY - done % CHECKPOINT_EVERY
        count = min(DISPATCH, to_checkpoint, max(total - done, 1))
        count = 1 if run.learner.open_ended else count
        yield count
        done += count


def _refuse_nonfinite(run: Run, part: Round) -> None:
    """Stop at the first NaN or infinity; keep the state before it and its batch."""
    for seed, (metrics, after) in enumerate(zip(part.metrics, part.after, strict=True)):
        bad = {
            name: int(np.argmin(np.isfinite(value.reshape(len(value), -1)).all(axis=1)))
            for name, value in metrics.items()
            if not np.isfinite(value).all()
        }
        # A state that is not finite shows in the metrics later, or never.
        sick = nonfinite(after)
        if not bad and not sick:
            continue
        first = min(bad.values(), default=part.count - 1)
        names = [name for name, index in bad.items() if index == first] or sick
        number = run.config.train.first_seed + seed
        iteration = run.iteration + first + 1
        message = (
            f"Training stopped: {', '.join(names)} of seed {number} became NaN or "
            f"infinite in iteration {iteration}{'' if bad else ' or just before'}."
        )
        if run.path is not None:
            runs.save_checkpoint(run.path, part.before)
            state = part.before[seed]
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
    except DiskError as error:
        raise Faulted(run, error) from error
    except SimulatorError as error:
        if run.path is not None:
            runs.save_checkpoint(run.path, run.states)
        raise Faulted(run, error) from error


@contextlib.contextmanager
def stop_requests() -> Iterator[threading.Event]:
    """Turn Ctrl-C, SIGTERM and SIGHUP into a flag, so that the iteration can finish.

    A second one, while the flag is set, is a KeyboardInterrupt.
    """
    stopping = threading.Event()

    def stop(number: int, frame: Any) -> None:
        if stopping.is_set():
            raise KeyboardInterrupt
        stopping.set()

    if threading.current_thread() is not threading.main_thread():
        yield stopping
        return
    numbers = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is signal.SIG_DFL:  # not under nohup
        numbers.append(signal.SIGHUP)
    before = {n: signal.signal(n, stop) for n in numbers}
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
