"""e-COP's formulas and its backward pass against literal, slow versions."""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ecop.algorithms.ecop import ECOP, State
from ecop.errors import UserError
from ecop.learning.damping import adapt_beta, damped_penalty, price
from ecop.learning.descent import CLIPPED_ADAM, descend
from ecop.learning.multipliers import REACH
from ecop.learning.networks import Form, Gaussian, Policy, with_time
from ecop.types import Batch, Box, Constraint, Spec
from probes import with_scales

N, H, SIZE = 4, 6, 3


def spec(count=2, action=None):
    constraints = tuple(Constraint(f"c{i}", 1.0) for i in range(count))
    return Spec(SIZE, action or Box(2), H, constraints)


def random_batch(policy, params, count=2, seed=0, dead=True):
    rng = np.random.default_rng(seed)
    x = jnp.asarray(rng.normal(size=(N, H, SIZE)), jnp.float32)
    x = with_time(x, jnp.arange(H), H)
    distribution = policy.over(params, x)
    noise = policy.noise(jax.random.key(seed), (N, H))
    action = distribution.sample(noise)
    alive = np.ones((N, H), np.float32)
    if dead:
        alive[1, 4:] = 0.0
    batch = Batch(
        observation=x,
        action=action,
        log_prob=distribution.log_prob(action),
        alive=jnp.asarray(alive),
        adv=jnp.asarray(rng.normal(size=(N, H)) * alive, jnp.float32),
        cost_adv=jnp.asarray(rng.normal(size=(N, H, count)), jnp.float32)
        * alive[..., None],
        cost_error=jnp.asarray(rng.random(size=count), jnp.float32),
        violation=jnp.asarray(rng.normal(size=count), jnp.float32),
        reward_scale=jnp.ones((), jnp.float32),
        cost_scale=jnp.ones(count, jnp.float32),
    )
    return with_scales(batch)


def setup(algorithm, form: Form = "time", count=2, action=None, dead=True, **kwargs):
    s = spec(count, action)
    policy = Policy(s, form, (5,), **kwargs)
    params = policy.init(jax.random.key(1))
    state = algorithm.init(policy, params, s)
    return policy, params, state, random_batch(policy, params, count, dead=dead)


# Formulas


@pytest.mark.parametrize("form", ["paper", "augmented"])
def test_penalty(form):
    psi, multiplier, beta = [0.3, -0.4, -0.05], [0.5, 0.2, 1.0], 4.0
    slow = 0.0
    for p, m in zip(psi, multiplier, strict=True):
        slow += beta / 2 * (max(0, p + m / beta) ** 2 - (m / beta) ** 2)
        slow += m * max(0, p) if form == "paper" else 0
    ours = damped_penalty(
        jnp.array(psi), jnp.array(multiplier), jnp.float32(beta), form
    )
    assert float(ours) == pytest.approx(slow, rel=1e-5)


def printed_beta(beta, multiplier, violation, growth, most):
    """The paper's rule, term by term; multiplier [H][m], `>` for its `>=` (3)."""
    horizon, count = len(multiplier), len(violation)
    secondary = 0.0
    for t in range(horizon):
        for i in range(count):
            secondary += max(violation[i], -multiplier[t][i] / beta)
    norm = max(max(abs(x) for x in row) for row in multiplier)
    threshold = count**0.5 / beta * norm
    return min(most, growth * beta) if secondary > threshold else beta


@pytest.mark.parametrize(
    ("violation", "multiplier", "grows"),
    [
        ([0.5], [0.2], True),
        ([-0.5], [0.2], False),
        ([-0.5], [0.0], False),  # both sides 0: erratum 3
        ([0.0], [0.0], False),
        ([0.05], [0.9], True),  # within a step's threshold, not within that of H
        ([0.005], [0.9], False),
        ([0.05, -0.2], [0.9, 0.1], True),
        ([0.05, -0.2], [0.9, 0.4], False),
    ],
)
def test_adaptive_beta(violation, multiplier, grows):
    horizon, beta = 20, 5.0
    for most in (50.0, 7.0):
        ours = adapt_beta(
            jnp.float32(beta),
            jnp.array(multiplier),
            jnp.array(violation),
            horizon,
            2.0,
            (beta, most),
        )
        slow = printed_beta(beta, [multiplier] * horizon, violation, 2.0, most)
        assert float(ours) == slow == (min(most, 10.0) if grows else 5.0)


