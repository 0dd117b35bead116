"""`check_cmdp`: does an environment keep the contract? A report of what is wrong.

Every check plays the same few episodes with random actions, so it says what was seen,
not what is proven.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ecop.errors import UserError
from ecop.interop.tasks import from_gymnasium, in_order
from ecop.rollout import episode_keys
from ecop.simulators.acting import script
from ecop.simulators.pool import SimulatorError, SimulatorPool
from ecop.types import (
    Box,
    HostEnv,
    HostStep,
    HostTask,
    JaxEnv,
    MultiDiscrete,
    Part,
    Playing,
    Spec,
)

EPISODES = 8


class Finding(NamedTuple):
    """One remark: what is wrong, where, how to mend it."""

    problem: bool  # otherwise only something to think about
    what: str
    where: str
    mend: str


@dataclass
class Report:
    """The result of a check."""

    name: str
    spec: Spec | None = None
    findings: list[Finding] = field(default_factory=list)
    passed: list[str] = field(default_factory=list)
    facts: list[str] = field(default_factory=list)

    @property
    def healthy(self) -> bool:
        """Whether no problem was found."""
        return not any(finding.problem for finding in self.findings)

    def note(
        self, good: bool, name: str, what: str, where: str, mend: str, problem=True
    ) -> None:
        """Record a check: passed, or a finding."""
        if good:
            self.passed.append(name)
        else:
            self.findings.append(Finding(problem, what, where, mend))

    def __str__(self) -> str:
        lines = [f"{self.name}: {'healthy' if self.healthy else 'NOT healthy'}"]
        lines += [f"  ok       {name}" for name in self.passed]
        for finding in self.findings:
            lines.append(
                f"  {'PROBLEM' if finding.problem else 'note   '}  {finding.what}"
            )
            lines.append(f"           where: {finding.where}")
            lines.append(f"           mend:  {finding.mend}")
        lines += [f"  seen     {fact}" for fact in self.facts]
        return "\n".join(lines)


class Seen(NamedTuple):
    """Episodes as they came."""

    observation: np.ndarray  # [B, H, O] before each step
    reward: np.ndarray  # [B, H]
    costs: np.ndarray  # [B, H, C]
    failed: np.ndarray  # [B, H] bool


def check_cmdp(env: Any, *, episodes: int = EPISODES, **options: Any) -> Report:
    """Check a task, a host environment, or a Gymnasium one; return the report.

    env: a name as for `ecop.train`, an object with the library's interface, a Gymnasium
        environment or a function that makes one
    options: for making it (horizon, costs, limits, workers, ...)
    """
    name = env if isinstance(env, str) else type(env).__name__
    report = Report(name)
    limits = options.pop("limits", None)
    try:
        made = resolve(env, options)
        spec = made.spec if limits is None else limited(made, limits)
    except UserError as error:
        report.note(False, "", str(error), "making the environment", "see above")
        return report
    report.spec = spec
    check_spec(report, spec)
    if not report.healthy:
        return report
    actions = random_actions(spec, episodes)
    play = player(made)
    seeds = np.arange(1, episodes + 1, dtype=np.uint32)
    try:
        seen = play(seeds, actions)
        again = play_anew(env, options, made)(seeds, actions)
        other = play(seeds + np.uint32(1000), actions)
    except (SimulatorError, UserError) as error:
        cause = error.__cause__ if isinstance(error.__cause__, UserError) else error
        report.note(
            *(False, "", str(cause).strip(), "an episode of random actions"),
            "make the environment run with any action of its space",
        )
        return report
    finally:
        if isinstance(made, HostTask) and made is not env:
            made.close()
    check_shapes(report, spec, seen)
    if report.healthy:
        check_episodes(report, spec, seen, again, other)
        check_clock(report, spec, seen)
        check_costs(report, spec, seen)
        if isinstance(made, SimulatorPool):
            check_ends(report, made)
            check_known(report, made, limits)
    return report


def limited(made: JaxEnv | HostTask, limits: Any) -> Spec:
    """The spec of a task with other limits, in order or by name."""
    if isinstance(made, SimulatorPool) and made.unknown and not made.spec.constraints:
        raise UserError(made.unknown)
    return made.spec.with_limits(in_order(limits, made.spec.cost_names))


def check_known(report: Report, env: SimulatorPool, limits: Any) -> None:
    """What training will ask for: costs, limits, a network for images."""
    if env.unknown is not None and limits is None:
        missing = not env.spec.constraints
        where = "costs" if missing else "limits"
        mend = "say where it is" if missing else "fine for ppo, which needs none"
        report.findings.append(Finding(missing, env.unknown, where, mend))
    size = " x ".join(map(str, env.spec.image or ()))
    report.note(
        env.spec.image is None,
        "observations are no images",
        f"observations are images, {size}",
        "the observation space",
        "train with --network cnn (network='cnn')",
        problem=False,
    )


def play_anew(
    env: Any, options: dict[str, Any], made: JaxEnv | HostTask
) -> Callable[[np.ndarray, np.ndarray], Seen]:
    """A player of the environment made once more, where that can be done.

    What an environment keeps from one episode to the next shows only there.
    """
    if made is env or not isinstance(made, HostTask):
        return player(made)

    def play(seeds: np.ndarray, actions: np.ndarray) -> Seen:
        fresh = resolve(env, options)
        assert isinstance(fresh, HostTask)
        try:
            return play_host(fresh, seeds, actions)
        finally:
            fresh.close()

    return play


def resolve(env: Any, options: dict[str, Any]) -> JaxEnv | HostTask:
    """Anything that can be checked, with the library's interface."""
    from ecop.envs import make

    if isinstance(env, str):
        return make(env, **options)
    if isinstance(getattr(env, "spec", None), Spec):
        return env
    if callable(env):
        return from_gymnasium(env, **options)
    return from_gymnasium(lambda: copy.deepcopy(env), **options)


