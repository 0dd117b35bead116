"""Tiny tasks with known answers, and a NumPy twin of one of them."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np

from ecop.learning.networks import Form, Policy, with_time
from ecop.types import (
    Batch,
    Box,
    Constraint,
    Discrete,
    HostStep,
    MultiDiscrete,
    Spec,
    Step,
)

FAST = {"xla_backend_optimization_level": 0}  # for programs that run a millisecond


@functools.cache
def compiled(algorithm, policy):
    """The update of an algorithm, compiled once per algorithm and policy."""

    def update(key, params, state, batch):
        return algorithm.update(key, policy, params, state, batch)

    return jax.jit(update, compiler_options=FAST)


def random_problem(
    form: Form = "time", action=None, count=1, seed=0, shape=(4, 6), **kwargs
):
    """A small policy, its parameters and a random batch it might have collected.

    One episode is dead from step 4 on.
    """
    episodes, horizon = shape
    constraints = tuple(Constraint(f"c{i}", 1.0) for i in range(count))
    spec = Spec(3, action or Box(2), horizon, constraints)
    policy = Policy(spec, form, (4,), **kwargs)
    params = policy.init(jax.random.key(seed))
    rng = np.random.default_rng(seed)
    x = jnp.asarray(rng.normal(size=(episodes, horizon, 3)), jnp.float32)
    x = with_time(x, jnp.arange(horizon), horizon)
    distribution = policy.over(params, x)
    action = distribution.sample(policy.noise(jax.random.key(seed), shape))
    alive = np.ones(shape, np.float32)
    alive[1, 4:] = 0.0
    cost_adv = rng.normal(size=(*shape, count)) * alive[..., None]
    batch = Batch(
        observation=x,
        action=action,
        log_prob=distribution.log_prob(action),
        alive=jnp.asarray(alive),
        adv=jnp.asarray(rng.normal(size=shape) * alive, jnp.float32),
        cost_adv=jnp.asarray(cost_adv, jnp.float32),
        cost_error=jnp.full(count, 0.1, jnp.float32),
        violation=jnp.asarray(np.linspace(2.0, 1.0, count), jnp.float32),
        reward_scale=jnp.ones((), jnp.float32),
        cost_scale=jnp.ones(count, jnp.float32),
    )
    return spec, policy, params, with_scales(batch)


def with_scales(batch: Batch) -> Batch:
    """The batch with the scales of its own advantages, as in the first iteration."""
    living = np.asarray(batch.alive) > 0
    std = np.asarray(batch.adv)[living].std()
    cost_std = np.asarray(batch.cost_adv)[living].std(axis=0)
    return batch._replace(
        reward_scale=jnp.asarray(np.where(std > 0, std, 1.0), jnp.float32),
        cost_scale=jnp.asarray(np.where(cost_std > 0, cost_std, 1.0), jnp.float32),
    )


class Spend:
    """Each step spends an amount a in [0, 1]: reward w_h * a, cost a.

    With increasing weights w_h the best policy spends its budget in the last steps
    only, so the optimum depends on time. With limit d (an integer) its value is the sum
    of the d largest weights.
    """

    def __init__(self, *, horizon: int = 6, limit: float = 2.0) -> None:
        self.spec = Spec(1, Box(1), horizon, (Constraint("spent", limit),))

    def weight(self, h):
        return (1.0 + h) / self.spec.horizon

    def reset(self, key):
        del key
        return jnp.zeros((), jnp.int32), jnp.zeros(1, jnp.float32)

    def step(self, key, state, action):
        del key
        amount = jnp.clip(0.5 + 0.5 * action[0], 0.0, 1.0)
        reward = self.weight(state.astype(jnp.float32)) * amount
        return Step(
            state + 1,
            jnp.zeros(1, jnp.float32),
            reward,
            amount[None],
            jnp.zeros((), bool),
        )

    def optimum(self, limit: float) -> float:
        weights = np.sort([self.weight(h) for h in range(self.spec.horizon)])[::-1]
        whole = int(limit)
        return float(weights[:whole].sum() + (limit - whole) * weights[whole])


class Jumps:
    """Offers to take or to leave: each of 3 kinds has another price at every step.

    The kind is drawn anew in each step. Taking an offer earns `gain[h, kind]` and costs
    `price[h, kind]`, drawn once and for all: nothing is like it was a step before.
    """

    KINDS = 3

    def __init__(self, *, horizon: int = 12, limit: float = 1.5) -> None:
        self.spec = Spec(self.KINDS, Discrete(2), horizon, (Constraint("paid", limit),))
        rng = np.random.default_rng(7)
        shape = (horizon, self.KINDS)
        self.gain, self.price = rng.random(shape), rng.random(shape)

    def offer(self, key):
        kind = jax.random.randint(key, (), 0, self.KINDS)
        return kind, jax.nn.one_hot(kind, self.KINDS)

    def reset(self, key):
        kind, observation = self.offer(key)
        return (jnp.zeros((), jnp.int32), kind), observation

    def step(self, key, state, action):
        h, kind = state
        taken = action.astype(jnp.float32)
        gain, price = (
            taken * jnp.asarray(table, jnp.float32)[h, kind]
            for table in (self.gain, self.price)
        )
        kind, observation = self.offer(key)
        failed = jnp.zeros((), bool)
        return Step((h + 1, kind), observation, gain, price[None], failed)

    def optimum(self, limit: float, seen: str = "time and kind") -> float:
        """Take the offers of the most gain per price, until the limit is spent.

        Offers that a policy cannot tell apart are taken together.
        """
        axes = {"time and kind": (), "time": 1, "kind": 0}[seen]
        gain, price = (
            np.sum(table, axis=axes).ravel() / self.KINDS
            for table in (self.gain, self.price)
        )
        value = 0.0
        for i in np.argsort(-gain / price):
            share = min(1.0, limit / price[i])
            value += float(share * gain[i])
            limit -= float(share * price[i])
        return value


class Walk:
    """A random walk that fails beyond +-2; two costs; Box actions."""

    def __init__(self, *, horizon: int = 8) -> None:
        constraints = (Constraint("right", 1.0), Constraint("left", 2.0))
        self.spec = Spec(2, Box(1), horizon, constraints)

    def reset(self, key):
        x = jax.random.uniform(key, (), jnp.float32, -1.0, 1.0)
        return (x, jnp.zeros((), jnp.float32)), self.observe(x, jnp.float32(0.0))

    @staticmethod
    def observe(x, v):
        return jnp.stack([x, v])

    def step(self, key, state, action):
        del key
        x, v = state
        v = 0.5 * v + 0.5 * jnp.clip(action[0], -1.0, 1.0)
        x = x + v
        costs = jnp.stack([x > 0.5, x < -0.5]).astype(jnp.float32)
        return Step((x, v), self.observe(x, v), x, costs, jnp.abs(x) > 2.0)


class NumpyWalk:
    """The twin of `Walk`, stepped from Python in batches."""

    def __init__(self, *, horizon: int = 8) -> None:
        self.spec = Walk(horizon=horizon).spec

    def reset(self, seeds):
        keys = [jax.random.split(jax.random.key(s))[0] for s in seeds]
        self.x = np.array(
            [jax.random.uniform(k, (), jnp.float32, -1.0, 1.0) for k in keys]
        )
        self.v = np.zeros_like(self.x)
        return np.stack([self.x, self.v], axis=1)

    def step(self, actions):
        half = np.float32(0.5)
        self.v = half * self.v + half * np.clip(actions[:, 0], -1, 1)
        self.x = self.x + self.v
        costs = np.stack([self.x > half, self.x < -half], axis=1)
        return HostStep(
            np.stack([self.x, self.v], axis=1),
            self.x,
            costs.astype(np.float32),
            np.abs(self.x) > 2,
        )

    def close(self):
        pass


class Coin:
    """A discrete task: action 1 earns 1 and costs 1, action 0 does neither."""

    def __init__(self, *, horizon: int = 4) -> None:
        self.spec = Spec(1, Discrete(2), horizon, (Constraint("ones", 1.0),))

    def reset(self, key):
        del key
        return jnp.zeros((), jnp.int32), jnp.ones(1, jnp.float32)

    def step(self, key, state, action):
        del key
        gain = action.astype(jnp.float32)
        return Step(
            state, jnp.ones(1, jnp.float32), gain, gain[None], jnp.zeros((), bool)
        )


class Poison(Spend):
    """`Spend` whose reward becomes NaN once the policy spends freely."""

    def step(self, key, state, action):
        out = super().step(key, state, action)
        return out._replace(reward=jnp.where(action[0] > 1.5, jnp.nan, out.reward))


class BrightCorner:
    """Go to the corner that is bright, in dim noise; corner 0 costs 1 each time.

    With a limit below a quarter of the horizon that corner is worth H / 4 at most.
    """

    SIDE = 8

    def __init__(self, *, horizon: int = 4, limit: float = 0.5) -> None:
        image = (self.SIDE, self.SIDE, 1)
        constraints = (Constraint("corner", limit, bound=horizon),)
        self.spec = Spec(self.SIDE**2, Discrete(4), horizon, constraints, image)

    def optimum(self) -> float:
        quarter = self.spec.horizon / 4
        return 3.0 * quarter + min(quarter, self.spec.limits[0])

    def look(self, key):
        corner, noise = jax.random.split(key)
        corner = jax.random.randint(corner, (), 0, 4)
        row, column = corner // 2, corner % 2
        image = 0.3 * jax.random.uniform(noise, (self.SIDE, self.SIDE))
        middle = (self.SIDE - 2) * jnp.stack([row, column])
        near = jnp.abs(jnp.arange(self.SIDE)[None] - middle[:, None]) < 2
        image = image + (near[0][:, None] & near[1][None]).astype(jnp.float32)
        return corner, image.reshape(-1)

    def reset(self, key):
        return self.look(key)

    def step(self, key, state, action):
        reward = (action == state).astype(jnp.float32)
        cost = (action == 0).astype(jnp.float32)
        state, observation = self.look(key)
        return Step(state, observation, reward, cost[None], jnp.zeros((), bool))


class Recall:
    """A cue at the first step, to be told at the last; to say 0 then costs 1.

    Without a memory half of the reward is the most that can be had.
    """

    def __init__(self, *, horizon: int = 5, limit: float = 0.25) -> None:
        constraints = (Constraint("zero", limit, bound=1.0),)
        self.spec = Spec(2, Discrete(2), horizon, constraints)

    def optimum(self) -> float:
        return 0.5 + min(self.spec.limits[0], 0.5)

    def reset(self, key):
        cue = jax.random.randint(key, (), 0, 2)
        return (jnp.zeros((), jnp.int32), cue), jax.nn.one_hot(cue, 2)

    def step(self, key, state, action):
        del key
        h, cue = state
        last = h == self.spec.horizon - 1
        reward = (last & (action == cue)).astype(jnp.float32)
        cost = (last & (action == 0)).astype(jnp.float32)
        blank = jnp.zeros(2, jnp.float32)
        return Step((h + 1, cue), blank, reward, cost[None], jnp.zeros((), bool))


class TwoChoices:
    """Name a shape and a colour; each right one earns a half, colour 0 costs 1.

    With a limit below a quarter of the horizon colour 0 is named less than it is seen.
    """

    SIZES = (3, 4)

    def __init__(self, *, horizon: int = 4, limit: float = 0.5) -> None:
        constraints = (Constraint("colour", limit, bound=horizon),)
        action = MultiDiscrete(self.SIZES)
        self.spec = Spec(sum(self.SIZES), action, horizon, constraints)

    def optimum(self) -> float:
        horizon, limit = self.spec.horizon, self.spec.limits[0]
        return 0.5 * horizon + 0.5 * (0.75 * horizon + min(limit, horizon / 4))

    def look(self, key):
        keys = jax.random.split(key)
        pairs = list(zip(keys, self.SIZES, strict=True))
        seen = jnp.stack([jax.random.randint(k, (), 0, n) for k, n in pairs])
        shown = [jax.nn.one_hot(seen[i], n) for i, n in enumerate(self.SIZES)]
        return seen, jnp.concatenate(shown)

    def reset(self, key):
        return self.look(key)

    def step(self, key, state, action):
        reward = 0.5 * jnp.sum((action == state).astype(jnp.float32))
        cost = (action[1] == 0).astype(jnp.float32)
        state, observation = self.look(key)
        return Step(state, observation, reward, cost[None], jnp.zeros((), bool))
