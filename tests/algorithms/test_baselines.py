"""The formulas of the baselines against slow versions and a generic solver."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from scipy import optimize

from ecop.algorithms.appo import APPO
from ecop.algorithms.cpo import CPO, solve_dual
from ecop.algorithms.focops import gated_loss
from ecop.algorithms.ipo import barrier_slope
from ecop.algorithms.p3o import P3O
from ecop.algorithms.pcpo import PCPO
from ecop.algorithms.pdo import policy_gradient_loss
from ecop.algorithms.ppo_lag import lagrangian_loss
from ecop.algorithms.trpo_lag import TRPOLagrangian
from ecop.learning.descent import CLIPPED_ADAM, descend
from ecop.learning.multipliers import grown_margin
from ecop.learning.surrogates import (
    centred,
    clipped_loss,
    clipped_rise,
    dimensionless,
    mean_kl,
)
from ecop.learning.trust_region import TrustRegion, localise
from probes import compiled, random_problem, with_scales


def moved(params, by=0.15):
    return jax.tree.map(lambda x: x + by, params)


# CPO


DELTA = 0.02


def instance(seed, count):
    """A random step problem in an orthonormal basis of F: h, d [count, P], c [count].

    Each limit alone lies somewhere from far inside to just outside the region.
    """
    rng = np.random.default_rng(seed)
    h, d = rng.normal(size=4), rng.normal(size=(count, 4))
    place = [-2.0, -0.7, -0.2, 0.0, 0.3, 0.9, 1.5]
    chosen = [place[seed % 7], *rng.choice(place[:5], count - 1)]
    return h, d, chosen * np.sqrt(2 * DELTA * np.sum(d**2, axis=1))


def dual_of(h, d, c):
    """CPO's dual in float32, and the step it stands for."""
    q, r, s, c = (jnp.asarray(x, jnp.float32) for x in (h @ h, d @ h, d @ d.T, c))
    dual = jax.jit(solve_dual, static_argnums=4)(q, r, s, c, DELTA)
    return dual, float(dual.share) * (float(dual.t) * h - np.asarray(dual.mu) @ d)


def nearest(d, c):
    """The shortest y with c + d y <= 0, by a generic solver."""
    found = optimize.minimize(
        lambda y: 0.5 * y @ y,
        np.zeros(d.shape[1]),
        jac=lambda y: y,
        constraints={
            "type": "ineq",
            "fun": lambda y: -(c + d @ y),
            "jac": lambda y: -d,
        },
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 500},
    )
    return found.x


def closed_form(q, r, s, c):
    """The paper's lambda and nu for one constraint that the region meets."""
    if c <= 0.0 and c**2 >= 2 * DELTA * s:
        return np.sqrt(q / (2 * DELTA)), 0.0

    def value(scale):
        nu = max(0.0, r + scale * c) / s
        square = q - 2 * nu * r + nu**2 * s
        return 0.5 * square / scale + scale * DELTA - nu * c

    border = -r / c if c else np.inf * np.sign(r)
    pieces = ((border, np.inf), (0.0, border)) if c > 0.0 else ((0.0, border),) * 2
    bound = np.clip(
        np.sqrt((q - r**2 / s) / (2 * DELTA - c**2 / s)), *np.maximum(pieces[0], 1e-9)
    )
    free = np.sqrt(q / (2 * DELTA))
    free = np.clip(free, 1e-9, max(border, 1e-9)) if c > 0.0 else max(free, border)
    scale = min((bound, free), key=value)
    return scale, max(0.0, r + scale * c) / s


