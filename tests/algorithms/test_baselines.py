"""The formulas of the baselines against slow versions and a generic solver."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from scipy import optimize

from ecop.algorithms.cpo import CPO, solve_dual
from ecop.algorithms.focops import gated_loss
from ecop.algorithms.ipo import barrier
from ecop.algorithms.p3o import P3O
from ecop.algorithms.pcpo import PCPO
from ecop.algorithms.pdo import policy_gradient_loss
from ecop.algorithms.ppo_lag import lagrangian_loss
from ecop.algorithms.trpo_lag import TRPOLagrangian
from ecop.learning.surrogates import dimensionless
from ecop.learning.trust_region import localise
from probes import random_problem


def moved(params, by=0.15):
    return jax.tree.map(lambda x: x + by, params)


# CPO


def instance(seed):
    """A random step problem of a few parameters: F, g, b, c."""
    rng = np.random.default_rng(seed)
    size = 4
    root = rng.normal(size=(size, size))
    fisher = root @ root.T + 0.3 * np.eye(size)
    g, b = rng.normal(size=size), rng.normal(size=size)
    reach = np.sqrt(2 * DELTA * b @ np.linalg.solve(fisher, b))
    # From far inside the limit to far outside of it.
    c = [-2.0, -0.7, -0.2, 0.0, 0.3, 0.9, 1.5][seed % 7] * reach
    return fisher, g, b, c, reach


DELTA = 0.02


@pytest.mark.parametrize("seed", range(28))
def test_the_dual_of_cpo_against_a_generic_solver(seed):
    fisher, g, b, c, reach = instance(seed)
    natural, cost = np.linalg.solve(fisher, g), np.linalg.solve(fisher, b)
    q, r, s = (jnp.float32(x) for x in (g @ natural, g @ cost, b @ cost))
    dual = jax.jit(solve_dual, static_argnums=4)(q, r, s, jnp.float32(c), DELTA)
    if c > reach:
        assert bool(dual.recover)
        return
    assert not bool(dual.recover)
    ours = (natural - float(dual.multiplier) * cost) / float(dual.scale)
    # The same problem over an orthonormal basis of F, for the generic solver.
    factor = np.linalg.cholesky(fisher)
    h, d = (np.linalg.solve(factor, x) for x in (g, b))
    # At exactly 0 the region has no gradient and the solver no direction.
    start = -d * 1.001 * max(c, 0) / (d @ d) + 1e-3 * h
    best = optimize.minimize(
        lambda y: -h @ y,
        start,
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
    assert 0.5 * ours @ fisher @ ours <= DELTA * 1.001
    assert c + b @ ours <= 1e-3 * reach
    assert g @ ours == pytest.approx(-best.fun, rel=2e-3, abs=1e-4)


def test_the_dual_of_cpo_without_a_cost_gradient():
    zero = jnp.float32(0.0)
    for c, recover in ((-1.0, False), (0.0, False), (1.0, True)):
        dual = solve_dual(jnp.float32(2.0), zero, zero, jnp.float32(c), 0.01)
        assert bool(dual.recover) == recover
        assert float(dual.multiplier) == 0.0
        assert recover or float(dual.scale) == pytest.approx(10.0)


def one_update(algorithm, problem, batch):
    spec, policy, params, _ = problem
    state = algorithm.init(policy, params, spec)
    run = jax.jit(lambda p, s, b: algorithm.update(jax.random.key(0), policy, p, s, b))
    return run(params, state, batch)


def predicted(problem, batch, new):
    """Gain and predicted violation of the new parameters, dimensionless."""
    _, policy, params, _ = problem
    gain, violation = _predicted(policy, params, batch, new)
    return float(gain), float(violation[0])


@functools.partial(jax.jit, static_argnums=0)
def _predicted(policy, params, batch, new):
    batch, _ = dimensionless(batch, jnp.zeros_like(batch.violation))
    local = localise(policy, params, batch)
    flat, _ = ravel_pytree(new)
    gain = local.gain(flat) - local.gain(local.point)
    return gain, local.costs(flat) + batch.violation


@pytest.mark.parametrize(
    "algorithm",
    [
        CPO(),
        PCPO(),
        pytest.param(PCPO(projection="l2"), marks=pytest.mark.slow),
        pytest.param(TRPOLagrangian(), marks=pytest.mark.slow),
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
    assert 0.2 * algorithm.target_kl < float(info["kl"]) <= algorithm.target_kl
    # Far outside: the cost must fall.
    broken = batch._replace(violation=jnp.asarray([50.0], jnp.float32))
    new, _, info = one_update(algorithm, problem, broken)
    _, violation = predicted(problem, broken, new)
    start = predicted(problem, broken, problem[2])[1]
    assert violation < start - 1e-3
    assert float(info["kl"]) <= algorithm.target_kl
    if lagrangian:
        return
    # Close to the limit, with a reward step that raises the cost: it is bent.
    tied = batch._replace(
        cost_adv=0.5 * batch.cost_adv + batch.adv[..., None],
        violation=jnp.full(1, -0.1, jnp.float32),
    )
    new, _, info = one_update(algorithm, problem, tied)
    gain, violation = predicted(problem, tied, new)
    assert violation <= 1e-4
    assert float(info["multipliers"][0]) > 0.0
    assert gain > 0.0


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
    assert float(ours) == pytest.approx(total / kl.size, rel=1e-4)
    # A closed gate has no gradient at all.
    gradient = jax.grad(
        lambda p: gated_loss(policy.over(p, batch.observation), old, batch, 1.5, 1e-9)
    )(moved(params))
    assert max(float(jnp.abs(x).max()) for x in jax.tree.leaves(gradient)) == 0.0


def test_barrier_of_ipo():
    t, slope = 20.0, 5.0
    inside = np.array([-2.0, -0.5, -0.02])
    ours = barrier(jnp.asarray(inside, jnp.float32), t, slope)
    np.testing.assert_allclose(ours, -np.log(-inside) / t, rtol=1e-4)
    derivative = jax.vmap(jax.grad(lambda x: barrier(x[None], t, slope)[0]))
    slopes = derivative(jnp.asarray([-2.0, -0.5, -0.0101, -0.0099, 0.0, 3.0]))
    exact = [1 / (t * 2.0), 1 / (t * 0.5), 1 / (t * 0.0101), slope, slope, slope]
    np.testing.assert_allclose(slopes, exact, rtol=1e-3)


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
    slow = -(np.asarray(batch.alive) * slow).mean()
    loss = lagrangian_loss(jnp.asarray([3.0], jnp.float32), 0.2)
    assert float(loss(new, batch)) == pytest.approx(slow, rel=1e-4)


def test_policy_gradient_is_that_of_the_surrogate():
    """At the old policy the gradients of log pi A and of ratio A agree."""
    _, policy, params, batch = random_problem()

    def ours(p):
        return policy_gradient_loss(policy.over(p, batch.observation), batch)

    local = localise(policy, params, batch)
    surrogate = local.restore(-jax.grad(local.gain)(local.point))
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-6),
        jax.grad(ours)(params),
        surrogate,
    )
