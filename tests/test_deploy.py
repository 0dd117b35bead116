"""Policies that leave: `run.act`, the NumPy file and its reader, ONNX."""

import io
import json
import subprocess
import sys
import zipfile
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import onnxruntime
import pytest
from gymnasium import spaces
from gymnasium.spaces.utils import flatten

import ecop
from ecop import cli, onnx_file, player, rollout
from ecop.api import Run
from ecop.config import RunConfig
from ecop.errors import UserError
from ecop.interop.gymnasium_in import action_form, leaves
from ecop.learning.encoders import UNITS
from ecop.simulators.forms import from_json, to_json
from ecop.simulators.spaces import vector
from ecop.training import Learner, TrainConfig, init_seeds
from ecop.types import Box, Constraint, Discrete, MultiDiscrete, Spec
from probes import BrightCorner, Recall

KINDS = [
    (Box(3), "time", (8, 5), "shared", 6),
    (Box(3), "time", (8,), "predicted", 60),
    (Box(2), "per_step", (8, 5), "shared", 6),
    (Box(2), "per_step", (7,), "predicted", 6),
    (Box(1), "stationary", (), "shared", 6),
    (Discrete(4), "time", (8, 5), "shared", 6),
    (Discrete(4), "per_step", (), "shared", 6),
    (MultiDiscrete((2, 4, 3)), "time", (8, 5), "shared", 6),
]


def lively(run, seed=0):
    """The same run with parameters and statistics as training might leave them."""
    rng = np.random.default_rng(seed)

    def noise(x):
        return jnp.asarray(rng.normal(size=x.shape).astype(np.float32))

    def change(state):
        statistics = state.normaliser
        return state._replace(
            policy=jax.tree.map(lambda x: x + 0.7 * noise(x), state.policy),
            normaliser=statistics._replace(
                count=jnp.float32(50.0),
                mean=noise(statistics.mean),
                square=50.0 + 30.0 * noise(statistics.square) ** 2,
            ),
        )

    run.states = [change(state) for state in run.states]
    return run


def made_run(action, form: Any = "time", hidden=(8, 5), std: Any = "shared", horizon=6):
    spec = Spec(5, action, horizon, (Constraint("heat", 1.0),))
    train = TrainConfig(seeds=2, policy=form, hidden=hidden, std=std)
    learner = Learner(None, spec, ecop.PPO(), train)
    config = RunConfig("Mine", learner.algorithm, train)
    return lively(Run(config, learner, init_seeds(learner), [], None))


def distribution(run, x, h, seed=0) -> Any:
    state = run.states[seed]
    actor = rollout.Actor(state.policy, state.normaliser)
    rows, step = jnp.asarray(x[None]), jnp.int32(h)
    return rollout.distribution(run.learner.policy, actor, rows, step)


def open_onnx(file) -> Any:
    return onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])


@pytest.mark.parametrize(("action", "form", "hidden", "std", "horizon"), KINDS)
def test_every_kind_of_policy_acts_alike_everywhere(
    action, form, hidden, std, horizon, tmp_path
):
    run = made_run(action, form, hidden, std, horizon)
    file = run.export(tmp_path / "policy.npz", seed=1)
    played = player.load(file)
    graph = open_onnx(run.export(tmp_path / "policy.onnx", seed=1))
    rng = np.random.default_rng(3)
    seen = rng.normal(size=(40, 5)).astype(np.float32)
    steps = rng.integers(horizon, size=40)
    names = [output.name for output in graph.get_outputs()]
    found = dict(
        zip(names, graph.run(None, {"observation": seen, "step": steps}), strict=True)
    )
    for n, (x, h) in enumerate(zip(seen, steps.tolist(), strict=True)):
        ours, exact = run.act(x, h, seed=1), run.policy(x, h, seed=1)
        np.testing.assert_array_equal(played.act(x, h), ours)
        if isinstance(action, Box):
            np.testing.assert_allclose(ours, np.clip(exact, -1, 1), atol=1e-5)
            np.testing.assert_allclose(found["action"][n], ours, atol=1e-5)
            np.testing.assert_allclose(found["mean"][n], exact, atol=1e-5, rtol=1e-5)
        else:
            np.testing.assert_array_equal(ours, exact)
            np.testing.assert_array_equal(found["action"][n], ours)
    if isinstance(action, Box):
        exact = distribution(run, seen[0], int(steps[0]), seed=1)
        np.testing.assert_allclose(found["std"][0], np.exp(exact.log_std)[0], rtol=1e-4)


