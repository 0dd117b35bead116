"""Short training runs, number by number: what the test of no formula sees.

Every option is given, so that another default changes nothing here. After a change that
is meant to change results, write the numbers anew with `python tests/test_golden.py`.

The tolerance: XLA's levels 0 and 3, with and without AVX, fusion emitters and fast
maths moved no number by more than 2e-5 of itself or 1e-6 (42e-6 of a reward of 5); it
is fifty times that. A learning rate or a clip 20 % off moves the KL by 29 % and more.
"""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

import ecop
from ecop.algorithms import ALGORITHMS
from ecop.learning.options import values
from ecop.training import Learner, TrainConfig, init_seeds, run_seeds

FILE = Path(__file__).parent / "golden" / "training.json"
SHOWN = ("reward", "costs", "multipliers", "kl", "loss")
RELATIVE, ABSOLUTE = 1e-3, 5e-5

TRAIN = {
    "seeds": 1,
    "first_seed": 3,
    "iterations": 4,
    "steps": 0,
    "episodes": 8,
    "policy": "time",
    "network": "mlp",
    "hidden": (8,),
    "std": "shared",
    "initial_log_std": 0.0,
    "normalise_observations": True,
    "discount": 0.99,
    "gae_decay": 0.95,
    "critic_learning_rate": 0.01,
    "critic_epochs": 3,
    "critic_minibatches": 4,
    "schedule": "constant",
}
TASKS = {  # horizon, limit
    "PointCircle": (40, 2.0),
    "Inventory": (8, 2.0),
}
ALGORITHM = {
    "ecop": {
        "beta": 4.0,
        "caution": 0.5,
        "beta_growth": 1.5,
        "beta_relax": 1.1,
        "beta_max": 20.0,
        "penalty": "augmented",
        "units": "dimensionless",
        "multiplier_rate": 4.0,
        "clip": 0.1,
        "backward_steps": 1,
        "epochs": 4,
        "minibatches": 4,
        "kl_goal": 0.01,
        "target_kl": 0.0,
        "learning_rate": 0.01,
    },
    "ppo_lag": {
        "clip": 0.1,
        "multiplier_rate": 0.5,
        "multiplier_rule": "adam",
        "epochs": 4,
        "minibatches": 4,
        "kl_goal": 0.0,
        "target_kl": 0.5,
        "learning_rate": 0.01,
    },
    "cpo": {
        "target_kl": 0.02,
        "damping": 0.1,
        "cg_steps": 8,
        "line_search_tries": 6,
        "line_search_decay": 0.7,
    },
}
CASES = [(name, task) for name in ALGORITHM for task in TASKS]


def trained(name, task):
    """The numbers of each iteration: {metric: [iterations, ...]}."""
    horizon, limit = TASKS[task]
    env = ecop.make(task, horizon=horizon)
    config = TrainConfig(**TRAIN, horizon=horizon, limits=(limit,))
    algorithm = ALGORITHMS[name](**ALGORITHM[name])
    learner = Learner(env, env.spec.with_limits((limit,)), algorithm, config)
    (part,) = run_seeds(learner, init_seeds(learner), [config.iterations])
    return {x: np.asarray(part.metrics[0][x], np.float64) for x in SHOWN}


@pytest.mark.parametrize(("name", "task"), CASES)
def test_the_numbers_are_those_written_down(name, task):
    found = trained(name, task)
    expected = json.loads(FILE.read_text())[f"{name} {task}"]
    assert expected.keys() == found.keys()
    for metric, numbers in expected.items():
        np.testing.assert_allclose(
            found[metric], numbers, RELATIVE, ABSOLUTE, err_msg=metric
        )


def test_every_option_is_given():
    for name, options in ALGORITHM.items():
        assert options.keys() == values(ALGORITHMS[name]()).keys(), name
    fields = {field.name for field in dataclasses.fields(TrainConfig)}
    assert TRAIN.keys() | {"horizon", "limits"} == fields


def write():
    """One line per run."""
    lines = []
    for name, task in CASES:
        numbers = {x: np.round(y, 6).tolist() for x, y in trained(name, task).items()}
        lines.append(f'"{name} {task}": {json.dumps(numbers)}')
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    write()