def player(env: JaxEnv | HostTask) -> Callable[[np.ndarray, np.ndarray], Seen]:
    """A function (seeds [B], actions [H, B, ...]) -> Seen."""
    if isinstance(env, HostTask):
        return lambda seeds, actions: play_host(env, seeds, actions)

    @jax.jit
    def play(seeds: jax.Array, actions: jax.Array) -> tuple[jax.Array, ...]:
        starts, keys = jax.vmap(lambda s: episode_keys(s, len(actions)))(seeds)

        def step(carry: Any, x: Any) -> Any:
            state, observation = carry
            out = jax.vmap(env.step)(*(x[0], state, x[1]))
            seen = (observation, out.reward, out.costs, out.failed)
            return (out.state, out.observation), seen

        start = jax.vmap(env.reset)(starts)
        _, seen = lax.scan(step, start, (jnp.moveaxis(keys, 1, 0), actions))
        return tuple(jnp.moveaxis(part, 0, 1) for part in seen)

    return lambda seeds, actions: Seen(*map(np.asarray, play(seeds, actions)))


def play_host(env: HostTask, seeds: np.ndarray, actions: np.ndarray) -> Seen:
    """Episodes with given actions of either kind of host task."""
    if isinstance(env, Playing):
        return play_parts(env, seeds, actions)
    return play_steps(env, seeds, actions)


def play_parts(env: Playing, seeds: np.ndarray, actions: np.ndarray) -> Seen:
    """Episodes with given actions of a task that plays them by itself."""
    pairs = zip(seeds.tolist(), np.moveaxis(actions, 1, 0), strict=True)
    parts = [Part(seed, 0, rows) for seed, rows in pairs]
    records = env.play([script(env.spec)], parts)
    size = len(seeds), env.spec.horizon
    seen = Seen(
        np.zeros((*size, env.spec.observation_size), np.float32),
        np.zeros(size, np.float32),
        np.zeros((*size, len(env.spec.constraints)), np.float32),
        np.zeros(size, bool),
    )
    for n, record in enumerate(records):
        steps = len(record.reward)
        seen.observation[n, :steps] = record.observation
        seen.reward[n, :steps] = record.reward
        seen.costs[n, :steps] = record.costs
        seen.failed[n, steps - 1 :] = record.ended > 0
    return seen


