"""The minibatch loop: its order, KL stop and step size, and the units of surrogates."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ecop.learning.descent import CLIPPED_ADAM, descend, sweep
from ecop.learning.minibatch import (
    AGREEMENT,
    FASTEST,
    GAIN,
    LEAST,
    MOST,
    SLOWEST,
    STEPWISE,
    TURN,
    Descent,
    minibatch_descent,
    select_episodes,
    select_steps,
)
from ecop.learning.surrogates import (
    centred,
    clipped_loss,
    clipped_rise,
    dimensionless,
    mixed_advantage,
    step_mean,
)
from probes import random_problem

LOOP = Descent(epochs=6, minibatches=3, learning_rate=0.01, kl_goal=0.0)


# The order of the rows


@pytest.mark.parametrize(
    ("rows", "dead", "parts"),
    [(12, 0, 3), (12, 5, 3), (10, 3, 4), (7, 0, 1), (7, 2, 1), (5, 1, 50), (6, 6, 2)],
)
def test_sweep_takes_every_living_row_once(rows, dead, parts):
    alive = np.ones(rows, np.float32)
    alive[np.random.default_rng(rows).permutation(rows)[:dead]] = 0.0

    def step(carry, chosen):
        seen, count = carry
        trace = jnp.stack([jnp.float32(1.0), count.astype(jnp.float32)])
        return (seen.at[count].set(chosen), count + 1), trace

    size = -(-rows // min(parts, rows))
    room = (jnp.full((rows + 1, size), -1, jnp.int32), jnp.int32(0))
    run = jax.jit(lambda key: sweep(key, jnp.asarray(alive), parts, room, step))
    (seen, count), trace = run(jax.random.key(0))
    living = max(int(alive.sum()), 1)
    assert int(count) == -(-living // size)
    order = np.asarray(seen)[: int(count)].reshape(-1)
    if dead < rows:
        assert (alive[order] > 0).all()
    # Once each, then the first ones again, to fill up the last minibatch.
    assert len(set(order[:living])) == living
    for place in range(living, len(order)):
        assert order[place] == order[place % living]
    np.testing.assert_allclose(trace, [1.0, (int(count) - 1) / 2])
    (other, _), _ = run(jax.random.key(1))
    assert living < 3 or (np.asarray(other) != np.asarray(seen)).any()


def test_the_order_has_no_favourites():
    """Over many keys each living row is as often in the first minibatch."""
    alive = jnp.asarray([1, 0, 1, 1, 0, 1, 1, 1], jnp.float32)

    def first(key):
        def step(carry, rows):
            count, done = carry
            new = jnp.where(done, count, count.at[rows].add(1.0))
            return (new, jnp.ones((), bool)), jnp.zeros(())

        start = (jnp.zeros(8), jnp.zeros((), bool))
        return sweep(key, alive, 4, start, step)[0][0]

    counts = np.asarray(jax.vmap(first)(jax.random.split(jax.random.key(2), 3000)))
    share = counts.mean(axis=0)
    np.testing.assert_allclose(share, np.asarray(alive) * 2 / 6, atol=0.04)


def test_select_steps():
    _, _, _, batch = random_problem(count=2)
    rows = [7, 0, 23, 7]
    part = select_steps(batch, jnp.asarray(rows))
    for name in batch._fields:
        whole, some = (np.asarray(getattr(b, name)) for b in (batch, part))
        if name not in STEPWISE:
            np.testing.assert_array_equal(some, whole)
            continue
        assert some.shape == (1, 4, *whole.shape[2:])
        for i, row in enumerate(rows):
            np.testing.assert_array_equal(some[0, i], whole[row // 6, row % 6])


def test_select_episodes():
    _, _, _, batch = random_problem(count=2)
    part = select_episodes(batch, jnp.asarray([2, 0]))
    for name in batch._fields:
        whole, some = (np.asarray(getattr(b, name)) for b in (batch, part))
        expected = whole[[2, 0]] if name in STEPWISE else whole
        np.testing.assert_array_equal(some, expected)


# The loop


def objective(distribution, part, weight):
    return clipped_loss(distribution, part, 0.2) * weight


def refresh(distribution):
    """Something of the whole batch that changes from epoch to epoch."""
    return 1.0 + jnp.mean(distribution.mean**2)


def run(options, problem, key=0):
    _, policy, params, batch = problem
    state = options.init(params)
    loop = jax.jit(
        lambda k, p, s, b: minibatch_descent(
            k, policy, p, s, b, objective, options, refresh
        )
    )
    return loop(jax.random.key(key), params, state, batch)


def literal(options, problem, epochs):
    """The same, step by step; returns the parameters and the KL after each epoch."""
    _, policy, params, batch = problem
    whole = policy.form == "per_step"
    select = select_episodes if whole else select_steps
    alive = jnp.ones(4) if whole else batch.alive.reshape(-1)
    state, old = CLIPPED_ADAM.init(params), policy.over(params, batch.observation)

    @jax.jit
    def step(params, state, rows, weight):
        part = select(batch, rows)
        gradient = jax.grad(
            lambda p: objective(policy.over(p, part.observation), part, weight)
        )(params)
        return descend(CLIPPED_ADAM, gradient, params, state, options.learning_rate)

    @jax.jit
    def divergence(params):
        kl = old.kl(policy.over(params, batch.observation))
        return jnp.sum(batch.alive * kl) / jnp.sum(batch.alive)

    @jax.jit
    def order(key):
        room = jnp.full((4, -(-alive.size // options.minibatches)), -1, jnp.int32)

        def note(carry, rows):
            return (carry[0].at[carry[1]].set(rows), carry[1] + 1), jnp.zeros(())

        return sweep(key, alive, options.minibatches, (room, jnp.int32(0)), note)[0]

    kls, history = [], []
    for key in jax.random.split(jax.random.key(0), options.epochs)[:epochs]:
        weight = refresh(policy.over(params, batch.observation))
        rows, count = order(key)
        for draw in rows[: int(count)]:
            params, state = step(params, state, draw, weight)
        kls.append(float(divergence(params)))
        history.append(params)
    return history, kls


@pytest.mark.parametrize("form", ["time", "per_step"])
def test_descent_is_the_obvious_loop_and_stops_at_the_target(form):
    problem = random_problem(form)
    history, kls = literal(LOOP, problem, 6)
    assert kls == sorted(kls)
    free = run(LOOP, problem)
    assert float(free.info["epochs"]) == 6.0
    target = 0.5 * (kls[1] + kls[2])  # crossed in the third epoch
    stopped = run(dataclasses.replace(LOOP, target_kl=target), problem)
    assert float(stopped.info["epochs"]) == 3.0
    for ours, slow in ((free, history[5]), (stopped, history[2])):
        jax.tree.map(
            lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-5),
            ours.params,
            slow,
        )


# The step size


def followed(options, moves, kls):
    """Optimisers after iterations with these moves [2] and KLs."""
    place = jnp.zeros(2, jnp.float32)
    optimiser = options.init(place)
    found = []
    for move, kl in zip(moves, kls, strict=True):
        after = place + jnp.asarray(move, jnp.float32)
        optimiser = options.follow(optimiser, place, after, jnp.float32(kl))
        place = after
        found.append(optimiser)
    return found


def test_rate_and_pace_against_a_slow_version():
    options = Descent(learning_rate=1e-3, kl_goal=0.01)
    rng = np.random.default_rng(0)
    moves = rng.normal(size=(30, 2)) + np.array([0.5, 0.0])
    kls = 0.01 * np.exp(rng.normal(size=30))
    rate, pace, last = 1e-3, 1.0, np.zeros(2)
    for ours, move, kl in zip(followed(options, moves, kls), moves, kls, strict=True):
        lengths = np.linalg.norm(move) * np.linalg.norm(last)
        cosine = move @ last / lengths if lengths > 0 else 0.0
        pace = min(max(pace * np.exp(GAIN * (cosine - AGREEMENT)), SLOWEST), FASTEST)
        # The KL grows with the square of the rate: half the way is a fourth root.
        factor = min(max((0.01 * pace / kl) ** 0.25, 1 / TURN), TURN)
        rate = min(max(rate * factor, 1e-3 * LEAST), 1e-3 * MOST)
        last = move
        assert float(ours.pace) == pytest.approx(pace, rel=1e-4)
        assert float(ours.rate) == pytest.approx(rate, rel=1e-4)
        np.testing.assert_allclose(ours.move, move, rtol=1e-4, atol=1e-6)


def test_the_pace_rises_on_a_straight_way_and_falls_on_a_crooked_one():
    options = Descent(learning_rate=1e-3, kl_goal=0.01)
    straight = followed(options, [[1.0, 0.0]] * 60, [1e-12] * 60)
    crooked = followed(options, [[1.0, 0.0], [-1.0, 0.0]] * 30, [1e3] * 60)
    paces = [np.array([float(o.pace) for o in x]) for x in (straight, crooked)]
    assert (np.diff(paces[0]) >= 0).all()
    assert (np.diff(paces[1]) <= 0).all()
    assert paces[0][-1] == pytest.approx(FASTEST)
    assert paces[1][-1] == pytest.approx(SLOWEST)
    rates = [np.array([float(o.rate) for o in x]) for x in (straight, crooked)]
    np.testing.assert_allclose(rates[0][:2], 1e-3 * TURN ** np.arange(1, 3), rtol=1e-4)
    np.testing.assert_allclose(rates[1][:3], 1e-3 / TURN ** np.arange(1, 4), rtol=1e-4)
    assert rates[0][-1] == pytest.approx(1e-3 * MOST)
    assert rates[1][-1] == pytest.approx(1e-3 * LEAST)


def test_without_a_goal_the_rate_stays():
    options = Descent(learning_rate=1e-3, kl_goal=0.0)
    (*_, last) = followed(options, [[1.0, 0.0]] * 3, [1e-9, 5.0, 1.0])
    assert float(last.rate) == pytest.approx(1e-3)
    assert float(last.pace) == 1.0


@pytest.mark.parametrize("goal", [1e-4, 1e-3])
def test_the_rate_finds_the_goal(goal):
    """Of the KL per entry of the action, times the pace."""
    _, policy, params, batch = random_problem()
    options = dataclasses.replace(LOOP, kl_goal=goal)
    optimiser = options.init(params)

    @jax.jit
    def step(key, params, optimiser):
        # The task is always as far from its optimum: advantages of the policy now.
        now = policy.over(params, batch.observation).log_prob(batch.action)
        part = batch._replace(log_prob=now)
        return minibatch_descent(
            key, policy, params, optimiser, part, objective, options, refresh
        )

    ratios = []
    for i in range(25):
        before = params
        params, optimiser, info = step(jax.random.key(i), params, optimiser)
        old, new = (policy.over(p, batch.observation) for p in (before, params))
        kl = float(step_mean(old.kl(new), batch.alive)) / 2
        ratios.append(kl / (goal * float(info["pace"])))
    assert 0.5 < np.median(ratios[-10:]) < 2.0


# Units


def test_dimensionless_units():
    _, _, _, batch = random_problem(count=2)
    alive = np.asarray(batch.alive) > 0
    scale = np.array([0.5, 5.0], np.float32)
    batch = batch._replace(cost_scale=jnp.asarray(scale))
    ours = dimensionless(centred(batch))
    adv = np.asarray(ours.adv)
    assert adv[alive].mean() == pytest.approx(0.0, abs=1e-5)
    assert adv[alive].std() == pytest.approx(1.0, rel=1e-4)
    assert (adv[~alive] == 0.0).all()
    cost_adv = np.asarray(batch.cost_adv)
    slow = (cost_adv - cost_adv[alive].mean(axis=0)) / scale
    np.testing.assert_allclose(
        np.asarray(ours.cost_adv)[alive], slow[alive], rtol=1e-3, atol=1e-5
    )
    length = alive.sum() / len(alive)  # the mean one of an episode
    for name in ("violation", "cost_error"):
        slow = np.asarray(getattr(batch, name)) / (length * scale)
        np.testing.assert_allclose(getattr(ours, name), slow, rtol=1e-4)


def test_the_predicted_violation_is_one_in_the_units_of_the_cost():
    """L s (mean(ratio A_C / s) + violation / (L s)) is sum_h E[ratio A_C] + J_C - d."""
    _, policy, params, batch = random_problem(count=2)
    shifted = jax.tree.map(lambda x: x + 0.2, params)
    scaled = dimensionless(centred(batch))
    new = policy.over(shifted, batch.observation)
    psi = clipped_rise(new, scaled, 1e6) + scaled.violation
    alive, cost_adv = np.asarray(batch.alive), np.asarray(batch.cost_adv)
    centre = cost_adv[alive > 0].mean(axis=0)
    ratio = np.exp(np.asarray(new.log_prob(batch.action) - batch.log_prob))
    sums = (alive * (ratio - 1.0))[..., None] * (cost_adv - centre)
    slow = sums.sum(axis=1).mean(axis=0) + np.asarray(batch.violation)
    unit = np.asarray(batch.cost_scale) * alive.sum(axis=1).mean()
    np.testing.assert_allclose(np.asarray(psi) * unit, slow, rtol=1e-3)


def test_clipped_rise():
    _, policy, params, batch = random_problem(count=2)
    shifted = jax.tree.map(lambda x: x + 0.2, params)
    new = policy.over(shifted, batch.observation)
    ours = clipped_rise(new, batch, 0.1)
    ratio = np.exp(np.asarray(new.log_prob(batch.action) - batch.log_prob))
    alive, cost_adv = np.asarray(batch.alive), np.asarray(batch.cost_adv)
    for i in range(2):
        total = 0.0
        for n, h in zip(*np.nonzero(alive), strict=True):
            a = cost_adv[n, h, i]
            bounded = min(max(ratio[n, h], 0.9), 1.1)
            total += max(ratio[n, h] * a, bounded * a) - a
        assert float(ours[i]) == pytest.approx(total / alive.sum(), rel=1e-4)
    # Of the old policy itself it is nothing, on any few steps.
    part = select_steps(batch, jnp.asarray([2, 0, 9]))
    old = policy.over(params, part.observation)
    np.testing.assert_allclose(clipped_rise(old, part, 0.1), 0.0, atol=1e-6)


def test_mixed_advantage():
    _, _, _, batch = random_problem(count=2)
    ours = mixed_advantage(batch, jnp.asarray([0.5, 2.0], jnp.float32))
    cost = np.asarray(batch.cost_adv)
    slow = (np.asarray(batch.adv) - 0.5 * cost[..., 0] - 2.0 * cost[..., 1]) / 3.5
    np.testing.assert_allclose(ours, slow, rtol=1e-5, atol=1e-6)


def test_step_mean_leaves_dead_steps_out():
    x = jnp.asarray([[1.0, 2.0], [3.0, 100.0]], jnp.float32)
    alive = jnp.asarray([[1.0, 1.0], [1.0, 0.0]], jnp.float32)
    assert float(step_mean(x, alive)) == pytest.approx(2.0)
    wide = jnp.stack([x, -2.0 * x], axis=-1)
    np.testing.assert_allclose(step_mean(wide, alive), [2.0, -4.0])
    assert float(step_mean(x, jnp.zeros_like(alive))) == 0.0
