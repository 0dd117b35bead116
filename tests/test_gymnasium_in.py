"""Gymnasium environments as tasks: costs, spaces, workers, runs that can go on."""

import json
from functools import partial

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import ecop
from ecop import runs
from ecop.errors import UserError
from ecop.interop.costs import CostFunction, NamedCosts, VectorReward
from ecop.interop.gymnasium_in import action_form
from ecop.simulators.acting import script
from ecop.simulators.pool import SimulatorPool
from ecop.types import Box, Discrete, MultiDiscrete, Part
from simulators import SPEC, Gym, Make, make_gym, work

TINY = {"seeds": 1, "episodes": 2, "hidden": (4,), "critic_epochs": 1}
QUICK = "ppo_lag"  # compiles in a moment
SEEDS = np.array([3, 4, 5], np.uint32)


def episodes(env, action=0.0):
    """Three episodes with the same action in every step."""
    rows = np.full((env.spec.horizon, 1), action, np.float32)
    out = env.play([script(env.spec)], [Part(int(seed), 0, rows) for seed in SEEDS])
    env.close()
    return out


def first_steps(env):
    """Rewards and costs of the first steps."""
    out = episodes(env, 0.5)  # 5 in the bounds [2, 6]
    return [x.reward[0] for x in out], [x.costs[0] for x in out]


@pytest.mark.parametrize(
    ("way", "costs", "names", "values"),
    [
        ("cost", None, ("cost",), [5.0]),
        ("cost", "cost", ("cost",), [5.0]),
        ("costs", None, ("cost_0", "cost_1"), [5.0, 1.0]),
        ("costs", "costs", ("cost_0", "cost_1"), [5.0, 1.0]),
        ("attributes", None, ("a", "b"), [5.0, 1.0]),
        ("named", None, ("cost_a", "cost_b"), [5.0, 1.0]),
        ("named", ["cost_b", "cost_a"], ("cost_b", "cost_a"), [1.0, 5.0]),
        ("named", "cost_a", ("cost_a",), [5.0]),
        ("sparse", NamedCosts(("cost_a",), absent_is_zero=True), ("cost_a",), [0.0]),
        ("tuple", None, ("cost",), [5.0]),
        ("tuple", "tuple", ("cost",), [5.0]),
        ("vector", VectorReward(0, {"effort": 1}), ("effort",), [5.0]),
        ("vector", ["effort=-reward.1"], ("effort",), [5.0]),
        (
            "vector",
            ["reward=reward.0", "a=-reward.1", "b=reward.1"],
            ("a", "b"),
            [5, -5],
        ),
        ("none", work, ("work",), [5.0]),
        ("none", "simulators:work", ("work",), [5.0]),
        ("none", lambda o, a, n, i, t: t, ("cost",), [0.0]),
        (
            "none",
            CostFunction(lambda o, a, n, i, t: [n["x"][0] - o["x"][0], 2], ("d", "e")),
            ("d", "e"),
            [0.1, 2.0],
        ),
    ],
)
def test_costs_of_every_convention(way, costs, names, values):
    env = ecop.from_gymnasium(partial(Gym, way), horizon=6, costs=costs)
    assert env.spec.cost_names == names
    assert env.spec.observation_size == 4
    reward, paid = first_steps(env)
    np.testing.assert_allclose(paid, [values] * 3, rtol=1e-6)
    np.testing.assert_array_equal(reward, 1.0)
    limits = (4.0, 5.0) if way == "attributes" else (np.inf,) * len(names)
    assert env.spec.limits == limits


@pytest.mark.parametrize(
    ("way", "costs", "words"),
    [
        ("vector", None, r"NAME=-reward\.1|name=-reward\.1"),
        ("cost", "costs", "no 'costs'"),
        ("none", NamedCosts(("cost_a",), absent_is_zero=True), "No cost was found"),
        ("cost", "no_such_module:f", "cannot be imported"),
        ("vector", ["effort=-reward.7"], "entries"),
        ("vector", ["effort=-reward.1", "cost_a"], "'cost_a' is no entry"),
        ("vector", ["reward=reward.1"], "needs one entry to maximise"),
        ("cost", 7, "costs must not be 7"),
        ("none", "cost", "info has no 'cost' but 'speed'"),
        ("cost", "tuple", "returns 5 values"),
        ("sparse", ["cost_a", "cost_b"], "absent_is_zero"),
        ("vector", VectorReward(0, {"effort": 7}), "entries"),
        ("none", lambda *_: None, "returned None"),
        ("none", lambda *_: [1, 2], r"name them all.*f\.names"),
        ("none", lambda obs: 1.0, "raised TypeError.*next_obs"),
    ],
)
def test_a_cost_that_is_not_there_is_an_error(way, costs, words):
    with pytest.raises(UserError, match=words):
        ecop.from_gymnasium(partial(Gym, way), horizon=6, costs=costs)