def play_steps(env: HostEnv, seeds: np.ndarray, actions: np.ndarray) -> Seen:
    """Episodes with given actions of a task that is stepped in batches."""
    observations = [env.reset(seeds)]
    steps: list[HostStep] = []
    for action in actions:
        steps.append(env.step(action))
        observations.append(steps[-1].observation)
        if steps[-1].failed.all():
            break
    for name, parts in (
        ("observations", observations),
        *zip(HostStep._fields[1:], list(zip(*steps, strict=True))[1:], strict=True),
    ):
        kinds = {(np.shape(part), np.asarray(part).dtype) for part in parts}
        if len(kinds) > 1:
            raise UserError(
                f"Shape or type of {name} changes: {sorted(map(str, kinds))}"
            )
    columns = [observations[:-1], *list(zip(*steps, strict=True))[1:]]
    rest = len(actions) - len(steps)  # nothing happens in it
    return Seen(*(np.stack([*c, *c[-1:] * rest], axis=1) for c in columns))


def random_actions(spec: Spec, episodes: int) -> np.ndarray:
    """Uniform actions [H, B, ...] of a fixed generator."""
    rng = np.random.default_rng(0)
    shape = (spec.horizon, episodes)
    if isinstance(spec.action, Box):
        return rng.uniform(-1, 1, (*shape, spec.action.size)).astype(np.float32)
    if isinstance(spec.action, MultiDiscrete):
        sizes = spec.action.sizes
        return rng.integers(sizes, size=(*shape, len(sizes)), dtype=np.int32)
    return rng.integers(spec.action.n, size=shape, dtype=np.int32)


def check_spec(report: Report, spec: Spec) -> None:
    """Names and limits."""
    names = spec.cost_names
    report.note(
        len(set(names)) == len(names) and all(names),
        "cost names are unique",
        f"cost names are empty or not unique: {list(names)}",
        "spec.constraints",
        "give each cost a name of its own",
    )
    report.note(
        not any(np.isnan(limit) or limit < 0 for limit in spec.limits),
        "limits are zero or more",
        f"a limit is negative or NaN: {list(spec.limits)}",
        "spec.constraints",
        "give limits >= 0, or inf to switch a constraint off",
    )


def check_shapes(report: Report, spec: Spec, seen: Seen) -> None:
    """Shapes of what came out."""
    wanted = {
        "observation": (spec.observation_size,),
        "reward": (),
        "costs": (len(spec.constraints),),
        "failed": (),
    }
    wrong = [
        f"{name} has shape {getattr(seen, name).shape[2:]}, the spec says {shape}"
        for name, shape in wanted.items()
        if getattr(seen, name).shape[2:] != shape
    ]
    report.note(
        not wrong,
        "shapes and types are stable",
        "; ".join(wrong),
        "reset and step",
        "make the spec and the arrays agree",
    )


def check_episodes(
    report: Report, spec: Spec, seen: Seen, again: Seen, other: Seen
) -> None:
    """Seeds, finite numbers, ends."""
    alive = living(seen)
    differs = [
        name
        for name, a, b in zip(Seen._fields, seen, again, strict=True)
        if not np.array_equal(a, b, equal_nan=True)
    ]
    report.note(
        not differs,
        "equal seeds and actions give equal episodes",
        f"the same seed and actions gave another {', '.join(differs)}",
        "reset(seed) and step",
        "draw every random number from a generator made of the seed, in reset",
    )
    report.note(
        not np.array_equal(seen.observation, other.observation),
        "another seed gives another episode",
        "all seeds give the same episodes",
        "reset(seed)",
        "fine if the task is deterministic; otherwise use the seed",
        problem=False,
    )
    for name in ("observation", "reward", "costs"):
        bad = ~np.isfinite(getattr(seen, name)[:, : spec.horizon])
        bad = bad.reshape(*bad.shape[:2], -1).any(axis=2) & alive
        step = int(np.argwhere(bad)[0, 1]) if bad.any() else 0
        report.note(
            not bad.any(),
            f"{name} finite",
            f"{name} is NaN or infinite in {100 * bad.mean():.1f} % of the steps",
            f"first at step {step}",
            "clip or scale it where it is computed",
        )
    last = alive[:, -1]
    if last.any():
        report.passed.append(f"{int(last.sum())} of {len(last)} episodes last H steps")
    else:
        length = alive.sum(axis=1).mean()
        report.findings.append(
            Finding(
                False,
                f"no random episode lasts the horizon: {length:.1f} of {spec.horizon} "
                "steps on average",
                "the early end (failed, terminated or truncated)",
                "costs stop at an early end, so ending early can be a way to be cheap: "
                "shorten the horizon, or charge for the end",
            )
        )