def test_beta_relaxes_to_where_it_started():
    def after(beta, violation):
        violation, none = jnp.array([violation]), jnp.zeros(1)
        bounds = (5.0, 50.0)
        return float(
            adapt_beta(jnp.float32(beta), none, violation, 10, 2.0, bounds, 1.5)
        )

    assert after(12.0, 0.1) == 24.0
    assert after(12.0, -0.1) == 8.0
    assert after(6.0, -0.1) == 5.0


@pytest.mark.parametrize("steps", [1, 2])
def test_multipliers_follow_the_violation(steps):
    """Up to what an iteration can mend, with caution, whatever the beta."""
    algorithm = ECOP(multiplier_rate=3.0, backward_steps=steps, caution=0.5)
    policy, params, state, batch = setup(algorithm, count=3)
    state = state._replace(multiplier=jnp.array([0.5, 0.01, 2.0]))
    small = jnp.array([0.01, -0.1, 50.0], jnp.float32)
    batch = batch._replace(violation=small)
    run = jax.jit(algorithm.update, static_argnums=1)
    _, new, info = run(jax.random.key(0), policy, params, state, batch)
    violation = np.asarray(small) + 0.5 * np.asarray(batch.cost_error)
    length = float(batch.alive.sum()) / N
    violation /= length * np.asarray(batch.cost_scale)
    assert violation[2] > REACH
    change = 3.0 * np.clip(violation, -REACH, REACH)
    slow = np.maximum(0, np.asarray(state.multiplier) + change)
    np.testing.assert_allclose(new.multiplier, slow, rtol=1e-5)
    np.testing.assert_array_equal(info["multipliers"], new.multiplier)


# The backward pass, written down as in Algorithm 2


@partial(jax.jit, static_argnums=(0, 1, 4))
def literal_loss(algorithm, policy, params, batch, start, multiplier, beta):
    """The final loss (8) at t = start, term by term, on a batch in its units."""
    length = jnp.sum(batch.alive) / N
    share = length if algorithm.units == "dimensionless" else 1.0
    after = policy.over(params, batch.observation).log_prob(batch.action)

    def suffix_sum(bound, advantage):
        r = jnp.exp(after - batch.log_prob)
        clipped = jnp.clip(r, 1 - algorithm.clip, 1 + algorithm.clip)
        term = bound(r * advantage, clipped * advantage) * batch.alive
        return sum(jnp.mean(term[:, h]) for h in range(start, H)) / share

    total = -suffix_sum(jnp.minimum, batch.adv)
    for i in range(batch.violation.shape[0]):
        psi = suffix_sum(jnp.maximum, batch.cost_adv[..., i]) + batch.violation[i]
        if algorithm.units == "dimensionless":
            old = sum(jnp.mean(batch.cost_adv[:, h, i]) for h in range(start, H))
            psi -= old / length
        m = multiplier[i]
        total += beta / 2 * (jnp.maximum(0.0, psi + m / beta) ** 2 - (m / beta) ** 2)
        if algorithm.penalty == "paper":
            total += m * jnp.maximum(0.0, psi)
    return total


def in_units(algorithm, batch):
    """The batch in dimensionless units, on the first iteration, by NumPy."""
    if algorithm.units == "paper":
        return batch
    living = np.asarray(batch.alive) > 0
    adv = np.asarray(batch.adv)
    adv = (adv - adv[living].mean()) / adv[living].std()
    cost_adv = np.asarray(batch.cost_adv)
    scale = cost_adv[living].std(axis=0)
    cost_adv = (cost_adv - cost_adv[living].mean(axis=0)) / scale
    return batch._replace(
        adv=jnp.asarray(adv * living, jnp.float32),
        cost_adv=jnp.asarray(cost_adv * living[..., None], jnp.float32),
        violation=batch.violation / jnp.asarray(scale * living.sum() / N),
    )


def literal_multiplier(algorithm, multiplier, scaled):
    change = jnp.clip(scaled.violation, -REACH, REACH)
    return jnp.maximum(0.0, multiplier + algorithm.multiplier_rate * change)


