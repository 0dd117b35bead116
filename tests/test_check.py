"""`ecop check`: healthy environments pass, each illness is named."""

from functools import partial

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import ecop
from ecop import cli
from ecop.types import Constraint, HostStep
from probes import NumpyWalk, Spend, Walk
from simulators import Gym, Sick, make_gym


def said(report):
    return "\n".join(str(f) for f in report.findings)


@pytest.mark.parametrize(
    "env", ["PointCircle", "Inventory", Walk(), NumpyWalk(), make_gym, Gym()]
)
def test_healthy(env):
    options = {"horizon": 6} if env is make_gym or isinstance(env, Gym) else {}
    report = ecop.check_cmdp(env, **options)
    assert report.healthy, str(report)
    assert "random policy" in str(report)


@pytest.mark.parametrize(
    ("illness", "words", "problem"),
    [
        ("seed", "same seed and actions gave another observation", True),
        ("nan", "Entry 1 of the observation", True),
        ("last", "always zero on the last step", True),
        ("clock", "entries [1] are linear in time", False),
    ],
)
def test_ill(illness, words, problem):
    report = ecop.check_cmdp(partial(Sick, illness), horizon=6)
    assert report.healthy != problem
    assert words in said(report)


def test_a_time_limit_inside():
    report = ecop.check_cmdp(partial(Gym, "cost", 4), horizon=6)
    assert not report.healthy
    assert "truncated before the horizon" in said(report)


def test_a_doubled_name_and_a_bad_limit():
    env = Walk()
    env.spec = ecop.Spec(2, env.spec.action, 8, (Constraint("a", -1.0),) * 2)
    report = ecop.check_cmdp(env)
    assert not report.healthy
    assert "not unique" in said(report)
    assert "negative" in said(report)


class Wrong(NumpyWalk):
    def step(self, actions):
        out = super().step(actions)
        return HostStep(out.observation, out.reward, out.costs[:, :1], out.failed)


class Shifty(NumpyWalk):
    def step(self, actions):
        out = super().step(actions)
        self.h = getattr(self, "h", 0) + 1
        reward = out.reward.astype(np.float64) if self.h > 3 else out.reward
        return out._replace(reward=reward)


def test_shapes_and_types():
    assert "costs has shape (1,), the spec says (2,)" in said(ecop.check_cmdp(Wrong()))
    assert "type of reward changes" in said(ecop.check_cmdp(Shifty()))


def test_a_limit_that_does_not_bind():
    assert "keeps the limit" in said(ecop.check_cmdp(Spend(limit=100.0)))


class Frames(gymnasium.Env):
    """Images, negative costs; the cost goes missing in step `lost`."""

    observation_space = spaces.Box(0, 255, (9, 9, 1), np.uint8)
    action_space = spaces.Discrete(2)
    horizon, cost_limits = 5, (1.0,)

    def __init__(self, lost=None):
        self.lost = lost

    def look(self):
        return self.np_random.integers(0, 255, (9, 9, 1), np.uint8)

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return self.look(), {}

    def step(self, action):
        self.t += 1
        info = {} if self.t == self.lost else {"cost": -1.0}
        return self.look(), 1.0, False, False, info


def frames():
    return Frames()


def spoilt():
    return Frames(lost=3)


def test_images_and_negative_costs_are_noticed():
    text = said(ecop.check_cmdp(frames))
    assert "observations are images, 9 x 9 x 1" in text
    assert "--network cnn" in text
    assert "cost is negative in some steps: -1" in text


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (["PointCircle", "--horizon", "20"], 0, "PointCircle: healthy"),
        (["gym:Pendulum-v1"], 1, "No cost was found"),
        (["simulators:make_gym", "--horizon", "6", "--limits", "9"], 0, "limit 9"),
        (["simulators:make_gym"], 1, "no time limit"),
        (["probes:Walk", "--horizon", "6"], 0, "probes:Walk: healthy"),
        (["PointCircle", "--horizon", "20", "--limits", "7"], 0, "limit 7"),
        (["PointCircle", "--limits", "1", "2"], 1, "1 cost(s) (boundary) but 2 limit"),
        (["PointCircle", "--costs", "a"], 2, "--costs: only for Gymnasium"),
        (["PointCircle", "--limits", "ten"], 2, "A limit is a number"),
        (["simulators:make_gym", "--horizon", "6"], 0, "No limit is known"),
        (["simulators:make_gym", "--horizon", "6", "--costs", "b"], 1, "no 'b'"),
        (["test_check:frames"], 0, "observations are images, 9 x 9 x 1"),
        (["test_check:spoilt"], 1, "PROBLEM  The environment's info has no 'cost'"),
        (["nowhere:f"], 1, "cannot be imported"),
        (["gym:NoSuchEnv-v0"], 1, "NoSuchEnv"),
        (["PointCirle"], 2, "PointCircle"),
    ],
)
def test_command(args, code, words, capsys):
    with pytest.raises(SystemExit) as stop:
        cli.main(["check", *args])
    captured = capsys.readouterr()
    assert words in captured.out + captured.err
    assert "Traceback" not in captured.out + captured.err
    assert stop.value.code == code