def living(seen: Seen) -> np.ndarray:
    """Steps that were taken [B, H]: all up to the first failure."""
    ended = np.cumsum(seen.failed, axis=1) > 0
    return np.concatenate([np.ones((len(ended), 1), bool), ~ended[:, :-1]], axis=1)


def check_clock(report: Report, spec: Spec, seen: Seen) -> None:
    """An observation entry that is linear in time: the policy has a clock already."""
    alive = living(seen)
    h = np.broadcast_to(np.arange(spec.horizon), alive.shape)[alive].astype(np.float64)
    clocks = []
    for i in range(spec.observation_size if spec.horizon > 2 else 0):
        x = seen.observation[:, : spec.horizon, i][alive].astype(np.float64)
        slope, offset = np.polyfit(h, x, 1)
        error = np.abs(slope * h + offset - x).max()
        if np.ptp(x) > 0 and error <= 1e-4 * np.ptp(x):
            clocks.append(i)
    report.note(
        not clocks,
        "no clock in the observation",
        f"observation entries {clocks} are linear in time",
        "the observation",
        "leave them out (no TimeAwareObservation): policy and critics see h/H anyway",
        problem=False,
    )


def check_costs(report: Report, spec: Spec, seen: Seen) -> None:
    """Costs: signs, the last step, a random policy against the limits."""
    alive = living(seen)
    costs = np.where(alive[..., None], seen.costs, 0.0)
    total = costs.sum(axis=1)
    for i, (name, limit) in enumerate(zip(spec.cost_names, spec.limits, strict=True)):
        mean = total[:, i].mean()
        report.facts.append(
            f"random policy: {name} {mean:.4g} (from {total[:, i].min():.4g} to "
            f"{total[:, i].max():.4g}), limit {limit:g}"
        )
        where = f"cost '{name}'"
        report.note(
            bool((costs[..., i] >= 0).all()),
            f"{name} is zero or more",
            f"{name} is negative in some steps: {costs[..., i].min():.4g}",
            where,
            "fine if meant; the limit bounds the sum of all steps",
            problem=False,
        )
        moving = np.any(costs[..., i] != 0, axis=0)  # [H]
        silent = moving[:-1].mean() > 0.9 and not moving[-1]
        full = alive[:, -1].any()
        report.note(
            spec.horizon < 3 or not (silent and full),
            f"{name} is reported on the last step too",
            f"{name} is always zero on the last step, but not before",
            f"{where}, step {spec.horizon - 1}",
            "report the cost of the step that reaches the time limit as of any other",
        )
        report.note(
            bool(costs[..., i].any()),
            f"{name} is not always zero",
            f"{name} was zero in every step of {len(costs)} random episodes",
            where,
            "see that it is read from the right place; a cost that is rare is fine",
            problem=False,
        )
        if np.isfinite(limit):
            report.note(
                mean > limit,
                f"the limit of {name} binds a random policy",
                f"a random policy keeps the limit of {name} ({mean:.4g} <= {limit:g})",
                where,
                "fine if the reward drives the cost up; otherwise lower the limit",
                problem=False,
            )
    reward = np.where(alive, seen.reward, 0.0).sum(axis=1)
    report.facts.append(f"random policy: reward {reward.mean():.4g}")


def check_ends(report: Report, env: SimulatorPool) -> None:
    """Episodes that a simulator cut short."""
    report.note(
        not env.ends["truncated"],
        "no episode is truncated before the horizon",
        f"{env.ends['truncated']} episodes were truncated before the horizon",
        "a time limit inside the environment",
        f"lift it, or give a horizon of at most that (now {env.spec.horizon})",
    )
