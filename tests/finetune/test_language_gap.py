"""e-COP's torch path comes within 5 % of the exact optimum of the language world."""

import importlib
from pathlib import Path

import numpy as np
import pytest

from ecop.exact.language import language_world, solve_language

pytest.importorskip("torch", reason="needs ecop[finetune]: torch is missing")
EXAMPLES = Path(__file__).parents[2] / "examples" / "finetune"


@pytest.fixture
def module(monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLES)
    return importlib.import_module("language_world")


def test_gap_to_the_exact_optimum(module):
    world = language_world()
    best = solve_language(world)
    options = module.Options(sentences=512, learning_rate=0.1, iterations=160)
    curve = module.train(world, options, seed=0)
    late = slice(len(curve.rewards) // 2, None)
    assert curve.rewards[late].mean() > 0.95 * best.value
    limits = np.array([*world.cmdp.limits, world.kl_limit])
    assert (curve.costs[late].mean(0) < 1.05 * limits).all()
    assert curve.rewards[late].mean() < 1.02 * best.value  # it is the optimum


def test_advantages_against_loops(module):
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    signal = torch.randn(4, 3, 2)
    mask = torch.tensor([[1.0, 1, 1], [1, 1, 0], [1, 0, 0], [1, 1, 1]])
    signal = signal * mask[..., None]
    whole = module.advantage(signal, mask, to_go=False)
    rest = module.advantage(signal, mask, to_go=True)
    for n in range(4):
        for h in range(3):
            alive = [m for m in range(4) if mask[m, h]]
            total = signal[n].sum(0) - torch.stack(
                [signal[m].sum(0) for m in range(4)]
            ).mean(0)
            later = signal[n, h:].sum(0) - torch.stack(
                [signal[m, h:].sum(0) for m in alive]
            ).mean(0)
            torch.testing.assert_close(whole[n, h], total * mask[n, h])
            torch.testing.assert_close(rest[n, h], later * mask[n, h])
