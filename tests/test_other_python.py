"""Workers of another Python, with packages that this one does not have."""

import json
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import numpy as np
import pytest

import ecop
from ecop.cli import main
from ecop.errors import UserError
from ecop.simulators.acting import script
from ecop.simulators.where import Where
from ecop.types import Part, Played

NEEDED = "numpy numpy.libs gymnasium cloudpickle farama_notifications"
TINY = {"seeds": 1, "episodes": 2, "hidden": (4,), "critic_epochs": 1}
SAFETY = Path(__file__).parents[1] / ".venv-safety" / "bin" / "python"

ONLY_THERE = """
import gymnasium
import numpy as np

class Walk(gymnasium.Env):
    observation_space = gymnasium.spaces.Dict(
        {"x": gymnasium.spaces.Box(-9, 9, (2,)), "k": gymnasium.spaces.Discrete(3)}
    )
    action_space = gymnasium.spaces.MultiDiscrete([2, 3])
    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}

    def __init__(self, pace=1.0, render_mode=None):
        self.pace, self.render_mode = pace, render_mode

    def look(self):
        return {"x": self.x.astype(np.float32), "k": self.t % 3}

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        self.t, self.x = 0, self.np_random.uniform(-1, 1, 2)
        return self.look(), {}

    def step(self, action):
        self.t += 1
        self.x[0] += self.pace * (action[0] - 0.5)
        return self.look(), float(self.x[0]), False, False, {"speed": float(action[1])}

    def render(self):
        return np.full((16, 16, 3), self.t, np.uint8)
"""
THEIRS = """
from only_there import Walk

def make(pace=1.0, render_mode=None):
    return Walk(pace, render_mode)

def spent(obs, action, next_obs, info, t):
    return [info["speed"], t]

spent.names = ("speed", "time")
"""


@pytest.fixture(scope="module")
def other(tmp_path_factory):
    """A virtual environment with Gymnasium, NumPy and a package of its own."""
    home = tmp_path_factory.mktemp("other") / "venv"
    venv.create(home, symlinks=True)
    python = home / "bin" / "python"
    ask = "import sysconfig; print(sysconfig.get_path('purelib'))"
    packages = Path(subprocess.check_output([python, "-c", ask], text=True).strip())
    ours = Path(sysconfig.get_path("purelib"))
    for name in NEEDED.split():
        if (ours / name).exists():
            (packages / name).symlink_to(ours / name)
    file = "typing_extensions.py"
    (packages / file).symlink_to(ours / file)
    (packages / "only_there.py").write_text(ONLY_THERE)
    for name in ("ecop", "jax"):
        missing = subprocess.run([python, "-c", f"import {name}"], capture_output=True)
        assert missing.returncode
    return python


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "their_env.py").write_text(THEIRS)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def played(env, actions):
    parts = [Part(seed, 0, actions) for seed in (3, 4, 5)]
    try:
        return env.play([script(env.spec)], parts)
    finally:
        env.close()


def test_the_same_bits_as_here(other):
    rows = np.linspace(-1, 1, 20, dtype=np.float32)[:, None]
    here = ecop.from_gymnasium("Pendulum-v1", horizon=20, costs=["a=reward.0"])
    there = ecop.from_gymnasium(
        "Pendulum-v1", horizon=20, costs=["a=reward.0"], python=other, workers=2
    )
    assert here.spec == there.spec
    assert here.forms
    assert there.forms
    assert here.forms.leaves == there.forms.leaves
    for a, b in zip(played(here, rows), played(there, rows), strict=True):
        for x, y in zip(a, b, strict=True):
            np.testing.assert_array_equal(x, y)


def test_train_what_cannot_be_imported_here(other, folder, capsys):
    words = ["train", "their_env:make", "ppo_lag", "--python", str(other.parents[1])]
    words += ["--costs", "their_env:spent", "--limits", "3", "inf", "--horizon", "5"]
    words += ["--seeds", "1", "--episodes", "2", "--hidden", "4", "--out", "run"]
    with pytest.raises(SystemExit) as end:
        main([*words, "--iterations", "1"])
    assert end.value.code == 0, capsys.readouterr().err
    assert "only_there" not in sys.modules
    assert "their_env" not in sys.modules
    config = json.loads(Path("run/config.json").read_text())
    assert config["env_options"]["python"] == str(other)
    with pytest.raises(UserError, match=r"by the program '.*other.*--trust"):
        ecop.load("run")
    run = ecop.resume("run", trust=True, iterations=2, watch=None)
    assert run.iteration == 2
    assert (run.config.env_options or {})["costs"] == ["their_env:spent"]
    none = np.zeros(5)
    seen = run.learner.env.film(Played(3, np.zeros((5, 2), int), none, none, None))
    assert [frame[0, 0, 0] for frame in seen.frames] == [1, 2, 3, 4, 5]
    assert seen.seconds == 0.1
    run.learner.env.close()


def test_options_and_wishes_that_do_not_fit(other, folder, tmp_path):
    def make(**options):
        return ecop.make("their_env:make", horizon=5, python=str(other), **options)

    with pytest.raises(UserError, match="No cost was found"):
        make(limits=[1.0])
    with pytest.raises(UserError, match="does not fit its arguments"):
        make(options={"speed": 2})
    with pytest.raises(UserError, match="'no_such_package' cannot be imported"):
        ecop.make("gym:no_such_package:Env-v0", python=other)
    with pytest.raises(UserError, match="There is no Python at"):
        ecop.make("their_env:make", python=tmp_path / "python")
    with pytest.raises(UserError, match="must be the path of an interpreter, not 5"):
        ecop.make("their_env:make", python=5)
    env = make(costs="their_env:spent", limits={"time": 4.0})
    assert (env.spec.cost_names, env.workers) == (("speed", "time"), 1)
    with (
        pytest.raises(UserError, match="Python of each node"),
        Where("ray").playing(env),
    ):
        pass
    venv.create(tmp_path / "bare", symlinks=True)
    with pytest.raises(UserError, match="Workers need NumPy"):
        ecop.make("their_env:make", python=tmp_path / "bare")
    (folder / "their_env.py").write_text("import only_there\nmake = only_there.nothing")
    with pytest.raises(UserError, match="cannot be imported"):
        make()


def test_an_error_there_is_shown(other, folder):
    (folder / "their_env.py").write_text("def make():\n    return 1 // 0")
    with pytest.raises(UserError, match=r"(?s)failed in .*ZeroDivisionError"):
        ecop.make("their_env:make", python=other)


@pytest.mark.slow
@pytest.mark.skipif(not SAFETY.exists(), reason="make .venv-safety/ready makes it")
@pytest.mark.parametrize(
    ("name", "cost"),
    [
        ("gym:safety_gymnasium:SafetyPointGoal1-v0", "cost"),
        ("gym:safety_gymnasium:SafetyPointCircle1-v0", "cost"),
        ("gym:safety_gymnasium:SafetyHalfCheetahVelocity-v1", "cost"),
        ("gym:bullet_safety_gym:SafetyBallCircle-v0", "cost"),
    ],
)
def test_the_packages_of_others(name, cost):
    env = ecop.make(name, horizon=10, limits=[1.0], python=SAFETY)
    assert env.spec.cost_names == (cost,)
    run = ecop.train(env, "ppo_lag", iterations=1, watch=None, **TINY)
    assert run.iteration == 1
    env.close()
