"""Natural gradients against explicitly formed matrices."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from scipy import optimize

from ecop.learning.trust_region import (
    TrustRegion,
    conjugate_gradient,
    fisher_product,
    gram,
    line_search,
    localise,
    projection,
)
from ecop.types import Box, Discrete
from probes import random_problem


def explicit_fisher(policy, params, batch):
    """E[score score^T] over the living steps, the action summed or integrated out."""
    point, restore = ravel_pytree(params)
    x, alive = batch.observation, np.asarray(batch.alive)

    def outputs(flat):
        return policy.over(restore(flat), x)

    if isinstance(policy.spec.action, Discrete):
        jacobian = jax.jit(jax.jacobian(lambda f: outputs(f).log_probs))(
            point
        )  # [N, H, n, P]
        p = np.exp(outputs(point).log_probs)
        per_step = np.einsum("nha,nhai,nhaj->nhij", p, jacobian, jacobian)
    else:
        jacobian = jax.jit(jax.jacobian(outputs))(point)
        precision = np.exp(-2 * np.asarray(outputs(point).log_std))
        mean, log_std = np.asarray(jacobian.mean), np.asarray(jacobian.log_std)
        # The Fisher matrix of a normal distribution is 1/std^2 for the mean and 2 for
        # the log std.
        per_step = np.einsum("nha,nhai,nhaj->nhij", precision, mean, mean)
        per_step += 2 * np.einsum("nhai,nhaj->nhij", log_std, log_std)
    return np.einsum("nh,nhij->ij", alive, per_step) / alive.sum()


@pytest.mark.parametrize(
    ("form", "action"), [("time", Box(2)), ("per_step", Discrete(3))]
)
def test_natural_gradient(form, action):
    _, policy, params, batch = random_problem(form, action)

    @jax.jit
    def ours(params, batch):
        local = localise(policy, params, batch, TrustRegion())
        gradient = jax.grad(local.gain)(local.point)
        product = fisher_product(local.kl, local.point, 0.1)
        x = conjugate_gradient(product, gradient, 60)
        return local.point, gradient, product(gradient), x

    point, gradient, image, x = ours(params, batch)
    matrix = explicit_fisher(policy, params, batch) + 0.1 * np.eye(len(point))
    np.testing.assert_allclose(image, matrix @ gradient, rtol=1e-3, atol=1e-5)
    solved = np.linalg.solve(matrix, np.asarray(gradient, np.float64))
    np.testing.assert_allclose(x, solved, rtol=1e-2, atol=1e-3 * np.abs(solved).max())


def test_conjugate_gradient_of_nothing_is_nothing():
    zero = jnp.zeros(3, jnp.float32)
    np.testing.assert_array_equal(conjugate_gradient(lambda v: 2.0 * v, zero, 5), zero)


def test_surrogates_predict_the_episodic_cost():
    """L times the cost surrogate is sum_h E[ratio A_C], in the unit of the cost."""
    _, policy, params, batch = random_problem(count=2)
    local = localise(policy, params, batch, TrustRegion())
    shifted = local.point + 0.1
    horizon = batch.alive.shape[1]
    after = policy.over(local.restore(shifted), batch.observation)
    ratio = np.exp(np.asarray(after.log_prob(batch.action) - batch.log_prob))
    alive, cost_adv = np.asarray(batch.alive), np.asarray(batch.cost_adv)
    slow = np.zeros(2)
    for h in range(horizon):
        slow += (alive[:, h] * ratio[:, h]) @ cost_adv[:, h] / len(alive)
    length = alive.sum() / len(alive)
    np.testing.assert_allclose(length * local.costs(shifted), slow, rtol=1e-4)


@pytest.mark.parametrize(
    ("limit", "share"), [(10.0, 1.0), (1.0, 0.5), (0.3, 0.125), (1e-9, 0.0)]
)
def test_line_search(limit, share):
    step = jnp.asarray([2.0, 0.0], jnp.float32)
    found = line_search(lambda s: jnp.max(s) <= limit, step, 5, 0.5)
    assert float(found) == share


def project(b, excess):
    """Our multipliers, and B L^-1 B^T in double precision; L is the identity."""
    rows = jnp.asarray(b, jnp.float32)
    mu = jax.jit(lambda b, a: projection(gram(b, b))(a))(
        rows, jnp.asarray(excess, jnp.float32)
    )
    return np.asarray(mu, np.float64), b @ b.T


def check_optimal(b, excess, tolerance=1e-3):
    """The conditions of Karush, Kuhn and Tucker."""
    mu, s = project(b, excess)
    left = excess - s @ mu  # what remains of each constraint
    size = np.abs(excess).max() + 1e-9
    assert np.all(mu >= 0.0)
    assert np.all(left <= tolerance * size)
    assert np.all(np.abs(left[mu > 0.0]) <= tolerance * size)
    return mu


@pytest.mark.parametrize("count", [1, 2, 3, 5])
@pytest.mark.parametrize("seed", range(6))
def test_projection_against_a_generic_solver(seed, count):
    rng = np.random.default_rng([seed, count])
    b, excess = rng.normal(size=(count, 6)), rng.normal(size=count)
    mu = check_optimal(b, excess)
    # mu S mu / 2 - mu a is |B^T mu - y|^2 / 2 less a constant, for B y = a.
    y = np.linalg.lstsq(b, excess, rcond=None)[0]
    slow, _ = optimize.nnls(b.T, y)
    np.testing.assert_allclose(mu, slow, rtol=1e-3, atol=1e-3 * (1 + slow.max()))


def test_projection_onto_dependent_constraints():
    b = np.array([1.0, 2.0, -1.0])
    # One is enough.
    np.testing.assert_allclose(project(b[None], np.ones(1))[0], 1 / 6, rtol=1e-3)
    # Twice the same, and the same in another unit.
    assert check_optimal(np.stack([b, b]), np.ones(2)).sum() == pytest.approx(
        1 / 6, rel=1e-3
    )
    check_optimal(np.stack([b, 10 * b]), np.array([1.0, 10.0]))
    check_optimal(np.stack([b, b]), np.array([1.0, 0.5]))
    # No step changes the first.
    mu, _ = project(np.stack([0 * b, b]), np.array([3.0, 1.0]))
    np.testing.assert_allclose(mu, [0.0, 1 / 6], rtol=1e-3)
    # They contradict each other: a compromise, and a distance that says so.
    opposed = np.stack([b, -b])
    mu, _ = project(opposed, np.ones(2))
    np.testing.assert_allclose(opposed.T @ mu / mu.max(), 0.0, atol=1e-3)
    assert np.isfinite(mu).all()
    assert mu.sum() > 1e3


def test_projection_without_constraints():
    assert project(np.zeros((0, 3)), np.zeros(0))[0].shape == (0,)