def open_stablehlo(file) -> Any:
    return jax.export.deserialize(bytearray(file.read_bytes())).call


@pytest.mark.parametrize(("action", "form", "hidden", "std", "horizon"), KINDS[::3])
def test_stablehlo_acts_alike(action, form, hidden, std, horizon, tmp_path):
    run = made_run(action, form, hidden, std, horizon)
    call = open_stablehlo(run.export(tmp_path / "policy.stablehlo", seed=1))
    rng = np.random.default_rng(3)
    seen = rng.normal(size=(20, 5)).astype(np.float32)
    steps = rng.integers(horizon, size=20).astype(np.int32)
    pairs = zip(seen, steps.tolist(), strict=True)
    ours = np.stack([run.act(x, h, seed=1) for x, h in pairs])
    np.testing.assert_allclose(call(seen, steps), ours, atol=1e-5)
    np.testing.assert_allclose(call(seen[:1], steps[:1]), ours[:1], atol=1e-5)


def test_stablehlo_passes_a_memory_on(tmp_path):
    run = encoder_run(Recall(), "gru")
    call = open_stablehlo(run.export(tmp_path / "policy.stablehlo"))
    seen = np.random.default_rng(3).normal(size=(5, 1, 2)).astype(np.float32)
    memory = np.zeros((1, UNITS), np.float32)
    for h in range(5):
        action, memory = call(seen[h], np.array([h], np.int32), memory)
        assert action[0] == run.act(seen[h, 0], h)


def encoder_run(task: Any, network: Any):
    train = TrainConfig(seeds=1, network=network, hidden=(8,))
    learner = Learner(task, task.spec, ecop.PPO(), train)
    config = RunConfig("Mine", learner.algorithm, train)
    return lively(Run(config, learner, init_seeds(learner), [], None))


def test_a_policy_of_images_acts_alike_in_the_file(tmp_path):
    run = encoder_run(BrightCorner(), "cnn")
    played = player.load(run.export(tmp_path / "policy.npz"))
    seen = np.random.default_rng(3).normal(size=(40, 64)).astype(np.float32)
    acted = [played.act(x, n % 4) for n, x in enumerate(seen)]
    assert acted == [int(run.policy(x, n % 4)) for n, x in enumerate(seen)]
    assert len(set(acted)) > 1
    graph = open_onnx(run.export(tmp_path / "policy.onnx"))
    steps = np.arange(40) % 4
    assert (
        graph.run(["action"], {"observation": seen, "step": steps})[0].tolist() == acted
    )
    unfit = played.policy._replace(image=(8, 4, 2))
    (tmp_path / "unfit.npz").write_bytes(player.to_bytes(played._replace(policy=unfit)))
    with pytest.raises(UserError, match="do not fit together"):
        player.load(tmp_path / "unfit.npz")


def test_a_policy_with_a_memory_acts_alike_everywhere(tmp_path):
    run = encoder_run(Recall(horizon=7), "gru")
    played = player.load(run.export(tmp_path / "policy.npz"))
    graph = open_onnx(run.export(tmp_path / "policy.onnx"))
    rng = np.random.default_rng(3)
    blind = 0
    for _ in range(10):
        history = rng.normal(size=(7, 2)).astype(np.float32)
        memory = np.zeros((1, UNITS), np.float32)
        for h in range(7):
            exact = int(run.policy(history[: h + 1], h))
            assert run.act(history[h], h) == played.act(history[h], h) == exact
            given = {"observation": history[[h]], "step": np.array([h])}
            action, memory = graph.run(
                ["action", "remembered"], given | {"memory": memory}
            )
            assert action[0] == exact
            assert played.memory.units is not None
            np.testing.assert_allclose(memory, played.memory.units, atol=1e-5)
            blind += exact != int(distribution(run, history[h], h).mode()[0])
    assert blind > 0  # the memory matters


def test_a_memory_plays_one_episode_after_the_other(tmp_path):
    run = encoder_run(Recall(), "gru")
    seen, other = np.ones(2, np.float32), -np.ones(2, np.float32)
    first = [run.act(seen, h) for h in range(5)]
    run.act(other, 0)
    run.act(other, 1)
    assert [run.act(seen, h) for h in range(5)] == first
    for h in (0, 0, 1):
        run.act(seen, h)
    for h in (1, 3):
        with pytest.raises(UserError, match=rf"step 2 comes next.*not {h}"):
            run.act(seen, h)
    with pytest.raises(UserError, match="NaN"):
        run.act(seen * np.nan, 2)
    run.act(seen, 2)  # what was refused is not remembered
    assert run.player().act(seen, 0) == first[0]
    with pytest.raises(UserError, match="step 0 comes next"):
        run.player().act(seen, 3)


