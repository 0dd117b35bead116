"""The skeleton of an algorithm trains as it stands."""

import importlib.util
import sys
from pathlib import Path

import ecop
from ecop.algorithms import ALGORITHMS

FILE = Path(__file__).parents[1] / "docs" / "dev" / "skeleton_algorithm.py"


def test_the_skeleton_trains_once_it_is_registered(monkeypatch, tmp_path):
    spec = importlib.util.spec_from_file_location("skeleton_algorithm", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    monkeypatch.setitem(ALGORITHMS, "skeleton", module.Skeleton)
    options = {"seeds": 1, "iterations": 60, "episodes": 10, "hidden": (8,)}
    run = ecop.train(
        "FactoredRing",
        module.Skeleton(learning_rate=0.03),
        limits=[1.5],
        out=tmp_path / "a",
        **options,
    )
    late = run.metrics[-20:]
    assert sum(line["costs"][0] for line in late) / 20 < 2.0  # untrained it is 3.0
    again = ecop.load(tmp_path / "a")
    assert again.config.algorithm == module.Skeleton(learning_rate=0.03)
