"""The examples run, only shorter."""

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs ecop[finetune]: torch is missing")
pytestmark = pytest.mark.filterwarnings("default")  # of other people's packages
EXAMPLES = Path(__file__).parents[2] / "examples" / "finetune"


@pytest.fixture
def examples(monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLES)


def test_adverts(examples, tmp_path):
    pytest.importorskip("trl", reason="needs ecop[trl]: trl is missing")
    import text_budgets
    import text_seeds
    import tiny_text

    model = tiny_text.make(tmp_path / "model", steps=2)
    courses = {}
    for name, settings in text_budgets.METHODS.items():
        courses[name], samples, _ = text_budgets.train(
            model, tmp_path, steps=2, **settings
        )
        assert all(sample.startswith("our ") for sample in samples)
    text_budgets.draw(courses, tmp_path / "picture.png")
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")
    assert courses["GRPO"]["reward"][0] == courses["e-COP"]["reward"][0]
    steps = 40
    flat = {"reward": [1.0] * steps, "unsafe": [0.6] * steps}
    flat |= {"completion_length": [10.0] * steps, "kl": [3.0] * (steps // 2) * 2}
    figures = text_seeds.figures(flat)
    np.testing.assert_allclose(figures["overshoot"], [100.0, 0.0, 0.0], atol=1e-9)
    np.testing.assert_allclose(figures["swing"], 0.0, atol=1e-12)


def test_costs_of_an_advert(examples):
    pytest.importorskip("datasets", reason="needs ecop[trl]: datasets is missing")
    import tiny_text

    text = ["great miracle . it is a cure", "warm ."]
    assert tiny_text.praise(text) == [5.0, 0.0]
    assert tiny_text.unsafe(text) == [2.0, 0.0]


def test_digits(examples, tmp_path):
    pytest.importorskip("sklearn", reason="needs scikit-learn for the digits")
    import digits_budgets
    import torch

    digits = torch.rand(32, 1, 8, 8) * 2 - 1
    start = digits_budgets.pretrain(digits, steps=2)
    courses, images = {}, {}
    for name in digits_budgets.SHOWN:
        courses[name], images[name], _ = digits_budgets.train(
            start,
            lambda images: (images.mean((1, 2, 3)) > 0).float(),
            steps=2,
            seed=0,
            **digits_budgets.ARMS[name],
        )
    images["before"] = images["DDPO"]
    digits_budgets.draw(courses, images, tmp_path / "picture.png")
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")
    assert courses["DDPO"]["kl"][0] == 0.0
    assert courses["DDPO"]["kl"][1] > 0.0
