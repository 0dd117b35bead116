"""The path of the data, on one screen: `Learner.iteration`, then `Learner.learn`.

collect -> critics.fit -> advantages -> algorithm.update -> record, for one seed.
`run_seeds` is the only place that knows there are several seeds.
(The module is not called `train` because `ecop.train` is the function.)
"""

from __future__ import annotations

import itertools
import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array

from ecop.errors import UserError, require
from ecop.learning import averages, normaliser
from ecop.learning.advantages import gae
from ecop.learning.critics import Critics
from ecop.learning.encoders import Encoder, Kind, encoder
from ecop.learning.networks import Form, Network, Policy, with_time
from ecop.learning.surrogates import moments, or_one, step_mean
from ecop.rollout import Actor, collect_host, collect_jax
from ecop.simulators.cores import cores
from ecop.types import Batch, Episodes, HostTask, Playing, Spec, TrainState

Metrics = dict[str, Array]
ITERATIONS = 1000  # if neither they nor steps are given
BATCH, FEWEST, MOST = 2000, 2, 60  # steps and episodes of an iteration
Schedule = Literal["constant", "late", "linear", "cosine"]
LEAST = 0.01  # of a learning rate that falls
DISPATCH = 5  # iterations per compiled call: few host round trips, lively progress


@dataclass(frozen=True)
class TrainConfig:
    """How to train, whatever the task and the algorithm.

    Attributes:
        seeds: independent runs, each with its own policy
        first_seed: seeds are first_seed, first_seed + 1, ...
        iterations: policy updates (the paper's K); 0: 1,000, or as `steps` ask for
        steps: environment steps per seed after which training ends; 0: not by steps
        episodes: whole episodes per iteration and seed (the paper's N); 0: as many as
            make 2,000 steps, but at least 2 and, if none ends early, at most 60
        limits: one limit per cost; "inf" switches a constraint off; default: the task's
        horizon: steps per episode; default: the task's
        policy: how policy and critics depend on time
        network: "mlp"; "cnn" for images; "gru" has a memory of the episode, for
            observations that do not tell all
        hidden: hidden layers of policy and critics
        std: "shared" by all states, or "predicted" by the policy network
        initial_log_std: log standard deviation of a fresh Gaussian policy
        normalise_observations: centre and scale observations by running statistics
        discount: of rewards and costs in the advantages, to reduce their variance; the
            objective stays the episodic sum; 0: 1 up to 200 steps, then towards 0.99
        gae_decay: lambda of the advantages; 1 is Monte Carlo
        critic_learning_rate: Adam's, for the critics
        critic_epochs: passes of the critics over the batch per iteration
        critic_minibatches: their gradient steps in a pass
        schedule: learning rates of critics and policy over the planned iterations or
            steps: "constant", a fall to a hundredth in the "late" half, or one all the
            way along a line or a cosine; trust regions and a KL that a rate follows
            fall by its square
    """

    seeds: int = 5
    first_seed: int = 0
    iterations: int = 0
    steps: int = 0
    episodes: int = 0
    limits: tuple[float, ...] | None = None
    horizon: int | None = None
    policy: Form = "time"
    network: Kind = "mlp"
    hidden: tuple[int, ...] = (64, 64)
    std: Literal["shared", "predicted"] = "shared"
    initial_log_std: float = -0.5
    normalise_observations: bool = True
    discount: float = 0.0
    gae_decay: float = 0.95
    critic_learning_rate: float = 1e-3
    critic_epochs: int = 10
    critic_minibatches: int = 8
    schedule: Schedule = "late"

    def __post_init__(self) -> None:
        require(self, "critic_learning_rate", "first_seed iterations steps episodes")
        counts = ("seeds", "critic_epochs", "critic_minibatches")
        for name in (*counts, "horizon"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise UserError(f"{name} must be at least 1, not {value}.")
        if min(self.hidden, default=1) < 1:
            raise UserError(f"hidden layers need at least 1 unit, not {self.hidden}.")
        if not (0 <= self.gae_decay <= 1 and 0 <= self.discount <= 1):
            raise UserError("gae_decay and discount must lie in [0, 1].")


@dataclass(frozen=True)
class Learner:
    """A task, an algorithm and a config, tied into pure functions of one seed."""

    env: Any
    spec: Spec
    algorithm: Any
    config: TrainConfig

    @cached_property
    def encoder(self) -> Encoder | None:
        """What stands before the layers of policy and critics."""
        return encoder(self.config.network, self.spec, self.config.policy)

    @cached_property
    def policy(self) -> Policy:
        """The policy network."""
        c = self.config
        head = c.std, c.initial_log_std
        return Policy(self.spec, c.policy, c.hidden, *head, self.encoder)

    @cached_property
    def critics(self) -> Critics:
        """The reward critic and one cost critic per enforced constraint."""
        c = self.config
        network = Network(
            # A finite-horizon value depends on time even where the policy does not.
            form="per_step" if c.policy == "per_step" else "time",
            inputs=self.spec.observation_size,
            hidden=c.hidden,
            outputs=1,
            horizon=self.spec.horizon,
            last_scale=0.01,
            encoder=self.encoder,
        )
        count = 1 + len(self.spec.enforced)
        return Critics(
            network,
            count,
            self.discount,
            c.critic_learning_rate,
            c.critic_epochs,
            c.critic_minibatches,
        )

    @property
    def episodes(self) -> int:
        """Whole episodes per iteration, if none ends early."""
        few = -(-BATCH // self.spec.horizon)
        return self.config.episodes or min(max(few, FEWEST), MOST)

    def episodes_now(self, state: TrainState) -> int:
        """Episodes of the next iteration: more of them where they end early.

        Powers of four, so that few shapes are compiled.
        """
        if self.config.episodes or not isinstance(self.env, HostTask):
            return self.episodes
        shortness = self.spec.horizon / max(float(state.length), 1.0)
        return self.episodes * 4 ** min(round(math.log(shortness, 4)), 3)

    @property
    def open_ended(self) -> bool:
        """Whether the steps that episodes live decide how many iterations there are."""
        by_steps = self.config.steps > 0 and not self.config.iterations
        return by_steps and isinstance(self.env, HostTask)

    @property
    def iterations(self) -> int:
        """Policy updates that are planned, as far as is known."""
        c = self.config
        by_steps = -(-c.steps // (self.episodes * self.spec.horizon))
        return c.iterations or by_steps or ITERATIONS

    @property
    def discount(self) -> float:
        """Of rewards and costs in the advantages."""
        return self.config.discount or 1.0 - max(0.0, 0.01 - 2.0 / self.spec.horizon)

    def rate(self, state: TrainState) -> Array:
        """The schedule's factor [] of step lengths in this iteration."""
        c = self.config
        if c.schedule == "constant":
            return jnp.ones((), jnp.float32)
        done, plan = state.iteration, self.iterations
        if self.open_ended:
            done, plan = state.steps, c.steps
        left = 1.0 - done.astype(jnp.float32) / plan
        if c.schedule == "cosine":
            left = 0.5 - 0.5 * jnp.cos(jnp.pi * left)
        if c.schedule == "late":
            left = jnp.minimum(2.0 * left, 1.0)
        return jnp.maximum(left, LEAST)

    def init(self, seed: Array) -> TrainState:
        """State of a fresh run of one seed [] uint32."""
        key, policy_key, critic_key = jax.random.split(jax.random.key(seed), 3)
        params = self.policy.init(policy_key)
        return TrainState(
            key=key,
            iteration=jnp.zeros((), jnp.int32),
            steps=jnp.zeros((), jnp.int32),
            length=jnp.asarray(self.spec.horizon, jnp.float32),
            policy=params,
            critics=self.critics.init(critic_key),
            normaliser=normaliser.init(self.spec.observation_size),
            cost_scale=averages.start((len(self.spec.enforced),)),
            algorithm=self.algorithm.init(self.policy, params, self.spec),
        )

    def keys(self, state: TrainState) -> Array:
        """The three keys of this iteration: collect, critics, update."""
        return jax.random.split(jax.random.fold_in(state.key, state.iteration), 3)

    def iteration(self, state: TrainState) -> tuple[TrainState, Metrics]:
        """One iteration on a JAX environment: collect, then learn."""
        collect = collect_jax(self.env, self.policy, self.episodes)
        actor = Actor(state.policy, state.normaliser)
        return self.learn(state, collect(actor, self.keys(state)[0]))

    def learn(
        self, state: TrainState, episodes: Episodes
    ) -> tuple[TrainState, Metrics]:
        """Everything after the episodes are in.

        The critics are fitted first: values of the policy that played, not of those
        before it, make the advantages.
        """
        _, critic_key, update_key = self.keys(state)
        rate = self.rate(state)
        x = self.seen(state, episodes)
        advantages, values = self.advantages(state.critics, x, episodes)
        critics, critic_loss = self.critics.fit(
            critic_key,
            state.critics,
            x,
            advantages + values,
            episodes.alive,
            rate,
        )
        advantages, _ = self.advantages(critics, x, episodes)
        batch, cost_scale = self.batch(state, episodes, x, advantages)
        batch = batch._replace(rate=rate)
        policy, algorithm, info = self.algorithm.update(
            update_key, self.policy, state.policy, state.algorithm, batch
        )
        statistics = state.normaliser
        if self.config.normalise_observations:
            # A policy that hardly moves cannot follow a scale that does.
            statistics = normaliser.update(
                statistics, episodes.observation, rate**2 * episodes.alive
            )
        # A JAX task computes dead steps like all others; a simulator takes none.
        taken = jnp.sum(episodes.alive).astype(jnp.int32)
        if not isinstance(self.env, HostTask):
            taken = jnp.int32(episodes.alive.size)
        steps = state.steps + taken
        metrics = {
            "env_steps": steps,
            "episodes": jnp.int32(len(episodes.alive)),
            "reward": jnp.mean(jnp.sum(episodes.reward, axis=1)),
            "costs": jnp.mean(jnp.sum(episodes.costs, axis=1), axis=0),
            "failed": jnp.mean(episodes.failed.astype(jnp.float32)),
            "critic_loss": critic_loss,
            **self.change(state.policy, policy, batch),
            **info,
        }
        state = TrainState(
            key=state.key,
            iteration=state.iteration + 1,
            steps=steps,
            length=jnp.sum(episodes.alive) / len(episodes.alive),
            policy=policy,
            critics=critics,
            normaliser=statistics,
            cost_scale=cost_scale,
            algorithm=algorithm,
        )
        return state, metrics

    def change(self, before: Any, after: Any, batch: Batch) -> Metrics:
        """How far the policy moved, and how random it is: means over living steps."""
        old, new = (self.policy.over(p, batch.observation) for p in (before, after))
        return {
            "kl": step_mean(old.kl(new), batch.alive),
            "entropy": step_mean(new.entropy(), batch.alive),
        }

    def seen(self, state: TrainState, episodes: Episodes) -> Array:
        """Observations as the networks see them [N, H, I]: normalised, with time."""
        x = normaliser.apply(state.normaliser, episodes.observation)
        return with_time(x, jnp.arange(x.shape[1]), self.spec.horizon)

    def advantages(
        self, critics: Any, x: Array, episodes: Episodes
    ) -> tuple[Array, Array]:
        """Advantages and values [N, H, 1 + C] of the reward and the enforced costs."""
        costs = episodes.costs[..., list(self.spec.enforced)]
        values = self.critics.values(critics, x)
        advantages = gae(
            jnp.concatenate([episodes.reward[..., None], costs], axis=-1),
            values,
            episodes.alive,
            discount=self.discount,
            decay=self.config.gae_decay,
        )
        return advantages, values

    def batch(
        self, state: TrainState, episodes: Episodes, x: Array, advantages: Array
    ) -> tuple[Batch, averages.Average]:
        """The algorithm's batch, and the running scale of the costs."""
        enforced = list(self.spec.enforced)
        costs = episodes.costs[..., enforced]
        _, std = moments(advantages[..., :1], episodes.alive)
        _, cost_std = moments(advantages[..., 1:], episodes.alive)
        cost_scale = averages.follow(state.cost_scale, cost_std)
        limits = jnp.asarray([self.spec.limits[i] for i in enforced], jnp.float32)
        cost_return = jnp.sum(costs, axis=1)
        cost_mean = jnp.mean(cost_return, axis=0)
        count = cost_return.shape[0]
        squares = jnp.sum((cost_return - cost_mean[None]) ** 2, axis=0)
        batch = Batch(
            observation=x,
            action=episodes.action,
            log_prob=self.policy.over(state.policy, x).log_prob(episodes.action),
            alive=episodes.alive,
            adv=advantages[..., 0],
            cost_adv=advantages[..., 1:],
            cost_error=jnp.sqrt(squares / (max(count - 1, 1) * count)),
            violation=cost_mean - limits,
            reward_scale=or_one(std[0]),
            cost_scale=or_one(cost_scale.value),
        )
        return batch, cost_scale

    @cached_property
    def advance(self) -> Callable[..., tuple[TrainState, Metrics]]:
        """Compiled (state, count) -> (state, metrics[DISPATCH]) for one seed.

        The count is an argument of the loop, not a constant of it, so that the same
        code runs, with the same bits, however the iterations are cut into calls.
        """

        def advance(state: TrainState, count: Array) -> tuple[TrainState, Metrics]:
            shapes = jax.eval_shape(self.iteration, state)[1]
            empty = jax.tree.map(
                lambda s: jnp.zeros((DISPATCH, *s.shape), s.dtype), shapes
            )

            def body(i: Array, carry: Any) -> Any:
                state, record = carry
                state, metrics = self.iteration(state)
                return state, jax.tree.map(lambda r, m: r.at[i].set(m), record, metrics)

            return lax.fori_loop(0, count, body, (state, empty))

        return jax.jit(advance)


def stack(trees: list[Any]) -> Any:
    """One tree with a leading seed axis."""
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)


def unstack(tree: Any) -> list[Any]:
    """The trees of the seeds, without the leading axis."""
    count = len(jax.tree.leaves(tree)[0])
    return [jax.tree.map(lambda leaf, s=s: leaf[s], tree) for s in range(count)]


class Round(NamedTuple):
    """A few iterations of every seed."""

    count: int
    before: list[TrainState]
    after: list[TrainState]
    metrics: list[dict[str, np.ndarray]]  # per seed, each entry [count, ...]
    shares: dict[str, float] = {}  # noqa: RUF012 - of the time, of a host task


def init_seeds(learner: Learner) -> list[TrainState]:
    """Fresh states of all seeds of the config."""
    init = jax.jit(learner.init)
    c = learner.config
    return [
        init(jnp.uint32(seed)) for seed in range(c.first_seed, c.first_seed + c.seeds)
    ]


def run_seeds(
    learner: Learner, states: list[TrainState], counts: Iterable[int]
) -> Iterator[Round]:
    """Train all seeds, one round per entry of `counts` (at most DISPATCH iterations).

    A host environment, which may be slow or fail, has a round for each iteration.
    On the CPU each seed is a call of the same compiled program from a pool of threads,
    one per core: no seed waits for another and each has the bits it has alone. The next
    round is under way while the caller handles this one. On accelerators the seeds are
    one program, spread over them (`vmapped_rounds`).
    """
    if isinstance(learner.env, HostTask):
        yield from _host_rounds(learner, states, counts)
    elif jax.default_backend() == "cpu":
        yield from _threaded_rounds(learner, states, list(counts))
    else:
        yield from vmapped_rounds(learner, states, counts)


def vmapped_rounds(
    learner: Learner, states: list[TrainState], counts: Iterable[int]
) -> Iterator[Round]:
    """Rounds of all seeds as one program, the seeds spread over all devices.

    A device has as many seeds as any other: copies of the last one fill it up.
    """
    devices = jax.devices()[: len(states)]
    each = -(-len(states) // len(devices))
    filled = states + states[-1:] * (each * len(devices) - len(states))
    mesh = Mesh(np.array(devices), ("seeds",))
    split, same = PartitionSpec("seeds"), PartitionSpec()
    advance = jax.jit(
        jax.shard_map(
            jax.vmap(learner.advance, in_axes=(0, None)),
            mesh=mesh,
            in_specs=(split, same),
            out_specs=split,
            check_vma=False,  # carries of loops that start as constants are fine
        )
    )
    spread = jax.device_put(stack(filled), NamedSharding(mesh, split))
    for count in counts:
        spread, metrics = advance(spread, jnp.int32(count))
        gathered, lines = map(unstack, jax.device_put((spread, metrics), devices[0]))
        after = gathered[: len(states)]
        rows = [_first(m, count) for m in lines[: len(states)]]
        yield Round(count, states, after, rows)
        states = after


def _threaded_rounds(
    learner: Learner, states: list[TrainState], counts: list[int]
) -> Iterator[Round]:
    def work(previous: Future | TrainState, count: int) -> tuple[TrainState, Metrics]:
        state = previous if isinstance(previous, TrainState) else previous.result()[0]
        return jax.block_until_ready(learner.advance(state, jnp.int32(count)))

    with ThreadPoolExecutor(cores()) as pool:
        ahead: deque[list[Future]] = deque()
        last: list[Any] = list(states)
        for i, count in enumerate(counts):
            while len(ahead) < 2 and i + len(ahead) < len(counts):
                last = [pool.submit(work, s, counts[i + len(ahead)]) for s in last]
                ahead.append(last)
            done = [future.result() for future in ahead.popleft()]
            after = [state for state, _ in done]
            yield Round(count, states, after, [_first(m, count) for _, m in done])
            states = after


def _host_rounds(
    learner: Learner, states: list[TrainState], counts: Iterable[int]
) -> Iterator[Round]:
    collect = collect_host(learner.env, learner.policy)
    learn = jax.jit(learner.learn)
    keys = jax.jit(lambda s, i: learner.keys(s._replace(iteration=s.iteration + i))[0])
    start = time.perf_counter()
    with ThreadPoolExecutor(cores()) as pool:
        for _ in itertools.chain.from_iterable(map(range, counts)):
            actors = [Actor(s.policy, s.normaliser) for s in states]
            episodes = [learner.episodes_now(s) for s in states]
            now, later = ([keys(s, jnp.int32(i)) for s in states] for i in range(2))
            begun = time.perf_counter()
            batches = collect(actors, now, episodes, later)
            collected = time.perf_counter()
            done = jax.block_until_ready(list(pool.map(learn, states, batches)))
            end = time.perf_counter()
            shares = {"collecting": collected - begun, "learning": end - collected}
            shares = {name: spent / (end - start) for name, spent in shares.items()}
            if isinstance(learner.env, Playing):
                shares["busy"] = learner.env.busy
            start = end
            after = [state for state, _ in done]
            metrics = [stack([metrics]) for _, metrics in done]
            yield Round(1, states, after, [_first(m, 1) for m in metrics], shares)
            states = after


def _first(metrics: Metrics, count: int) -> dict[str, np.ndarray]:
    return {name: np.asarray(value)[:count] for name, value in metrics.items()}
