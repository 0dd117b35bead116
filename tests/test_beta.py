"""The line search of beta="auto" on made-up curves, and in a real run."""

import json

import numpy as np
import pytest

import ecop
from ecop import beta
from ecop.algorithms.ecop import BETA_LADDER
from ecop.training import Learner, Round, TrainConfig
from probes import Walk

INF = float("inf")


@pytest.mark.parametrize(
    ("costs", "tried", "chosen"),
    [
        ((9.0, 6.0, 5.0, 1.0), 3, 2),  # the first within the limit of 5
        ((9.0, 6.0, 7.0, 8.0), 4, 1),  # none: the nearest
    ],
)
def test_the_first_feasible_beta_or_the_nearest(costs, tried, chosen, monkeypatch):
    """The end of a trial counts, and only the cost that has a limit."""
    ladder = BETA_LADDER[: len(costs)]
    monkeypatch.setattr(beta, "BETA_LADDER", ladder)
    config = TrainConfig(seeds=3, hidden=(4,))
    task = Learner(Walk(), Walk().spec.with_limits((INF, 5.0)), ecop.ECOP(), config)

    def made_up(learner, states, counts):
        assert (learner, len(states), sum(counts)) == (task, beta.SEEDS, beta.TRIAL)
        rung = [float(state.algorithm.beta) for state in states]
        cost = costs[ladder.index(rung[0])]
        for i, count in enumerate(counts):
            late = 3 * i >= 2 * len(counts)
            row = [99.0, cost if late else 99.0]
            reward = np.full(count, 7.0 if late else 0.0)
            metrics = {"reward": reward, "costs": np.tile(row, (count, 1))}
            yield Round(count, states, states, [metrics] * len(states))

    monkeypatch.setattr(beta, "run_seeds", made_up)
    said = []
    found, record = beta.search_beta(task, said.append)
    assert found == ladder[chosen]
    assert [row["beta"] for row in record] == list(ladder[:tried])
    assert [row["violation"] for row in record] == [c - 5.0 for c in costs[:tried]]
    assert {row["reward"] for row in record} == {7.0}
    assert said[-1] == f"beta = {found:g} chosen"


def test_it_is_resolved_and_logged(tmp_path, monkeypatch):
    monkeypatch.setattr("ecop.beta.TRIAL", 10)
    path = tmp_path / "auto"
    algorithm = ecop.ECOP(beta="auto", backward_steps=2)
    tiny = {
        "seeds": 2,
        "episodes": 2,
        "horizon": 10,
        "hidden": (4,),
        "critic_epochs": 1,
    }
    run = ecop.train("PointCircle", algorithm, out=path, iterations=1, **tiny)
    document = json.loads((path / "config.json").read_text())
    tried = document["beta_search"]
    assert tried[0]["beta"] == BETA_LADDER[0]
    assert run.config.algorithm.beta in [t["beta"] for t in tried]
    assert document["algorithm"]["beta"] == run.config.algorithm.beta
    assert run.metrics[0]["beta"] == pytest.approx(run.config.algorithm.beta)
