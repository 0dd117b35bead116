"""Each formula against a slow, obvious version."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from ecop.learning import normaliser
from ecop.learning.advantages import gae, returns_to_go
from ecop.learning.averages import follow, start
from ecop.learning.critics import Critics
from ecop.learning.networks import Categorical, Gaussian, Network, with_time
from ecop.learning.surrogates import clipped_cost, clipped_gain, moments, ratio
from ecop.learning.time import APART, SHORT, time_size, time_table

N, H, C = 3, 5, 2


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def floats(rng, *shape):
    return jnp.asarray(rng.normal(size=shape), jnp.float32)


def test_returns_to_go(rng):
    x = floats(rng, N, H, C)
    slow = np.zeros((N, H, C))
    for h in range(H):
        for g in range(h, H):
            slow[:, h] += 0.9 ** (g - h) * np.asarray(x)[:, g]
    np.testing.assert_allclose(returns_to_go(x, 0.9), slow, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("discount", "decay"), [(1.0, 0.9), (0.95, 0.8), (1.0, 0.0)])
def test_gae_with_a_failed_episode(rng, discount, decay):
    signal, value = floats(rng, N, H, C), floats(rng, N, H, C)
    alive = np.ones((N, H), np.float32)
    alive[1, 3:] = 0.0  # failed in step 2
    signal = signal * alive[..., None]
    slow = np.zeros((N, H, C))
    for n in range(N):
        running = np.zeros(C)
        last = int(alive[n].sum()) - 1
        for h in range(last, -1, -1):
            after = np.asarray(value)[n, h + 1] if h < last else np.zeros(C)
            delta = np.asarray(signal)[n, h] + discount * after
            delta -= np.asarray(value)[n, h]
            running = delta + discount * decay * running
            slow[n, h] = running
    ours = gae(signal, value, jnp.asarray(alive), discount=discount, decay=decay)
    np.testing.assert_allclose(ours, slow, rtol=1e-4, atol=1e-5)


def test_gae_without_decay_is_return_minus_value(rng):
    signal, value = floats(rng, N, H, C), floats(rng, N, H, C)
    ours = gae(signal, value, jnp.ones((N, H)), decay=1.0)
    np.testing.assert_allclose(
        ours, returns_to_go(signal) - value, rtol=1e-4, atol=1e-5
    )


def test_surrogates(rng):
    new, old, adv = (floats(rng, N, H) for _ in range(3))
    cost_adv = floats(rng, N, H, C)
    r = ratio(new, old)
    np.testing.assert_allclose(r, np.exp(np.asarray(new) - np.asarray(old)), rtol=1e-5)
    gain, cost = clipped_gain(r, adv, 0.2), clipped_cost(r, cost_adv, 0.2)
    for n in range(N):
        for h in range(H):
            q = float(r[n, h])
            bounded = min(max(q, 0.8), 1.2)
            a = float(adv[n, h])
            assert gain[n, h] == pytest.approx(min(q * a, bounded * a), rel=1e-5)
            for i in range(C):
                a = float(cost_adv[n, h, i])
                assert cost[n, h, i] == pytest.approx(max(q * a, bounded * a), rel=1e-5)


def test_moments_ignore_dead_steps(rng):
    x = np.array(floats(rng, N, H, C))
    alive = np.ones((N, H), np.float32)
    alive[0, 2:] = 0.0
    x[0, 2:] = 1e6
    mean, std = moments(jnp.asarray(x), jnp.asarray(alive))
    living = x[alive > 0]
    np.testing.assert_allclose(mean, living.mean(axis=0), rtol=1e-4)
    np.testing.assert_allclose(std, living.std(axis=0), rtol=1e-4)


def test_gaussian(rng):
    mean, log_std, action = (floats(rng, N, 2) for _ in range(3))
    ours = Gaussian(mean, log_std)
    loc, scale = np.asarray(mean), np.exp(np.asarray(log_std))
    density = stats.norm.logpdf(np.asarray(action), loc, scale).sum(axis=1)
    np.testing.assert_allclose(ours.log_prob(action), density, rtol=1e-4)
    entropy = stats.norm.entropy(loc, scale).sum(axis=1)
    np.testing.assert_allclose(ours.entropy(), entropy, rtol=1e-4)
    other = Gaussian(floats(rng, N, 2), floats(rng, N, 2))
    noise = floats(rng, 200_000, N, 2)
    draws = jax.vmap(ours.sample)(noise)
    sampled = jax.vmap(lambda a: ours.log_prob(a) - other.log_prob(a))(draws)
    np.testing.assert_allclose(ours.kl(other), sampled.mean(axis=0), rtol=0.05)


def test_categorical(rng):
    log_probs = jax.nn.log_softmax(floats(rng, N, 4))
    ours, other = (
        Categorical(log_probs),
        Categorical(jax.nn.log_softmax(floats(rng, N, 4))),
    )
    p, q = np.exp(np.asarray(log_probs)), np.exp(np.asarray(other.log_probs))
    np.testing.assert_allclose(ours.entropy(), stats.entropy(p, axis=1), rtol=1e-4)
    np.testing.assert_allclose(ours.kl(other), stats.entropy(p, q, axis=1), rtol=1e-4)
    action = jnp.array([0, 3, 1])
    np.testing.assert_allclose(
        ours.log_prob(action), np.log(p[np.arange(N), np.asarray(action)]), rtol=1e-5
    )
    noise = jax.random.gumbel(jax.random.key(0), (50_000, N, 4), jnp.float32)
    draws = np.asarray(jax.vmap(ours.sample)(noise))
    frequency = (draws[..., None] == np.arange(4)).mean(axis=0)
    np.testing.assert_allclose(frequency, p, atol=0.01)


def test_normaliser_merges_batches_and_skips_dead_steps(rng):
    state = normaliser.init(2)
    seen = []
    for _ in range(3):
        x = np.array(5.0 + 3.0 * floats(rng, N, H, 2))
        alive = (rng.random((N, H)) < 0.7).astype(np.float32)
        state = normaliser.update(state, jnp.asarray(x), jnp.asarray(alive))
        seen.append(x[alive > 0])
    seen = np.concatenate(seen)
    np.testing.assert_allclose(state.mean, seen.mean(axis=0), rtol=1e-4)
    np.testing.assert_allclose(state.square / state.count, seen.var(axis=0), rtol=1e-3)
    z = normaliser.apply(state, jnp.asarray(seen))
    np.testing.assert_allclose(z.mean(axis=0), 0.0, atol=1e-4)
    np.testing.assert_allclose(z.std(axis=0), 1.0, rtol=1e-3)


def test_the_fit_over_time_is_that_of_least_squares(rng):
    """Living steps only; the first fit counts in full, the next by a tenth."""
    network = Network("time", 2, (), 1, H, last_scale=0.0)
    critics = Critics(network, C, 1.0, learning_rate=1e-9, epochs=1, minibatches=1)
    x = with_time(floats(rng, N, H, 2), jnp.arange(H), H)
    alive = np.ones((N, H), np.float32)
    alive[0, 2:] = 0.0
    target = floats(rng, N, H, C)
    state = critics.init(jax.random.key(0))
    assert not np.asarray(critics.values(state, x)).any()
    rows = alive.reshape(-1) > 0
    design = np.hstack([np.ones((N * H, 1)), np.tile(np.eye(H), (N, 1))])[rows]
    gram = np.zeros((H + 1, H + 1))
    moment = np.zeros((H + 1, C))
    for new, share in ((target, 1.0), (target + 1.0, 0.1)):
        state, _ = critics.fit(jax.random.key(1), state, x, new, jnp.asarray(alive))
        y = np.asarray(new, np.float64).reshape(-1, C)[rows]
        gram += share * (design.T @ design / len(design) - gram)
        moment += share * (design.T @ y / len(design) - moment)
        fit = np.linalg.solve(gram + 1e-4 * np.eye(H + 1), moment)
        slow = fit[0] + fit[1:]
        found = critics.values(state, x)
        np.testing.assert_allclose(found[1], slow, rtol=2e-3, atol=2e-3)
    # Steps that nobody lives to see change nothing.
    fresh = critics.init(jax.random.key(0))
    alive[:, 3:] = 0.0
    whole, _ = critics.fit(jax.random.key(1), fresh, x, target, jnp.asarray(alive))
    part = [a[:, :3] for a in (x, target, jnp.asarray(alive))]
    cut, _ = critics.fit(jax.random.key(1), fresh, *part)
    np.testing.assert_allclose(cut.moment.value, whole.moment.value, rtol=1e-5)
    np.testing.assert_allclose(cut.gram.value, whole.gram.value, rtol=1e-5)


def test_an_average_counts_and_a_zero_is_a_value_like_others():
    average = follow(start((2,)), jnp.asarray([0.0, 4.0]))
    average = follow(average, jnp.asarray([10.0, 8.0]), memory=0.75)
    np.testing.assert_allclose(average.value, [2.5, 5.0])
    hidden = follow(average, jnp.asarray([9.0, 9.0]), known=jnp.asarray([True, False]))
    np.testing.assert_allclose(hidden.count, [3.0, 2.0])
    np.testing.assert_allclose(hidden.value, [3.15, 5.0])


def test_a_critic_without_a_network_is_the_mean_by_step(rng):
    """Returns that depend on time alone leave the network nothing to predict."""
    network = Network("time", 2, (4,), 1, H, last_scale=0.01)
    critics = Critics(network, C, 1.0, learning_rate=1e-3, epochs=3, minibatches=2)
    x, alive = with_time(floats(rng, N, H, 2), jnp.arange(H), H), jnp.ones((N, H))
    target = jnp.broadcast_to(jnp.arange(H, 0, -1.0)[None, :, None], (N, H, C))
    state = critics.init(jax.random.key(0))
    assert not critics.values(state, x).any()
    state, _ = critics.fit(jax.random.key(1), state, x, target, alive)
    np.testing.assert_allclose(critics.values(state, x), target, rtol=1e-3)


@pytest.mark.parametrize("discount", [1.0, 0.97])
def test_over_a_long_horizon_the_trend_is_that_of_a_constant_reward(rng, discount):
    """Two steps of an episode are enough to know the others."""
    horizon = 3 * SHORT
    network = Network("time", 2, (4,), 1, horizon, last_scale=0.0)
    critics = Critics(network, 1, discount, learning_rate=1e-9, epochs=1, minibatches=1)
    x = with_time(floats(rng, 1, horizon, 2), jnp.arange(horizon), horizon)
    slow = np.zeros(horizon + 1)
    for h in reversed(range(horizon)):
        slow[h] = 1.0 + discount * slow[h + 1]
    target = jnp.asarray(slow[None, :-1, None], jnp.float32)
    alive = np.zeros((1, horizon), np.float32)
    alive[0, [0, 60]] = 1.0
    state = critics.init(jax.random.key(0))
    state, _ = critics.fit(jax.random.key(1), state, x, target, jnp.asarray(alive))
    values = np.asarray(critics.values(state, x))[0, :, 0]
    np.testing.assert_allclose(values, slow[:-1], atol=0.03 * slow[0])


@pytest.mark.parametrize("form", ["time", "per_step"])
def test_critics_are_fitted_to_the_living_steps(rng, form):
    """Targets that a linear critic can learn; those of dead steps are no matter."""
    count, horizon = 40, 6
    network = Network(form, 2, (), 1, horizon, last_scale=0.01)
    critics = Critics(network, 1, 1.0, learning_rate=0.02, epochs=80, minibatches=5)
    x = floats(rng, count, horizon, 2)
    target = (
        jnp.sum(x, axis=2, keepdims=True) + jnp.arange(horizon, 0, -1.0)[None, :, None]
    )
    alive = np.ones((count, horizon), np.float32)
    alive[::3, 4:] = 0.0
    x = with_time(x, jnp.arange(horizon), horizon)
    wild = jnp.where(jnp.asarray(alive)[..., None] > 0, target, 1e3)
    fit = jax.jit(critics.fit)
    fresh = critics.init(jax.random.key(0))
    fitted = [
        fit(jax.random.key(1), fresh, x, y, jnp.asarray(alive)) for y in (target, wild)
    ]
    jax.tree.map(np.testing.assert_array_equal, *fitted)
    state, error = fitted[0]
    assert error < 0.02
    gap = np.asarray(critics.values(state, x) - target)[alive > 0]
    assert np.abs(gap).mean() < 0.2


# Time and its gates


@pytest.mark.parametrize("horizon", [1, 7, SHORT, SHORT + 1, 1000])
def test_time_table(horizon):
    table = time_table(horizon)
    assert table.shape == (horizon, time_size(horizon))
    assert table.dtype == np.float32
    for h in range(horizon):
        if horizon <= SHORT:
            slow = [float(g == h) for g in range(horizon)]
        else:
            slow = [2 * h / horizon - 1]
            for turn in (np.sin, np.cos):
                for k, size in enumerate([0.5, 0.25, 0.125, 0.0625, 0.03125]):
                    slow.append(size * turn(2 * np.pi * 2**k * h / horizon))
        np.testing.assert_allclose(table[h], slow, atol=1e-6)
    assert len(np.unique(table, axis=0)) == horizon


def test_with_time_has_the_row_of_each_step(rng):
    x = floats(rng, N, H, 2)
    ours = np.asarray(with_time(x, jnp.arange(H), H))
    for n in range(N):
        for h in range(H):
            np.testing.assert_allclose(ours[n, h], [*x[n, h], *np.eye(H)[h]])
    one = with_time(x[:, 3], jnp.int32(3), H)
    np.testing.assert_array_equal(one, ours[:, 3])


@pytest.mark.parametrize("horizon", [H, 60])
@pytest.mark.parametrize("hidden", [(), (4,), (4, 3)])
def test_a_gated_network_against_a_slow_one(rng, horizon, hidden):
    network = Network("time", 2, hidden, 3, horizon, last_scale=0.5)
    params = jax.tree.map(
        lambda leaf: leaf + 0.3 * floats(rng, *leaf.shape),
        network.init(jax.random.key(0)),
    )
    x = with_time(floats(rng, N, horizon, 2), jnp.arange(horizon), horizon)
    ours = network.over(params, x)
    table = time_table(horizon)
    layers = [{k: np.asarray(v) for k, v in layer.items()} for layer in params]
    for n in range(N):
        for h in range(horizon):
            row = np.asarray(x)[n, h]
            for i, layer in enumerate(layers):
                row = row @ layer["w"] + layer["b"]
                if i < len(layers) - 1:
                    row = np.tanh(row)
                if i == 0 and hidden:
                    row = row * (1 + table[h] @ layer["g"])
            np.testing.assert_allclose(ours[n, h], row, rtol=1e-3, atol=1e-5)
    for h in (0, horizon - 1):
        now, _ = network.at(params, x[:, h], jnp.int32(h), ())
        np.testing.assert_allclose(now, ours[:, h], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("form", ["time", "per_step", "stationary"])
def test_a_network_at_a_step_is_that_over_all(rng, form):
    network = Network(form, 2, (4,), 3, H, last_scale=0.5)
    params = network.init(jax.random.key(0))
    x = with_time(floats(rng, N, H, 2), jnp.arange(H), H)
    whole = np.asarray(network.over(params, x))
    for h in range(H):
        now, _ = network.at(params, x[:, h], jnp.int32(h), ())
        np.testing.assert_allclose(now, whole[:, h], rtol=1e-4, atol=1e-6)
    same = with_time(jnp.ones((1, H, 2)), jnp.arange(H), H)
    spread = np.ptp(np.asarray(network.over(params, same)), axis=1).max()
    assert (spread < 1e-6) == (form == "stationary")


def test_gates_of_a_fresh_network_keep_short_episodes_apart_only():
    short, long = (
        Network("time", 2, (4,), 1, h, 0.01).init(jax.random.key(0)) for h in (H, 60)
    )
    assert short[0]["g"].shape == (H, 4)
    assert np.asarray(short[0]["g"]).std() == pytest.approx(APART, rel=0.5)
    assert not np.asarray(long[0]["g"]).any()
    linear = Network("time", 2, (), 1, H, 0.01).init(jax.random.key(0))
    assert linear[0].keys() == {"w", "b"}