def test_without_costs_only_ppo_trains():
    env = ecop.from_gymnasium(partial(Gym, "none"), horizon=6)
    assert env.spec.constraints == ()
    for limits in (None, [1.0]):
        with pytest.raises(UserError, match=r"No cost was found.*speed.*ppo"):
            ecop.train(env, QUICK, limits=limits, iterations=1, **TINY)
    run = ecop.train(env, "ppo", iterations=2, watch=None, **TINY)
    assert run.evaluate(episodes=2).summary()["constraints"] == []
    with pytest.raises(UserError, match="No cost was found"):
        ecop.from_gymnasium(partial(Gym, "none"), horizon=6, limits=[1.0])


def test_limits_that_are_infinite_are_known():
    env = ecop.from_gymnasium(partial(Gym, "cost"), horizon=6, limits=[np.inf])
    run = ecop.train(env, QUICK, iterations=1, watch=None, **TINY)
    assert run.learner.spec.enforced == ()
    env = ecop.from_gymnasium(partial(Gym, "cost"), horizon=6)
    with pytest.raises(UserError, match="No limit is known"):
        ecop.train(env, QUICK, iterations=1, **TINY)
    assert ecop.train(env, "ppo", iterations=1, watch=None, **TINY).iteration == 1


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda name: None, "missing a required argument: 'name'.*options"),
        (Gym("cost"), "is no function.*give its id"),
        (lambda: 3, "made 3, which is no environment"),
        (lambda: gymnasium.make_vec("CartPole-v1", 2), "is a vector environment"),
        ("no_such_package:Env-v0", "'no_such_package' cannot be imported.*--python"),
        ("NoSuch-v0", "cannot make 'NoSuch-v0'"),
    ],
)
def test_what_is_no_environment_gets_a_sentence(make, words):
    with pytest.raises(UserError, match=words):
        ecop.from_gymnasium(make, horizon=6)


class Words(gymnasium.Env):
    """Observations with a text in them, as MiniGrid's."""

    observation_space = spaces.Dict({"x": spaces.Box(0, 1), "mission": spaces.Text(9)})
    action_space = spaces.Discrete(2)


def test_text_in_an_observation_gets_a_sentence():
    with pytest.raises(UserError, match=r"\['mission'\] is of type Text.*Filter"):
        ecop.from_gymnasium(Words, horizon=6)


class Old:
    """An environment as Gym had them before 0.26."""

    observation_space = spaces.Box(-1, 1, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, steps=4, cut=False):
        self.steps, self.cut = steps, cut

    def seed(self, seed):
        self.rng = np.random.default_rng(seed)

    def reset(self):
        self.t = 0
        return self.rng.uniform(-1, 1, 2).astype(np.float32)

    def step(self, action):
        self.t += 1
        over = self.t == self.steps
        info = {"cost": 1.0} | (
            {"TimeLimit.truncated": True} if over & self.cut else {}
        )
        return self.rng.uniform(-1, 1, 2).astype(np.float32), 1.0, over, info

    def close(self):
        pass


@pytest.mark.parametrize(("cut", "ended"), [(False, 1), (True, 2)])
def test_environments_of_before_gymnasium(cut, ended):
    env = ecop.from_gymnasium(partial(Old, cut=cut), horizon=6, limits=[1.0])
    assert ecop.check_cmdp(env).healthy is not cut
    rows = np.zeros(6, np.int32)
    (one,) = env.play([script(env.spec)], [Part(3, 0, rows)])
    assert (len(one.reward), one.ended) == (4, ended)


def test_limits_by_name():
    make = partial(Gym, "named")
    env = ecop.from_gymnasium(make, horizon=6, limits={"cost_b": 2.0})
    assert env.spec.limits == (np.inf, 2.0)
    with pytest.raises(UserError, match="cost_z"):
        ecop.from_gymnasium(make, horizon=6, limits={"cost_z": 2.0})
    with pytest.raises(UserError, match="horizon"):
        ecop.from_gymnasium(make)


def test_actions():
    to = action_form(spaces.Box(np.array([-2, 0]), np.array([2, 1]), dtype=np.float32))
    assert to.space == Box(2)
    np.testing.assert_allclose(to(np.array([[0.5, -3.0]])), [[1.0, 0.0]])
    to = action_form(spaces.Discrete(3, start=5))
    assert to.space == Discrete(3)
    assert to(np.array([2, 0])) == [7, 5]
    space = spaces.MultiDiscrete([2, 3])
    to = action_form(space)
    assert to.space == MultiDiscrete((2, 3))
    np.testing.assert_array_equal(to(np.array([[1, 2], [0, 1]])), [[1, 2], [0, 1]])
    assert space.contains(to(np.array([[1, 2]]))[0])
    sizes, start = np.array([[2, 3], [4, 5]]), np.array([[1, 1], [0, 0]])
    grid = spaces.MultiDiscrete(sizes, start=start)
    to = action_form(grid)
    assert to.space == MultiDiscrete((2, 3, 4, 5))
    np.testing.assert_array_equal(to(np.array([[1, 2, 3, 4]])), [[[2, 3], [3, 4]]])
    assert grid.contains(to(np.array([[1, 2, 3, 4]]))[0])
    to = action_form(spaces.MultiBinary(3))
    assert to.space == MultiDiscrete((2, 2, 2))
    assert spaces.MultiBinary(3).contains(to(np.array([[1, 0, 1]]))[0])
    for bad, words in (
        (spaces.Box(-np.inf, np.inf, (1,)), "without bounds"),
        (spaces.Text(3), "Text"),
    ):
        with pytest.raises(UserError, match=words):
            action_form(bad)


