"""Our tasks as Gymnasium environments: the checker, the costs, the same episodes."""

import builtins
import time
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode

import ecop
from ecop.envs import ENVS
from ecop.errors import UserError
from ecop.interop import gymnasium_out
from ecop.learning import normaliser
from ecop.learning.networks import Policy
from ecop.rollout import Actor, collector, draws
from ecop.training import stack
from probes import Walk


@pytest.fixture
def walk(monkeypatch):
    monkeypatch.setitem(ENVS, "Walk", "probes:Walk")


@pytest.mark.parametrize("name", ["PointCircle", "Inventory"])
def test_gymnasiums_own_checker_is_content(name):
    check_env(ecop.make_gymnasium(name))
    spec = ecop.make_gymnasium(name).spec
    assert spec is not None
    check_env(spec.make().unwrapped)


def test_costs_and_attributes(walk):
    env = ecop.make_gymnasium("Walk", horizon=5)
    assert env.unwrapped is env
    assert env.cost_names == ("right", "left")
    np.testing.assert_array_equal(env.cost_limits, [1.0, 2.0])
    assert env.horizon == 5
    for side, costs in ((1.0, [1.0, 0.0]), (-1.0, [0.0, 1.0])):
        env.reset(seed=4)  # starts near the middle
        first, _, last = (env.step(np.array([a]))[4] for a in (0.0, side, side))
        np.testing.assert_array_equal(first["costs"], [0.0, 0.0])
        np.testing.assert_array_equal(last["costs"], costs)
        assert [last[f"cost_{name}"] for name in env.cost_names] == costs
        assert last["cost"] == 1.0


def test_the_learners_episodes(walk):
    policy = Policy(Walk().spec, initial_log_std=0.5)
    params = policy.init(jax.random.key(0))
    actor = stack([Actor(params, normaliser.init(2))])
    key = stack([jax.random.key(7)])
    batch = collector(Walk(), policy, 8)(actor, key)
    seeds, _ = jax.jit(lambda key: draws(policy, key, jnp.arange(8)))(key[0])
    env = ecop.make_gymnasium("Walk")
    ends = set()
    for n, seed in enumerate(np.asarray(seeds).tolist()):
        observation, _ = env.reset(seed=seed)
        for h in range(8):
            np.testing.assert_allclose(
                observation, batch.observation[0, n, h], atol=1e-6
            )
            observation, reward, terminated, truncated, info = env.step(
                batch.action[0, n, h]
            )
            np.testing.assert_allclose(reward, batch.reward[0, n, h], atol=1e-6)
            np.testing.assert_allclose(info["costs"], batch.costs[0, n, h])
            assert truncated == (h == 7)
            if terminated or truncated:
                assert terminated or not bool(batch.failed[0, n])
                ends.add(terminated)
                break
        with pytest.raises(gymnasium.error.ResetNeeded):
            env.step(np.zeros(1))
    assert ends == {True, False}


def test_the_batch_gives_the_same_episodes_and_restarts_them(walk):
    count = 6
    one: list[Any] = [ecop.make_gymnasium("Walk") for _ in range(count)]
    many = ecop.make_gymnasium_vec("Walk", count)
    assert many.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP
    first, _ = many.reset(seed=20)
    np.testing.assert_allclose(
        first, [env.reset(seed=20 + i)[0] for i, env in enumerate(one)]
    )
    rng = np.random.default_rng(0)
    done = np.zeros(count, bool)
    restarted = 0
    for _ in range(12):
        actions = rng.uniform(-1, 1, (count, 1)).astype(np.float32)
        observation, reward, terminated, truncated, info = many.step(actions)
        assert many.observation_space.contains(observation)
        for i in np.flatnonzero(~done):
            if one[i] is None:
                continue
            alone = one[i].step(actions[i])
            np.testing.assert_allclose(observation[i], alone[0], atol=1e-6)
            np.testing.assert_allclose(reward[i], alone[1], atol=1e-6)
            assert (terminated[i], truncated[i]) == alone[2:4]
            np.testing.assert_array_equal(info["costs"][i], alone[4]["costs"])
        for i in np.flatnonzero(done):
            assert reward[i] == 0.0
            assert info["cost"][i] == 0.0
            assert not terminated[i]
            assert not truncated[i]
            one[i] = None
            restarted += 1
        done = terminated | truncated
    assert restarted >= count


def test_seeds_of_the_batch():
    env = ecop.make_gymnasium_vec("PointCircle", 3)
    a, _ = env.reset(seed=5)
    b, _ = env.reset(seed=[5, 6, None])
    c, _ = env.reset()
    np.testing.assert_array_equal(a[:2], b[:2])
    assert (b != c).any()
    with pytest.raises(UserError, match="num_envs"):
        ecop.make_gymnasium_vec("PointCircle", 0)


def test_six_tuples(walk):
    env = ecop.to_safety_gymnasium(ecop.make_gymnasium("Walk"))
    env.reset(seed=4)  # starts near the middle
    outs = [env.step(np.array([a])) for a in (0.0, 1.0, 1.0)]
    assert all(len(out) == 6 for out in outs)
    assert [out[2] for out in outs] == [out[5]["cost"] for out in outs]
    assert outs[0][2] == 0.0
    assert outs[2][2] == 1.0


def test_compiled_once_for_all_environments_and_quick():
    ecop.make_gymnasium("PointCircle").reset(seed=0)
    before = gymnasium_out._programs.cache_info().misses
    env = ecop.make_gymnasium("PointCircle")
    assert gymnasium_out._programs.cache_info().misses == before
    env.reset(seed=0)
    env.step(np.zeros(2, np.float32))
    assert env._programs.step._cache_size() == 1
    start = time.perf_counter()
    for _ in range(100):
        env.step(np.zeros(2, np.float32))
    assert time.perf_counter() - start < 2.0


def test_without_gymnasium_one_sentence(monkeypatch):
    real = builtins.__import__

    def absent(name, *args, **kwargs):
        if name.split(".")[0] == "gymnasium":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", absent)
    with pytest.raises(UserError, match=r"pip install 'ecop\[gym\]'"):
        ecop.make_gymnasium("PointCircle")


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_stable_baselines3_trains():
    sb3 = pytest.importorskip("stable_baselines3")
    from gymnasium.wrappers import TimeAwareObservation

    task = ecop.make_gymnasium("PointCircle")
    env = TimeAwareObservation(task, normalize_time=True)
    model = sb3.PPO("MlpPolicy", env, n_steps=1000, batch_size=100, seed=0)

    def episodic(count=10):
        total = 0.0
        for seed in range(count):
            observation, _ = env.reset(seed=seed)
            over = False
            while not over:
                action, _ = model.predict(observation, deterministic=True)
                observation, reward, terminated, truncated, _ = env.step(action)
                total += float(reward)
                over = terminated or truncated
        return total / count

    before = episodic()
    model.learn(20_000)
    after = episodic()
    print(f"reward {before:.1f} before, {after:.1f} after 20,000 steps")
    assert after > before + 20
