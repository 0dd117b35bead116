"""A tabular CMDP as a JAX task: sampled episodes agree with the exact values."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

from ecop.envs.tabular import TabularEnv
from ecop.exact import PROBLEMS, evaluate_exact, occupancy_of, random_cmdp
from ecop.types import Discrete


@pytest.fixture(autouse=True)
def strict():
    with jax.numpy_dtype_promotion("strict"), jax.numpy_rank_promotion("raise"):
        yield


def sample(env, policy, episodes, seed):
    """Return rewards [N, H], costs [N, H, C] and states [N, H] under a policy."""
    log_policy = jnp.log(jnp.asarray(policy, jnp.float32))

    def episode(key):
        start, later = jax.random.split(key)
        state, observation = env.reset(start)

        def step(carry, keys):
            state, observation = carry
            seen = jnp.argmax(observation)
            action = jax.random.categorical(keys[0], log_policy[state.h, seen])
            out = env.step(keys[1], state, action.astype(jnp.int32))
            return (out.state, out.observation), (out.reward, out.costs, seen)

        pairs = jax.random.split(later, (env.spec.horizon, 2))
        return jax.lax.scan(step, (state, observation), pairs)[1]

    return jax.jit(jax.vmap(episode))(jax.random.split(jax.random.key(seed), episodes))


@pytest.fixture(scope="module")
def cmdp():
    return random_cmdp(seed=4, states=7, successors=3, constraints=2, time_varying=True)


def test_sampled_means_agree_with_exact_values(cmdp):
    rng = np.random.default_rng(1)
    policy = rng.dirichlet(np.ones(cmdp.actions), (cmdp.horizon, cmdp.states))
    rewards, costs, states = sample(TabularEnv(cmdp), policy, 4000, seed=0)
    value, cost_values = evaluate_exact(cmdp, policy)
    returns = np.asarray(rewards, np.float64).sum(axis=1)
    cost_returns = np.asarray(costs, np.float64).sum(axis=1)

    def error(samples):
        return samples.std(axis=0) / np.sqrt(len(samples)) + 1e-6

    assert abs(returns.mean() - value) < 4 * error(returns)
    assert (
        np.abs(cost_returns.mean(axis=0) - cost_values) < 4 * error(cost_returns)
    ).all()
    last = np.bincount(np.asarray(states)[:, -1], minlength=cmdp.states) / 4000
    expected = occupancy_of(cmdp, policy)[-1].sum(axis=-1)
    deviation = np.sqrt(expected * (1 - expected) / 4000) + 1e-6
    assert (np.abs(last - expected) < 5 * deviation).all()
    assert last[expected == 0].sum() == 0


def test_contract(cmdp):
    env = TabularEnv(cmdp)
    assert env.spec.observation_size == 7
    assert env.spec.action == Discrete(3)
    assert env.spec.limits == cmdp.limits
    state, observation = env.reset(jax.random.key(0))
    assert observation.shape == (7,)
    assert observation.dtype == jnp.float32
    assert observation[state.index] == 1
    out = jax.jit(env.step)(jax.random.key(1), state, jnp.int32(2))
    assert jax.tree.map(jnp.shape, out.state) == jax.tree.map(jnp.shape, state)
    assert [leaf.dtype for leaf in out.state] == [leaf.dtype for leaf in state]
    assert not any(leaf.weak_type for leaf in jax.tree.leaves(out))
    assert out.reward.shape == ()
    assert out.costs.shape == (2,)
    assert not out.failed
    assert out.state.h == 1
    assert_allclose(out.reward, cmdp.reward[0, int(state.index), 2], rtol=1e-6)
    assert_allclose(out.costs, cmdp.costs[:, 0, int(state.index), 2], rtol=1e-6)


def test_only_successors_are_drawn():
    """Zero probabilities stored explicitly, and rows of unlike length, do no harm."""
    ring = PROBLEMS["FactoredRing"]()
    matrix = ring.transition[0].copy()
    matrix.data = matrix.data.astype(float)
    with_zero = matrix.tolil()
    with_zero[0, 0], with_zero[0, 1] = 0.25, 0.75
    env = TabularEnv(replace(ring, transition=(with_zero.tocsr(),)))
    state, _ = env.reset(jax.random.key(0))
    state = state._replace(h=jnp.int32(4))  # the one matrix holds at all steps
    keys = jax.random.split(jax.random.key(1), 500)
    step = jax.jit(jax.vmap(env.step, in_axes=(0, None, None)))
    stay = np.asarray(step(keys, state, jnp.int32(0)).state.index)
    assert set(stay) == {0, 1}
    assert abs((stay == 1).mean() - 0.75) < 0.08
    move = np.asarray(step(keys, state, jnp.int32(1)).state.index)
    assert set(move) == {1}