@pytest.mark.parametrize("change", [{"memory0": (1, 3, 189)}, {"memory1": None}])
def test_a_memory_that_does_not_fit_is_refused(change, tmp_path):
    file = encoder_run(Recall(), "gru").export(tmp_path / "policy.npz")
    with np.load(file) as found:
        arrays = dict(found)
    assert [arrays[f"memory{k}"].shape for k in range(2)] == [(1, 3, 192), (1, 64, 192)]
    for name, shape in change.items():
        arrays[name] = None if shape is None else np.zeros(shape, np.float32)
    kept: Any = {name: array for name, array in arrays.items() if array is not None}
    np.savez(tmp_path / "bad.npz", **kept)
    with pytest.raises(UserError, match="do not fit together"):
        player.load(tmp_path / "bad.npz")


@pytest.mark.parametrize("std", ["shared", "predicted"])
def test_drawn_actions_have_the_policys_distribution(std):
    run = made_run(Box(2), "per_step", (4,), std)
    run.states = [
        s._replace(policy=jax.tree.map(lambda x: 0.2 * x, s.policy)) for s in run.states
    ]
    acting, x = run.player(), np.zeros(5, np.float32)
    wide = acting._replace(forms=acting.forms._replace(action=Wide(acting)))
    rng = np.random.default_rng(0)
    drawn = np.array([wide.act(x, 2, rng=rng) for _ in range(4000)])
    exact = distribution(run, x, 2)
    std = np.exp(exact.log_std)[0]
    np.testing.assert_allclose(drawn.mean(axis=0), exact.mean[0], atol=0.08)
    np.testing.assert_allclose(drawn.std(axis=0), std, rtol=0.08)


class Wide:
    """Actions as they are, not clipped."""

    def __init__(self, acting):
        self.space = acting.forms.action.space

    def __call__(self, actions):
        return actions


def test_drawn_choices_have_the_policys_distribution():
    run = made_run(Discrete(3))
    rng, x = np.random.default_rng(0), np.ones(5, np.float32)
    counts = np.bincount([run.act(x, 1, rng=rng) for _ in range(3000)], minlength=3)
    exact = distribution(run, x, 1)
    np.testing.assert_allclose(counts / 3000, np.exp(exact.log_probs[0]), atol=0.04)


OBSERVATIONS = [
    spaces.Box(-1.0, 1.0, (3,)),
    spaces.Box(0, 255, (2, 2, 3), np.uint8),
    spaces.Discrete(4, start=-2),
    spaces.MultiDiscrete([2, 3], start=[1, -1]),
    spaces.MultiBinary([2, 2]),
    spaces.Dict(
        {
            "wind": spaces.Discrete(3),
            "arm": spaces.Tuple((spaces.Box(-1.0, 1.0, (2,)), spaces.MultiBinary(2))),
            "eye": spaces.Dict({"left": spaces.Box(0, 9, (1, 2), np.int64)}),
        }
    ),
]


@pytest.mark.parametrize("space", OBSERVATIONS, ids=str)
def test_observations_are_flattened_as_gymnasium_does(space):
    form = leaves(space)
    assert form is not None
    assert form == json.loads(json.dumps(form))
    space.seed(0)
    for _ in range(20):
        seen = space.sample()
        flat = np.asarray(flatten(space, seen), np.float32)
        np.testing.assert_array_equal(vector(form, seen), flat)


def test_other_observations_stay_vectors():
    text = spaces.Text(3)
    with pytest.raises(UserError, match=r"\['b'\] is of type Text"):
        leaves(spaces.Dict({"a": spaces.Box(0, 1), "b": text}))


