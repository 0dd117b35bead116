"""Options: where they come from, what is refused, and in which words."""

import dataclasses
import math

import pytest

import ecop
from ecop import recipes
from ecop.algorithms import ALGORITHMS
from ecop.config import from_json, resolve, to_json
from ecop.envs import ENVS
from ecop.errors import UserError
from ecop.learning.options import values
from ecop.training import TrainConfig


def test_each_layer_overrides_the_one_before():
    plain = resolve("PointCircle", "ecop")
    assert (plain.algorithm, plain.train) == (ecop.ECOP(), TrainConfig())
    assert plain.origin["hidden"] == "default of training"
    assert plain.origin["clip"] == "default of ecop"
    grid = resolve("Grid", "ecop")
    assert grid.train.hidden == ()
    assert grid.origin["hidden"] == "recipe of Grid"
    paper = resolve("Grid", "ecop", "paper")
    assert paper.train.hidden == (32, 32)
    assert paper.train.episodes == grid.train.episodes == 20
    assert paper.origin["hidden"] == "preset paper"
    assert paper.algorithm.backward_steps == 0
    given = resolve("Grid", "ecop", "paper", {"hidden": [8], "clip": 0.3})
    assert (given.train.hidden, given.algorithm.clip) == ((8,), 0.3)
    assert given.origin["clip"] == "given"


@pytest.mark.parametrize("task", recipes.TASKS)
def test_recipes_are_of_tasks_and_the_same_for_all(task):
    assert task in ENVS
    assert recipes.TASKS[task].keys() <= values(TrainConfig()).keys()
    for name in ALGORITHMS:
        train = resolve(task, name).train
        assert train == dataclasses.replace(TrainConfig(), **recipes.TASKS[task])


def test_the_papers_preset_covers_everyone():
    assert recipes.PAPER.keys() == ALGORITHMS.keys()
    for name in ALGORITHMS:
        found = resolve("PointCircle", name, "paper")
        assert found.train.initial_log_std == 0.5
        options = values(found.algorithm)
        assert options.get("kl_goal", 0.0) == 0.0  # its rates are constant
        # The printed Algorithm 2 has no KL stop.
        assert options["target_kl"] == (0.0 if name == "ecop" else 0.01)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_options_survive_json_flat(name):
    algorithm = ALGORITHMS[name]()
    document = to_json(algorithm)
    assert not any(isinstance(value, dict) for value in document.values())
    assert from_json(ALGORITHMS[name], document) == algorithm
    with pytest.raises(UserError, match="does not know"):
        from_json(ALGORITHMS[name], document | {"warmth": 1})


def test_groups_take_their_options_by_name():
    ppo = ecop.PPO(learning_rate=1e-3, clip=0.3)
    assert ppo.descent.learning_rate == 1e-3
    assert ppo.descent.epochs == ecop.PPO().descent.epochs
    again = dataclasses.replace(ppo, epochs=3)
    assert (again.descent.epochs, again.descent.learning_rate) == (3, 1e-3)
    assert ecop.PPO(descent=ppo.descent, clip=0.3) == ppo
    with pytest.raises(UserError, match="Did you mean 'learning_rate'"):
        ecop.PPO(learning_rat=1e-3)


def train(**options):
    return ecop.train("FactoredRing", **{"iterations": 1, "seeds": 1, **options})


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"policy": "xyz"}, "policy must be 'time' or 'per_step' or 'stationary'"),
        ({"std": "xyz"}, "std must be 'shared' or 'predicted'"),
        ({"seeds": 1.5}, "seeds must be a whole number, not 1.5"),
        ({"seeds": True}, "seeds must be a whole number"),
        ({"hidden": (8.5,)}, "hidden must be a tuple, each entry a whole number"),
        ({"gae_decay": "high"}, "gae_decay must be a number"),
        ({"limits": 10.0}, r"one number for each cost.*not 10.0"),
        ({"limits": {"moves": 3.0}}, "one number for each cost"),
        ({"limits": ["many"]}, "one number for each cost"),
        ({"learning_rate": 1e-3}, r"ecop\.ECOP\(learning_rate=\.\.\.\)"),
        ({"algorithm": "ppo", "clip": 1.0}, r"ecop\.PPO\(clip=\.\.\.\)"),
        ({"iteration": 3}, "Did you mean 'iterations'"),
        ({"algorithm": "pppo"}, "Did you mean 'ppo'"),
        ({"preset": "tuned"}, "choose 'default' or 'paper'"),
        ({"algorithm": ecop.PPO(), "preset": "paper"}, "the algorithm's name"),
    ],
)
def test_wrong_options_are_one_sentence(options, words):
    with pytest.raises(UserError, match=words):
        train(**options)


@pytest.mark.parametrize("field", ["penalty", "units"])
def test_wrong_choices_of_an_algorithm(field):
    with pytest.raises(UserError, match=f"{field} must be '.*' or '.*', not 'zzz'"):
        ecop.ECOP(**{field: "zzz"})


def test_a_list_serves_as_a_tuple_and_infinity_as_a_limit():
    found = resolve("FactoredRing", "ppo", given={"hidden": [8, 4]})
    assert found.train.hidden == (8, 4)
    config = dataclasses.replace(found.train, limits=(math.inf,))
    assert from_json(TrainConfig, to_json(config)) == config


def test_public_names_are_listed():
    assert set(ecop.__all__) <= set(dir(ecop))
    for kind in ALGORITHMS.values():
        assert getattr(ecop, kind.__name__) is kind