@pytest.mark.parametrize(
    ("units", "penalty", "steps", "passes"),
    [
        ("dimensionless", "augmented", 0, 1),
        ("dimensionless", "paper", 5, 1),
        ("paper", "augmented", 2, 3),
        ("paper", "paper", 0, 1),
    ],
)
def test_shared_pass_is_algorithm_2(units, penalty, steps, passes):
    algorithm = ECOP(
        beta=2.0,
        units=units,
        penalty=penalty,
        backward_steps=steps,
        epochs=passes,
        minibatches=1,
        learning_rate=0.05,
        kl_goal=0.0,
        caution=0.0,
    )
    policy, params, state, batch = setup(algorithm)
    count = steps or H
    state = state._replace(multiplier=jnp.array([0.4, 0.8]))
    new, _, _ = jax.jit(algorithm.update, static_argnums=1)(
        jax.random.key(0), policy, params, state, batch
    )
    scaled = in_units(algorithm, batch)
    multiplier = literal_multiplier(algorithm, state.multiplier, scaled)
    slow, moments = params, CLIPPED_ADAM.init(params)
    starts = np.round(np.arange(count) * H / count).astype(int)
    for t in passes * [*reversed(range(count))]:
        gradient = jax.grad(
            lambda p, t=t: literal_loss(
                algorithm,
                policy,
                p,
                scaled,
                int(starts[t]),
                multiplier,
                jnp.float32(2.0),
            )
        )(slow)
        slow, moments = descend(CLIPPED_ADAM, gradient, slow, moments, 0.05)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-3, atol=2e-5), new, slow
    )


def test_per_step_pass_changes_each_block_given_the_later_ones():
    algorithm = ECOP(
        beta=2.0,
        backward_steps=3,
        epochs=1,
        minibatches=1,
        learning_rate=0.05,
        kl_goal=0.0,
        units="paper",
        caution=0.0,
    )
    policy, params, state, batch = setup(algorithm, form="per_step")
    state = state._replace(multiplier=jnp.full(2, 0.3))
    run = jax.jit(algorithm.update, static_argnums=1)
    new, _, _ = run(jax.random.key(0), policy, params, state, batch)
    multiplier = literal_multiplier(algorithm, state.multiplier, batch)
    slow = params
    for t in (2, 1, 0):
        gradient = jax.grad(
            lambda p, t=t: literal_loss(
                algorithm, policy, p, batch, 2 * t, multiplier, jnp.float32(2.0)
            )
        )(slow)
        block = jax.tree.map(
            lambda leaf, t=t: leaf[2 * t : 2 * t + 2], (slow, gradient)
        )
        own, _ = descend(
            CLIPPED_ADAM, block[1], block[0], CLIPPED_ADAM.init(block[0]), 0.05
        )
        slow = jax.tree.map(
            lambda leaf, part, t=t: leaf.at[2 * t : 2 * t + 2].set(part), slow, own
        )
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-5), new, slow
    )


@pytest.mark.parametrize("penalty", ["augmented", "paper"])
def test_one_step_over_whole_episodes_is_the_gradient_of_the_final_loss(penalty):
    """Without an order of time the prices stand for the penalty."""
    algorithm = ECOP(
        beta=2.0,
        penalty=penalty,
        epochs=1,
        minibatches=1,
        learning_rate=0.05,
        kl_goal=0.0,
        caution=0.0,
    )
    policy, params, state, batch = setup(algorithm, dead=False)
    new, _, _ = jax.jit(algorithm.update, static_argnums=1)(
        jax.random.key(0), policy, params, state, batch
    )
    scaled = in_units(algorithm, batch)
    multiplier = literal_multiplier(algorithm, state.multiplier, scaled)
    beta = jnp.float32(2.0)
    gradient = jax.grad(
        lambda p: literal_loss(algorithm, policy, p, scaled, 0, multiplier, beta)
    )(params)
    prices = price(scaled.violation, multiplier, beta, penalty)
    gradient = jax.tree.map(lambda g: g / (1.0 + jnp.sum(prices)), gradient)
    moments = CLIPPED_ADAM.init(params)
    slow, _ = descend(CLIPPED_ADAM, gradient, params, moments, 0.05)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-3, atol=2e-5), new, slow
    )