@pytest.mark.parametrize(
    "space",
    [
        spaces.Box(np.array([-2, 0]), np.array([2, 1]), dtype=np.float32),
        spaces.Box(-3.0, 7.0, (2, 2), np.float64),
        spaces.Box(0, 255, (3,), np.uint8),
        spaces.Discrete(3, start=5),
        spaces.MultiDiscrete([2, 3, 4], start=[0, 5, -1]),
        spaces.MultiDiscrete(np.array([[2, 3], [3, 2]])),
        spaces.MultiBinary([2, 2]),
    ],
    ids=str,
)
def test_actions_are_the_environments_in_every_file(space, tmp_path):
    form = action_form(space)
    assert to_json(from_json(json.loads(json.dumps(to_json(form))))) == to_json(form)
    run = made_run(form.space)
    acting = run.player()
    acting = acting._replace(forms=acting.forms._replace(action=form))
    (tmp_path / "policy.npz").write_bytes(player.to_bytes(acting))
    (tmp_path / "policy.onnx").write_bytes(onnx_file.to_onnx(acting))
    played = player.load(tmp_path / "policy.npz")
    graph = open_onnx(tmp_path / "policy.onnx")
    rng = np.random.default_rng(1)
    taken = set()
    for h in [0, 5] * 20:
        x = 2.0 * rng.normal(size=5).astype(np.float32)
        action = played.act(x, h)
        assert space.contains(action), action
        given = {"observation": x[None], "step": np.array([h])}
        (theirs,) = graph.run(["action"], given)[0]
        assert np.asarray(theirs).dtype == np.asarray(action).dtype
        np.testing.assert_allclose(theirs, action, atol=1e-5)
        taken.add(str(action))
    assert len(taken) > 2


class Maze(gymnasium.Env):
    """A Dict of a place and a sign, two switches as actions."""

    observation_space = spaces.Dict(
        {"place": spaces.Box(-9.0, 9.0, (2,)), "sign": spaces.Discrete(3, start=1)}
    )
    action_space = spaces.MultiDiscrete([3, 2])

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = np.zeros(2, np.float32)
        return self.seen(), {}

    def seen(self):
        return {"place": self.place, "sign": 1 + int(abs(self.place[0])) % 3}

    def step(self, action):
        assert self.action_space.contains(action)
        self.place = np.clip(self.place + action - [1, 0], -9, 9).astype(np.float32)
        return self.seen(), float(self.place[0]), False, False, {"cost": 0.5}


def test_a_dict_environment_from_training_to_the_file(tmp_path):
    env = ecop.from_gymnasium(Maze, horizon=7, limits=[3.0])
    tiny = {"episodes": 2, "hidden": (4,), "critic_epochs": 1, "seeds": 1}
    run = ecop.train(env, "ppo", iterations=1, watch=None, **tiny)
    played = player.load(run.export(tmp_path / "policy.npz"))
    graph = open_onnx(run.export(tmp_path / "policy.onnx"))
    maze: Any = Maze()
    seen, _ = maze.reset(seed=0)
    for h in range(7):
        action = run.act(seen, h)
        np.testing.assert_array_equal(action, played.act(seen, h))
        x = np.asarray(flatten(maze.observation_space, seen), np.float32)[None]
        (theirs,) = graph.run(["action"], {"observation": x, "step": np.array([h])})
        np.testing.assert_array_equal(theirs[0], action)
        seen, *_ = maze.step(action)
    for bad in (seen | {"sign": 4}, seen | {"place": np.zeros(3)}, {"place": [0, 0]}):
        with pytest.raises(UserError, match=r"observation.*must be numbers of shape"):
            run.act(bad, 0)
    with pytest.raises(UserError, match="NaN"):
        run.act(seen | {"place": np.full(2, np.nan)}, 0)
    with pytest.raises(UserError, match=r"0 \.\. 6, not 7"):
        run.act(seen, 7)
    with pytest.raises(UserError, match="seed picks"):
        run.act(seen, 0, seed=1)


def test_files_that_are_no_policy(tmp_path):
    run, good, bad = made_run(Box(2)), tmp_path / "good.npz", tmp_path / "bad.npz"
    data = run.export(good).read_bytes()
    assert run.export(tmp_path / "again.npz").read_bytes() == data
    with np.load(good) as found:
        arrays = {name: found[name] for name in found.files}
    about = json.loads(arrays["about"].tobytes())

    def text(**change):
        return np.frombuffer(json.dumps(about | change).encode(), np.uint8)

    for change, words in (
        ({"mean": None}, "mean is missing"),
        ({"mean": np.zeros(4, np.float32)}, "do not fit together"),
        ({"bias0": arrays["bias0"][:3]}, "do not fit together"),
        ({"scale": arrays["scale"] * np.nan}, "NaN"),
        ({"spread": arrays["spread"].astype(np.float64)}, "spread is missing"),
        ({"extra": np.zeros(1)}, "more than it should: extra"),
        ({"about": text(head="script")}, "head"),
        ({"about": text(format=2)}, "format"),
        ({"about": text(action={"count": 3, "start": 0})}, "do not fit together"),
        ({"about": text(action={**about["action"], "low": [0.0] * 7})}, "own shape"),
        ({"about": text(horizon=5)}, "do not fit together"),
    ):
        kept: Any = {k: v for k, v in (arrays | change).items() if v is not None}
        np.savez(bad, **kept)
        with pytest.raises(UserError, match=f"bad.npz' is no policy: .*{words}"):
            player.load(bad)
    np.savez_compressed(bad, **arrays)
    with pytest.raises(UserError, match="compressed"):
        player.load(bad)
    with pytest.raises(UserError, match="No such file"):
        player.load(tmp_path / "none.npz")