@pytest.mark.parametrize("seed", [s for s in range(28) if s % 7 != 6])
def test_the_dual_of_cpo_against_the_closed_form(seed):
    h, d, c = instance(seed, 1)
    dual, _ = dual_of(h, d, c)
    scale, nu = closed_form(h @ h, (d @ h)[0], (d @ d.T)[0, 0], c[0])
    assert not bool(dual.recover)
    assert float(dual.share) == pytest.approx(1.0, abs=1e-3)
    assert float(dual.t) * scale == pytest.approx(1.0, rel=1e-3)
    assert float(dual.mu[0] / dual.t) == pytest.approx(nu, rel=1e-3, abs=1e-3)


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("seed", range(14))
def test_the_dual_of_cpo_against_a_generic_solver(seed, count):
    h, d, c = instance(seed, count)
    reach = np.sqrt(2 * DELTA * np.sum(d**2, axis=1))
    close = nearest(d, c)
    dual, ours = dual_of(h, d, c)
    assert 0.5 * ours @ ours <= DELTA * 1.001
    assert bool(dual.recover) == (0.5 * close @ close > DELTA)
    if bool(dual.recover):
        along = close * np.sqrt(2 * DELTA / (close @ close))
        np.testing.assert_allclose(ours, along, rtol=1e-3, atol=1e-4)
        assert np.all(d @ ours < 0.0, where=c > 0.0)
        return
    # At exactly 0 the region has no gradient and the solver no direction.
    best = optimize.minimize(
        lambda y: -h @ y,
        close + 1e-3 * h,
        jac=lambda y: -h,
        constraints=[
            {
                "type": "ineq",
                "fun": lambda y: DELTA - 0.5 * y @ y,
                "jac": lambda y: -y,
            },
            {"type": "ineq", "fun": lambda y: -(c + d @ y), "jac": lambda y: -d},
        ],
        method="SLSQP",
        options={"ftol": 1e-10, "maxiter": 500},
    )
    assert np.all(c + d @ ours <= 1e-3 * reach)
    assert np.all(np.asarray(dual.mu) >= 0.0)
    assert h @ ours == pytest.approx(-best.fun, rel=2e-3, abs=1e-4)


def test_the_dual_of_cpo_without_a_cost_gradient():
    h = np.array([1.0, 1.0])
    for c, recover in ((-1.0, False), (0.0, False), (1.0, True)):
        dual, step = dual_of(h, np.zeros((1, 2)), np.array([c]))
        assert bool(dual.recover) == recover
        assert float(dual.mu[0]) == 0.0
        np.testing.assert_allclose(
            step, 0.0 if recover else np.sqrt(DELTA), rtol=1e-3, atol=1e-6
        )
    # Another broken limit is mended all the same.
    d = np.array([[0.0, 0.0], [1.0, 0.0]])
    dual, step = dual_of(h, d, np.array([1.0, 0.1]))
    assert bool(dual.recover)
    np.testing.assert_allclose(step, [-0.1, 0.0], rtol=1e-3, atol=1e-6)


def test_the_dual_of_cpo_when_reward_and_cost_agree():
    """The best step ends at the limit and leaves a part of the region unused."""
    h = np.array([1.0, 2.0])
    dual, step = dual_of(h, h[None], np.array([-0.1]))
    assert not bool(dual.recover)
    np.testing.assert_allclose(step, 0.1 * h / (h @ h), rtol=1e-2)


def one_update(algorithm, problem, batch):
    spec, policy, params, _ = problem
    state = algorithm.init(policy, params, spec)
    return compiled(algorithm, policy)(jax.random.key(0), params, state, batch)


def divergence(problem, new):
    """Mean KL of the new parameters from the old ones."""
    _, policy, params, batch = problem
    return float(mean_kl(policy, params, new, batch))


def predicted(problem, batch, new):
    """Gain and predicted violations of the new parameters, dimensionless."""
    _, policy, params, _ = problem
    gain, violations = _predicted(policy, params, batch, new)
    return float(gain), np.asarray(violations)


@functools.partial(jax.jit, static_argnums=0)
def _predicted(policy, params, batch, new):
    batch = dimensionless(centred(batch))
    local = localise(policy, params, batch, TrustRegion())
    flat, _ = ravel_pytree(new)
    gain = local.gain(flat) - local.gain(local.point)
    return gain, local.costs(flat) + batch.violation