# Properties


def update(algorithm, batch, seed=0, **kwargs):
    policy, params, state, _ = setup(algorithm, **kwargs)
    run = jax.jit(algorithm.update, static_argnums=1)
    for i in range(2):  # the second meets the state of the first
        params, state, info = run(
            jax.random.key(seed + i), policy, params, state, batch
        )
    return params, state, info


def same(a, b, **tolerance):
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, **tolerance), a, b)


@pytest.mark.parametrize("form", ["time", "per_step"])
def test_scaling_the_reward_changes_nothing(form):
    algorithm = ECOP(backward_steps=3)
    _, _, _, batch = setup(algorithm, form=form)
    one = update(algorithm, batch, form=form)
    larger = with_scales(batch._replace(adv=37.0 * batch.adv))
    two = update(algorithm, larger, form=form)
    same(one, two, rtol=1e-3, atol=1e-5)


def test_scaling_a_cost_with_its_limit_changes_nothing():
    algorithm = ECOP(backward_steps=3)
    _, _, _, batch = setup(algorithm)
    factor = jnp.array([37.0, 0.1])
    scaled = batch._replace(
        cost_adv=batch.cost_adv * factor[None, None],
        cost_error=batch.cost_error * factor,
        violation=batch.violation * factor,
    )
    scaled = with_scales(scaled)
    one, two = update(algorithm, batch), update(algorithm, scaled)
    same(one[0], two[0], rtol=1e-3, atol=1e-5)
    same(one[1].multiplier, two[1].multiplier, rtol=1e-3, atol=1e-6)
    literal = ECOP(backward_steps=3, units="paper")
    one, two = update(literal, batch), update(literal, scaled)
    with pytest.raises(AssertionError):
        same(one[0], two[0], rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("form", ["time", "per_step"])
def test_a_critic_error_alone_puts_no_price_on_cost(form):
    """Within the limits and at multiplier 0 the old policy pays no penalty."""
    algorithm = ECOP(backward_steps=3, learning_rate=1e-4, caution=0.0)
    policy, params, state, batch = setup(algorithm, form=form)
    batch = batch._replace(violation=jnp.full(2, -0.5, jnp.float32))
    wrong = batch._replace(cost_adv=batch.cost_adv + 1.0)
    off = batch._replace(cost_adv=jnp.zeros_like(batch.cost_adv))
    run = jax.jit(algorithm.update, static_argnums=1)
    key = jax.random.key(0)
    result = [run(key, policy, params, state, b)[0] for b in (wrong, off)]
    same(*result, rtol=0, atol=1e-7)


def test_dead_steps_have_no_effect():
    algorithm = ECOP(backward_steps=3)
    _, _, _, batch = setup(algorithm)
    dead = batch.alive == 0.0
    changed = batch._replace(
        observation=jnp.where(dead[..., None], 7.0, batch.observation),
        action=jnp.where(dead[..., None], 3.0, batch.action),
    )
    same(update(algorithm, batch), update(algorithm, changed), rtol=1e-5, atol=1e-6)


def test_predicted_std():
    algorithm = ECOP(backward_steps=2, learning_rate=0.05)
    policy, params, _, batch = setup(algorithm, std="predicted")
    new, _, _ = update(algorithm, batch, std="predicted")
    before = policy.over(params, batch.observation)
    after = policy.over(new, batch.observation)
    assert isinstance(before, Gaussian)
    assert isinstance(after, Gaussian)
    before, after = before.log_std, after.log_std
    assert float(jnp.std(after - before, axis=(0, 1)).max()) > 1e-3


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("beta", 0.0),
        ("beta", float("nan")),
        ("beta_growth", 0.5),
        ("epochs", 0),
        ("multiplier_rate", 0.0),
        ("backward_steps", -1),
        ("clip", 0.0),
        ("caution", -1.0),
    ],
)
def test_bad_options(name, value):
    with pytest.raises(UserError):
        dataclasses.replace(ECOP(), **{name: value})


def test_per_step_needs_whole_blocks():
    with pytest.raises(UserError, match="multiple of backward_steps"):
        setup(ECOP(backward_steps=4), form="per_step")
    assert isinstance(setup(ECOP(), form="per_step")[2], State)