def test_a_file_with_an_object_is_refused(tmp_path):
    """Objects would be code; an archive of them must not be read."""
    made_run(Box(2)).export(tmp_path / "good.npz")
    inside = io.BytesIO()
    np.lib.format.write_array(inside, np.array([{}], object))
    with zipfile.ZipFile(tmp_path / "good.npz") as good:
        parts = {n: good.read(n) for n in good.namelist()}
    with zipfile.ZipFile(tmp_path / "bad.npz", "w") as archive:
        for name, data in (parts | {"mean.npy": inside.getvalue()}).items():
            archive.writestr(name, data)
    with pytest.raises(UserError, match="is no policy: it cannot be read"):
        player.load(tmp_path / "bad.npz")


def test_damaged_bytes_are_refused_or_harmless(tmp_path):
    file = made_run(Discrete(3)).export(tmp_path / "policy.npz")
    data, rng = bytearray(file.read_bytes()), np.random.default_rng(0)
    whole, refused = player.load(file), 0
    for place in rng.integers(len(data), size=300).tolist():
        damaged = data.copy()
        damaged[place] ^= 1 << int(rng.integers(8))
        file.write_bytes(damaged if place % 7 else data[:place])
        try:
            found = player.load(file)
        except UserError:
            refused += 1
        else:
            assert player.to_bytes(found) == player.to_bytes(whole)
    assert refused > 200


def test_bad_exports_are_said_and_nothing_is_written(tmp_path, monkeypatch):
    run = made_run(Box(2))
    with pytest.raises(UserError, match=r"must end in \.npz, \.onnx or"):
        run.export(tmp_path / "policy.pt")
    with pytest.raises(UserError, match="seed picks"):
        run.export(tmp_path / "policy.npz", seed=2)
    monkeypatch.setattr(onnx_file, "MOST", 100)
    with pytest.raises(UserError, match="larger than the 2 GiB"):
        run.export(tmp_path / "policy.onnx")
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(UserError, match=r"pip install 'ecop\[onnx\]'"):
        run.export(tmp_path / "policy.onnx")
    sick = run.states[0]._replace(policy=jax.tree.map(jnp.log, run.states[0].policy))
    run.states[0] = sick._replace(policy=jax.tree.map(lambda x: x - 1e9, sick.policy))
    with pytest.raises(ecop.Diverged, match="holds NaN"):
        run.export(tmp_path / "policy.npz")
    assert not list(tmp_path.iterdir())


def test_the_command_exports(tmp_path, capsys):
    path, file = tmp_path / "run", tmp_path / "policy.npz"
    tiny = {"episodes": 2, "horizon": 10, "hidden": (4,), "critic_epochs": 1}
    run = ecop.train(
        "PointCircle", "ppo", seeds=2, iterations=1, out=path, watch=None, **tiny
    )
    with pytest.raises(SystemExit) as end:
        cli.main(["export", str(path), str(file), "--seed", "1"])
    assert end.value.code == 0
    assert capsys.readouterr().out.strip() == str(file)
    env = ecop.make_gymnasium("PointCircle", horizon=10)
    seen, _ = env.reset(seed=0)
    played = player.load(file)
    action = played.act(seen, 0)
    np.testing.assert_array_equal(action, run.act(seen, 0, seed=1))
    assert env.action_space.contains(action)


def test_the_player_needs_numpy_alone(tmp_path):
    file = made_run(Box(2)).export(tmp_path / "policy.npz")
    code = (
        "import sys, ecop.player\n"
        f"p = ecop.player.load({str(file)!r})\n"
        "print(p.act([0.0] * 5, 0))\n"
        "heavy = {'jax', 'scipy', 'matplotlib', 'rich'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