@pytest.mark.parametrize(
    "algorithm",
    [
        CPO(target_kl=0.01),
        PCPO(target_kl=0.01),
        pytest.param(PCPO(projection="l2", target_kl=0.01), marks=pytest.mark.slow),
        # A rate at which one violation counts for ten iterations.
        pytest.param(TRPOLagrangian(multiplier_rate=200.0), marks=pytest.mark.slow),
    ],
)
def test_trust_regions_keep_their_promises(algorithm):
    problem = random_problem()
    batch = problem[3]
    lagrangian = isinstance(algorithm, TRPOLagrangian)
    # Far inside the limit: a plain TRPO step for all of them.
    slack = batch._replace(violation=jnp.asarray([-50.0], jnp.float32))
    free, _, info = one_update(algorithm, problem, slack)
    trpo, _, _ = one_update(TRPOLagrangian(), problem, slack)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-5), free, trpo
    )
    gain, _ = predicted(problem, slack, free)
    assert gain > 0.0
    assert (
        0.2 * algorithm.region.target_kl
        < divergence(problem, free)
        <= algorithm.region.target_kl
    )
    # Far outside: the cost must fall.
    broken = batch._replace(violation=jnp.asarray([50.0], jnp.float32))
    new, _, info = one_update(algorithm, problem, broken)
    _, violation = predicted(problem, broken, new)
    start = predicted(problem, broken, problem[2])[1]
    assert violation < start - 1e-3
    assert divergence(problem, new) <= algorithm.region.target_kl
    if lagrangian:
        return
    # Close to the limit, with a reward step that raises the cost: it is bent.
    tied = with_scales(
        batch._replace(
            cost_adv=0.5 * batch.cost_adv + batch.adv[..., None],
            violation=jnp.full(1, -0.1, jnp.float32),
        )
    )
    new, _, info = one_update(algorithm, problem, tied)
    gain, violation = predicted(problem, tied, new)
    assert violation <= 1e-4
    assert float(info["multipliers"][0]) > 0.0
    assert gain > 0.0


@pytest.mark.parametrize("algorithm", [CPO(target_kl=0.01), PCPO(target_kl=0.01)])
def test_trust_regions_keep_several_limits(algorithm):
    problem = random_problem(count=2)
    batch = problem[3]
    # Both broken: both must fall.
    broken = batch._replace(violation=jnp.full(2, 50.0, jnp.float32))
    new, _, info = one_update(algorithm, problem, broken)
    start = predicted(problem, broken, problem[2])[1]
    assert np.all(predicted(problem, broken, new)[1] < start - 1e-3)
    assert divergence(problem, new) <= algorithm.region.target_kl
    # The first is far, the second close and against the reward.
    tied = with_scales(
        batch._replace(
            cost_adv=0.5 * batch.cost_adv + batch.adv[..., None],
            violation=jnp.asarray([-50.0, -0.1], jnp.float32),
        )
    )
    new, _, info = one_update(algorithm, problem, tied)
    gain, violations = predicted(problem, tied, new)
    assert np.all(violations <= 1e-4)
    assert gain > 0.0
    assert float(info["multipliers"][0]) == 0.0
    assert float(info["multipliers"][1]) > 0.0
    # A limit that is far is as good as none.
    alone = random_problem(count=1)
    one = tied._replace(
        cost_adv=tied.cost_adv[..., 1:],
        cost_error=tied.cost_error[1:],
        violation=tied.violation[1:],
        cost_scale=tied.cost_scale[1:],
    )
    other, _, _ = one_update(algorithm, alone, one)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-5), new, other
    )


# First-order objectives


def test_gate_of_focops():
    _, policy, params, batch = random_problem()
    new, old = (policy.over(p, batch.observation) for p in (moved(params), params))
    kl = np.asarray(new.kl(old))
    gate = float(np.median(kl))
    ratio = np.exp(np.asarray(new.log_prob(batch.action) - batch.log_prob))
    total = 0.0
    for n, h in np.ndindex(kl.shape):
        if batch.alive[n, h] and kl[n, h] <= gate:
            total += kl[n, h] - ratio[n, h] * float(batch.adv[n, h]) / 1.5
    ours = gated_loss(new, old, batch, 1.5, gate)
    living = float(batch.alive.sum())
    assert float(ours) == pytest.approx(total / living, rel=1e-4)
    # A closed gate has no gradient at all.
    gradient = jax.grad(
        lambda p: gated_loss(policy.over(p, batch.observation), old, batch, 1.5, 1e-9)
    )(moved(params))
    assert max(float(jnp.abs(x).max()) for x in jax.tree.leaves(gradient)) == 0.0


def test_barrier_of_ipo():
    """The slope of -log(-psi) / t, and no more than the largest."""
    t, slope = 20.0, 5.0
    psi = [-2.0, -0.5, -0.0101, -0.0099, 0.0, 3.0]
    ours = barrier_slope(jnp.asarray(psi, jnp.float32), t, slope)
    exact = [1 / (t * 2.0), 1 / (t * 0.5), 1 / (t * 0.0101), slope, slope, slope]
    np.testing.assert_allclose(ours, exact, rtol=1e-3)


