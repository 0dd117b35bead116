"""Going on from a run: a start for another one, other limits in the same one."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ecop
from ecop import cli, runs
from ecop.errors import UserError
from ecop.watching import Quiet
from probes import NumpyWalk, Walk

TINY = {"seeds": 2, "episodes": 4, "hidden": (4,), "critic_epochs": 1, "watch": None}
PPO_LAG = ecop.PPOLagrangian(epochs=1)


def train(env: Any = Walk, algorithm: Any = PPO_LAG, **options: Any):
    given: Any = {"iterations": 6} | TINY | options
    return ecop.train(env(), algorithm, **given)


def same(a, b):
    pairs = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    return all(np.array_equal(x, y) for x, y in pairs)


class First(Quiet):
    """Keeps the states that a run begins with."""

    def began(self, run):
        self.states = run.states


@pytest.mark.parametrize("env", [Walk, NumpyWalk])
def test_a_start_gives_policy_critics_and_normaliser(env, tmp_path):
    old = train(env, out=tmp_path / "old")
    path, first = tmp_path / "new", First()
    options = {"limits": [0.5, 0.7], "first_seed": 7, "seeds": 3, "out": path}
    new = train(env, start=tmp_path / "old", iterations=2, **options | {"watch": first})
    assert first.states[0].iteration == 0
    for i, state in enumerate(first.states):
        there = old.states[i % 2]
        for part in ("policy", "critics", "normaliser", "cost_scale"):
            assert same(getattr(state, part), getattr(there, part)), part
        assert not same(state.algorithm, there.algorithm), "multipliers begin anew"
    assert new.metrics[0]["limits"] == [0.5, 0.7]
    assert not same(new.states[0].policy, old.states[0].policy)
    assert runs.read_document(path)["start"] == str(tmp_path / "old")  # pyright: ignore
    again = train(env, start=old, iterations=2, **options | {"out": None})
    assert same(again.states[1].policy, new.states[1].policy)


def test_a_start_matters_from_the_first_batch():
    """A policy that was trained earns what it earned, not what a fresh one does."""
    old = train(algorithm=ecop.PPO(), iterations=60, episodes=32)
    trained = np.mean([m["reward"] for m in old.metrics[-10:]])
    fresh = np.mean([m["reward"] for m in old.metrics[:2]])
    new = train(algorithm=ecop.PPO(), iterations=1, episodes=32, start=old)
    first = np.mean([m["reward"] for m in new.metrics])
    assert abs(first - trained) < 0.3 * abs(trained - fresh)


def test_a_start_with_other_limits_switched_on(tmp_path):
    old = train(limits=[1.0, np.inf])
    first = First()
    train(limits=[np.inf, 2.0], start=old, watch=first)
    one, there = first.states[0].critics, old.states[0].critics
    assert same(one.params[0], there.params[0])
    assert not same(one.params[1], there.params[1])
    np.testing.assert_array_equal(one.std.value[0], there.std.value[0])
    assert one.std.count[1] == 0
    train(limits=[1.0, 2.0], start=old, watch=first)
    both = first.states[0].critics
    assert len(both.params) == 3
    assert same(both.params[1], there.params[1])
    assert both.std.count.tolist() == [*there.std.count.tolist(), 0.0]


def test_a_killed_start_resumes_to_the_bit(tmp_path):
    """Before the first checkpoint of training there is one of the start."""
    old, path = train(), tmp_path / "run"

    class Dies(Quiet):
        def progress(self, lines, total):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(start=old, out=path, watch=Dies())
    assert [folder.name for folder in runs.checkpoints(path)] == ["00000000"]
    resumed = ecop.resume(path, env=Walk(), watch=None)
    whole = train(start=old)
    assert same([s.policy for s in resumed.states], [s.policy for s in whole.states])


def test_starts_that_do_not_fit_are_said(tmp_path):
    old, path = train(out=tmp_path / "old"), tmp_path / "new"
    for options, words in (
        ({"hidden": (5,)}, r"The start has hidden=\(4,\), not \(5,\)"),
        ({"network": "gru"}, "The start has network='mlp', not 'gru'"),
        ({"policy": "stationary"}, "The start has policy='time', not 'stationary'"),
        ({"env": NumpyWalk}, "was trained on Walk, not on NumpyWalk"),
        ({"start": 3}, "start must be a run or its folder"),
        ({"start": tmp_path / "none"}, "is not a run folder"),
    ):
        given: Any = {"start": tmp_path / "old", "out": path} | options
        with pytest.raises(UserError, match=words):
            train(**given)
        assert not path.exists()
    sick = old.states[0]._replace(policy=jax.tree.map(jnp.log, old.states[0].policy))
    old.states = [sick, sick]
    with pytest.raises(UserError, match="policy holds NaN"):
        train(start=old, out=path)
    assert not path.exists()


@pytest.mark.slow
def test_other_constants_of_a_task():
    tiny: Any = {"episodes": 2, "horizon": 10, "iterations": 1, "watch": None}
    old = ecop.train(
        "RandomTable", "ppo", env_options={"seed": 1}, seeds=1, hidden=(4,), **tiny
    )
    new = ecop.train("RandomTable", "ppo", env_options={"seed": 2}, start=old, **tiny)
    assert new.config.train.hidden == (4,)
    assert new.config.train.seeds == 1


class Notes(Quiet):
    def __init__(self):
        self.notes = []

    def note(self, text):
        self.notes.append(text)


def test_resuming_with_other_limits_says_what_it_does(tmp_path):
    path, notes = tmp_path / "run", Notes()
    old = train(out=path)
    run = ecop.resume(path, env=Walk(), iterations=8, limits=[0.25, 2.0], watch=notes)
    assert any(
        "From iteration 7 on the limits are 0.25, 2 in place of 1, 2; policy, critics "
        "and multipliers go on" in note
        for note in notes.notes
    )
    assert run.metrics[: len(old.metrics)] == old.metrics
    assert [m["limits"] for m in run.metrics[-4:]] == [[0.25, 2.0]] * 4
    assert ecop.load(path, env=Walk(), watch=None).learner.spec.limits == (0.25, 2.0)
    before = (path / "config.json").read_bytes()
    for limits, words in (
        ([np.inf, 2.0], "not switched on or off"),
        ([1.0], "one limit per cost"),
        ([-1.0, 2.0], "zero or more"),
    ):
        with pytest.raises(UserError, match=words):
            ecop.resume(path, env=Walk(), limits=limits, watch=None)
    assert (path / "config.json").read_bytes() == before


@pytest.mark.slow
def test_the_command_starts_and_changes_limits(tmp_path, capsys):
    old, new = str(tmp_path / "old"), str(tmp_path / "new")
    tiny = "--seeds 1 --episodes 2 --horizon 10 --hidden 4 --critic-epochs 1"
    tiny = [*tiny.split(), "--iterations", "1", "--out"]

    def call(*words):
        with pytest.raises(SystemExit) as end:
            cli.main(list(words))
        return end.value.code

    assert call("train", "PointCircle", "ppo_lag", *tiny, old) == 0
    more = ["--episodes", "2", "--horizon", "10", "--iterations", "1", "--out", new]
    limits = ["--limits", "5"]
    start = ["--start", old]
    assert call("train", "PointCircle", "ppo_lag", *more, *start, *limits) == 0
    assert runs.read_config(tmp_path / "new").train.hidden == (4,)
    assert runs.read_config(tmp_path / "new").train.limits == (5.0,)
    assert call("resume", new, "--iterations", "2", "--limits", "3") == 0
    assert "the limits are 3 in place of 5" in capsys.readouterr().out
    other = [*more[:-1], str(tmp_path / "other")]
    assert call("train", "PointReach", *other, *start) == 2
    assert "was trained on PointCircle, not on PointReach" in capsys.readouterr().err
