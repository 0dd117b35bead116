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


def test_adverts(examples, tmp_path, capsys):
    pytest.importorskip("trl", reason="needs ecop[trl]: trl is missing")
    import figures
    import text_budgets
    import text_seeds
    import tiny_text

    model = tiny_text.make(tmp_path / "model", steps=2)
    courses = {}
    for name, settings in text_budgets.METHODS.items():
        courses[name], samples, _ = text_budgets.train(
            model, tmp_path, steps=4, **settings
        )
        assert all(sample.startswith("our ") for sample in samples)
    text_budgets.draw(courses, tmp_path / "picture.png")
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")
    assert courses["GRPO"]["reward"][0] == courses["e-COP"]["reward"][0]
    runs = [{"arm": "e-COP", "course": courses["e-COP"]}]
    figures.table(runs, text_seeds.ARMS, text_budgets.LIMITS)
    assert "| e-COP |" in capsys.readouterr().out


def test_figures(examples):
    from figures import figures

    rng = np.random.default_rng(0)
    noise, limits = 0.1 * rng.standard_normal((4, 2, 4000)), np.array([1.0, 2.0])
    wave = np.array([0.0, 0.2])[:, None] * np.sin(np.arange(4000) / 50)
    costs = 1.0 + noise + wave
    costs[:, 0, :10] += 1.0  # the first steps
    found = figures(costs, np.full(costs.shape, 0.1), limits)
    np.testing.assert_allclose(found["late"], 1.0, atol=0.02)
    np.testing.assert_allclose(found["overshoot"], [100.0, 0.0], atol=10.0)
    np.testing.assert_allclose(found["noise"], 0.1)
    policy = 0.2 / np.sqrt(2)
    np.testing.assert_allclose(found["policy"], [0.0, policy], atol=0.02)
    np.testing.assert_allclose(found["swing"], [0.1, np.hypot(0.1, policy)], atol=5e-3)


def test_runs_that_are_stored_are_not_repeated(examples, tmp_path):
    from figures import stored

    calls = []

    def run(seed, **settings):
        calls.append((seed, settings))
        return {"course": {"reward": [seed]}}

    file = tmp_path / "runs.jsonl"
    one = stored(file, {"a": {"beta": 0.0}}, 1, run)
    two = stored(file, {"a": {"beta": 0.0}, "b": {}}, 2, run)
    assert calls == [(200, {"beta": 0.0}), (201, {"beta": 0.0}), (200, {}), (201, {})]
    assert two[0] == one[0] == {"arm": "a", "seed": 200, "course": {"reward": [200]}}
    assert len(file.read_text().splitlines()) == 4


def test_costs_of_an_advert(examples):
    pytest.importorskip("datasets", reason="needs ecop[trl]: datasets is missing")
    import tiny_text

    text = ["great miracle . it is a cure", "warm ."]
    assert tiny_text.praise(text) == [5.0, 0.0]
    assert tiny_text.unsafe(text) == [2.0, 0.0]


def test_digits(examples, tmp_path, monkeypatch, capsys):
    pytest.importorskip("sklearn", reason="needs scikit-learn for the digits")
    import digits_budgets
    import digits_seeds
    import torch

    monkeypatch.setattr(digits_budgets, "FRESH", 4)

    digits = torch.rand(32, 1, 8, 8) * 2 - 1
    start = digits_budgets.pretrain(digits, steps=2)
    courses, images = {}, {}
    for name in digits_budgets.ARMS:
        courses[name], images[name], _ = digits_budgets.train(
            start,
            lambda images: (images.mean((1, 2, 3)) > 0).float(),
            steps=12,
            seed=0,
            **digits_budgets.ARMS[name],
        )
    digits_seeds.fresh_table([{"arm": "e-COP", "course": courses["e-COP"]}])
    assert "e-COP: 2048 fresh images" in capsys.readouterr().out
    images["before"] = images["DDPO"]
    digits_budgets.draw(courses, images, tmp_path / "picture.png")
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")
    assert courses["DDPO"]["kl"][0] == 0.0
    assert courses["DDPO"]["kl"][1] > 0.0