def test_penalty_of_p3o_is_exact():
    """With a slack limit the penalty is silent: P3O is then PPO to the bit."""
    from ecop.algorithms.ppo import PPO

    problem = random_problem()
    slack = problem[3]._replace(violation=jnp.asarray([-50.0], jnp.float32))
    options = {"epochs": 3, "learning_rate": 0.01}
    ours, _, _ = one_update(P3O(**options), problem, slack)
    plain, _, _ = one_update(PPO(**options), problem, slack)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6), ours, plain
    )


def test_loss_of_ppo_lagrangian():
    _, policy, params, batch = random_problem()
    new = policy.over(moved(params), batch.observation)
    ratio = np.exp(np.asarray(new.log_prob(batch.action) - batch.log_prob))
    mixed = (np.asarray(batch.adv) - 3.0 * np.asarray(batch.cost_adv)[..., 0]) / 4.0
    slow = np.minimum(ratio * mixed, np.clip(ratio, 0.8, 1.2) * mixed)
    alive = np.asarray(batch.alive)
    slow = -(alive * slow).sum() / alive.sum()
    loss = lagrangian_loss(jnp.asarray([3.0], jnp.float32), 0.2)
    assert float(loss(new, batch, None)) == pytest.approx(slow, rel=1e-4)


def test_policy_gradient_is_that_of_the_surrogate():
    """At the old policy the gradients of log pi A and of ratio A agree."""
    _, policy, params, batch = random_problem()

    def ours(p):
        return policy_gradient_loss(policy.over(p, batch.observation), batch, None)

    local = localise(policy, params, batch, TrustRegion())
    surrogate = local.restore(-jax.grad(local.gain)(local.point))
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-6),
        jax.grad(ours)(params),
        surrogate,
    )


@pytest.mark.parametrize("algorithm", [CPO(target_kl=0.01), PCPO(target_kl=0.01)])
def test_a_margin_is_a_limit_that_is_lower_by_as_much(algorithm):
    """A step with margin m is the step without one at a violation higher by m."""
    spec, policy, params, batch = random_problem()
    batch = batch._replace(violation=jnp.full(1, -0.1, jnp.float32))
    state = algorithm.init(policy, params, spec)
    unit = float((batch.violation / dimensionless(batch).violation)[0])
    run = compiled(algorithm, policy)
    key, m = jax.random.key(0), 0.2
    held = state._replace(margin=jnp.full(1, m, jnp.float32))
    with_margin, after, _ = run(key, params, held, batch)
    grown = float(after.margin[0])
    assert grown == pytest.approx(m + 0.05 * max(-0.1 / unit, -0.05), rel=1e-3)
    higher = batch._replace(violation=batch.violation + grown * unit)
    # Above the limit a fresh margin would grow: it starts as far below zero.
    less = grown_margin(jnp.zeros(1), higher.violation / unit)
    higher = higher._replace(violation=higher.violation - less * unit)
    without, _, _ = run(key, params, state, higher)
    free, _, _ = run(key, params, state, batch)
    flat = [np.asarray(ravel_pytree(x)[0]) for x in (with_margin, without, free)]
    np.testing.assert_allclose(flat[0], flat[1], rtol=1e-3, atol=1e-4)
    assert np.abs(flat[0] - flat[2]).max() > 1e-3


def test_prices_of_appo_stay_through_an_iteration():
    """They are those of the measured violation, wherever the new policy has got."""
    spec, policy, params, batch = random_problem()
    algorithm = APPO(penalty=3.0, epochs=2, minibatches=1, learning_rate=0.05)
    batch = with_scales(
        batch._replace(
            alive=jnp.ones_like(batch.alive),  # a minibatch is the whole batch
            violation=jnp.full(1, 0.4, jnp.float32),
        )
    )
    state = algorithm.init(policy, params, spec)
    new, after, _ = compiled(algorithm, policy)(jax.random.key(0), params, state, batch)
    scaled = dimensionless(centred(batch))
    price = jnp.maximum(0.0, after.multiplier.value + 3.0 * scaled.violation)

    def loss(p):
        made = policy.over(p, scaled.observation)
        costs = jnp.dot(price, clipped_rise(made, scaled, algorithm.clip))
        total = clipped_loss(made, scaled, algorithm.clip) + costs
        return total / (1.0 + jnp.sum(price))

    moments, slow = CLIPPED_ADAM.init(params), params
    for _ in range(2):
        slow, moments = descend(CLIPPED_ADAM, jax.grad(loss)(slow), slow, moments, 0.05)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-2, atol=1e-3), new, slow
    )