def test_an_early_end_is_absorbing_and_counted(caplog):
    env = ecop.from_gymnasium(partial(Gym, "cost", 3), horizon=6)
    for record in episodes(env):
        assert record.ended == 2
        assert record.costs.tolist() == [[4], [4], [4]]
    assert env.ends == {"terminated": 0, "truncated": 3}
    assert "before the horizon of 6" in caplog.text
    exact = ecop.from_gymnasium(partial(Gym, "cost", 6), horizon=6)
    assert [record.ended for record in episodes(exact)] == [0, 0, 0]
    assert exact.ends == {"terminated": 0, "truncated": 0}


def test_the_time_limit_of_an_id_is_lifted():
    env = ecop.from_gymnasium("Pendulum-v1", horizon=210, costs=work)
    assert [len(record.reward) for record in episodes(env)] == [210] * 3
    assert ecop.from_gymnasium("Pendulum-v1", costs=work).spec.horizon == 200


def test_workers_train_to_the_same_bits_and_resume(tmp_path):
    finals = []
    for workers in (0, 2):
        path = tmp_path / str(workers)
        env = ecop.from_gymnasium(
            make_gym, horizon=6, limits=[20.0], workers=workers, live=1 + workers
        )
        ecop.train(env, QUICK, out=path, iterations=2, **TINY)
        env.close()
        with pytest.raises(UserError, match=r"'simulators:make_gym'.*trust=True"):
            ecop.resume(path, iterations=4)
        run = ecop.resume(path, iterations=4, trust=True)
        run.learner.env.close()
        assert run.config.task == "simulators:make_gym"
        assert run.metrics[-1]["limits"] == [20.0]
        finals.append((path / "checkpoints/00000004/state.safetensors").read_bytes())
        assert len(runs.read_metrics(path)) == 4
    assert finals[0] == finals[1]


def test_an_environment_without_a_name_must_be_given_again(tmp_path):
    path = tmp_path / "run"
    env = ecop.from_gymnasium(partial(Gym, "cost"), horizon=6, limits=[20.0])
    ecop.train(env, QUICK, out=path, iterations=1, **TINY)
    assert json.loads((path / "config.json").read_text())["env_options"] is None
    for go_on in (ecop.load, ecop.resume):
        with pytest.raises(UserError, match="env=env"):
            go_on(path)
    assert ecop.resume(path, iterations=2, env=env).finished
    for bad, words in ((Gym(), "from_gymnasium"), (make_gym, "from_gymnasium")):
        with pytest.raises(UserError, match=words):
            ecop.train(bad)
    free = ecop.from_gymnasium(make_gym, horizon=6)
    with pytest.raises(UserError, match="No limit is known"):
        ecop.train(free)
    with pytest.raises(UserError, match="horizon is 6"):
        ecop.train(env, horizon=7)


@pytest.mark.parametrize("fault", ["raise", "kill"])
def test_a_fault_for_good_is_saved_and_can_go_on(fault, tmp_path, monkeypatch):
    play = SimulatorPool.play
    calls = []

    def third_batch_is_ill(self, policies, parts, ahead):
        calls.append(parts)
        if len(calls) == 3:
            parts = [part._replace(seed=1) for part in parts]
        return play(self, policies, parts, ahead)

    monkeypatch.setattr(SimulatorPool, "play", third_batch_is_ill)
    whole, path = tmp_path / "whole", tmp_path / "faulty"
    options = {"iterations": 4, **TINY}
    ill = SimulatorPool(Make(fault), SPEC, workers=1)
    with pytest.raises(ecop.Faulted, match="ecop resume") as caught:
        ecop.train(ill, QUICK, out=path, **options)
    assert caught.value.run.iteration == 2
    assert not ill._workers
    monkeypatch.setattr(SimulatorPool, "play", play)
    healthy = SimulatorPool(Make(), SPEC)
    assert ecop.load(path, env=healthy).iteration == 2
    assert ecop.resume(path, env=healthy).finished
    ecop.train(healthy, QUICK, out=whole, **options)
    file = "checkpoints/00000004/state.safetensors"
    assert (path / file).read_bytes() == (whole / file).read_bytes()


def test_discrete_stock_environment_trains():
    env = ecop.from_gymnasium(
        "CartPole-v1", horizon=20, costs=lambda o, a, n, i, t: abs(n[0]), limits=[1.0]
    )
    run = ecop.train(env, QUICK, iterations=1, **TINY)
    assert run.evaluate(3).costs.shape == (1, 3, 1)
    assert env.spec.action == Discrete(2)


def test_our_own_task_there_and_back():
    env = ecop.from_gymnasium(lambda: ecop.make_gymnasium("PointCircle", horizon=20))
    assert env.spec == ecop.make("PointCircle", horizon=20).spec
