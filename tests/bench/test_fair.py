"""The fair measurement: scores, blocks, pairs and verdicts, by numbers done by hand."""

import math
from typing import Any

import numpy as np
import pytest

from ecop.report import fair, tables
from ecop.report.arms import Arm


def run(seed: int, reward: float, cost: float, **more: Any) -> dict[str, Any]:
    """A finished run whose four fresh episodes cost cost - 1, cost - 1, + 1, + 1."""
    costs = [[cost - 1.0], [cost - 1.0], [cost + 1.0], [cost + 1.0]]
    return {
        "cell": {"train": {"first_seed": seed}},
        "env_steps": 100,
        "costs": ["cost"],
        "curve": {"reward": [more.pop("first", 0.0), 50.0]},
        "evaluation": {"reward": [reward] * 4, "costs": costs},
        "exact": None,
        **more,
    }


def arm(algorithm: str, *runs: dict[str, Any], **more: Any) -> Arm:
    """An arm of Table 1 on one task with limit 10."""
    fields = {"section": "table1", "task": "PointCircle", "variant": "", **more}
    limits = np.array(fields.pop("limits", [10.0]))
    planned = [str(i) for i in range(len(runs))]
    return Arm(
        algorithm=algorithm,
        limits=limits,
        planned=planned,
        documents=list(runs),
        **fields,
    )


def test_a_score_is_relative_and_only_within_the_limits():
    ecop = arm("ecop", run(0, 80.0, 9.0), run(1, 60.0, 10.0), run(2, 99.0, 10.1))
    other = arm("cpo", run(0, 100.0, 4.0, first=-40.0), run(1, -30.0, 3.0))
    (block,) = fair.family_blocks("tasks", [ecop, other])
    assert block.best == 100.0
    assert block.zero == pytest.approx(-8.0)  # five first batches: 0, 0, 0, 0, -40
    found = block.scores("e-COP")
    assert found == pytest.approx({0: 88 / 108, 1: 68 / 108, 2: 0.0})
    # Within, but worse than untrained: no less than what breaks a limit.
    assert block.scores("CPO") == {0: 1.0, 1: 0.0}
    # The standard error of the mean cost is 1 / sqrt(3) = 0.58: 10.1 is not clearly
    # above 10, and earns the best known reward at most.
    lenient = block.scores("e-COP", errors=2.0)
    assert lenient == pytest.approx({**found, 2: 107 / 108})


def test_nobody_within_scores_nothing():
    both = [arm("ecop", run(0, 80.0, 19.0)), arm("cpo", run(0, 90.0, 12.0))]
    (block,) = fair.family_blocks("tasks", both)
    assert block.best is None
    assert [block.scores(name) for name in ("e-COP", "CPO")] == [{0: 0.0}, {0: 0.0}]
    assert "no run of e-COP is within, and none of CPO" in fair.verdict(block)
    # A task whose best policy within the limits is worse than an untrained one.
    poor = [arm("ecop", run(0, 1.0, 5.0, first=3.0))]
    (block,) = fair.family_blocks("tasks", poor)
    assert block.scores("e-COP") == {0: 0.0}


def test_tables_are_measured_by_their_optimum():
    """Rewards are negative, as on MediaStreaming; costs up to 2 % above count."""
    truths = [(-7.0, 5.0), (-8.0, 5.1), (-6.0, 5.11)]
    runs = [
        run(
            i,
            0.0,
            0.0,
            exact={"optimum": -6.5, "worst": -10.0, "value": v, "costs": [c]},
        )
        for i, (v, c) in enumerate(truths)
    ]
    mine = arm("ecop", *runs, section="exact", task="MediaStreaming", limits=[5.0])
    (block,) = fair.family_blocks("exact", [mine])
    assert (block.best, block.zero) == (-6.5, -10.0)
    assert block.scores("e-COP") == pytest.approx({0: 3 / 3.5, 1: 2 / 3.5, 2: 0.0})
    table = tables.gaps_table("exact", [mine])
    assert table
    gap, within, worst = (table.rows[0][i].text for i in (2, 4, 5))
    assert gap == f"{100 * 0.5 / 6.5:.2f} %"
    assert within.startswith("67 % [")
    assert worst == "+2.20 %"


def test_policies_on_the_way():
    half = {"share": 0.5, "env_steps": 50, "reward": [30.0], "costs": [[2.0]]}
    last = {"share": 1.0, "env_steps": 99, "reward": [60.0], "costs": [[3.0]]}
    mine = arm("ecop", run(0, 60.0, 3.0, evaluations=[half, last]))
    (block,) = fair.family_blocks("tasks", [mine])
    assert block.scores("e-COP", 0.5) == {0: 0.5}
    assert block.scores("e-COP", 0.1) == {}
    (standing,) = fair.standings([block])
    assert standing.score[0.1] is None
    half_way = standing.score[0.5]
    assert half_way is not None
    assert half_way.value == 0.5
    assert standing.last.value == 1.0


def test_the_aggregate_weighs_tasks_alike_and_pairs_seeds():
    reach = {"task": "PointReach"}
    shown = [
        arm("ecop", run(0, 100.0, 1.0), run(1, 50.0, 1.0)),
        arm("cpo", run(0, 90.0, 1.0), run(1, 40.0, 1.0), run(7, 0.0, 1.0)),
        arm("ecop", run(0, 10.0, 1.0), run(1, 10.0, 1.0), run(2, 10.0, 1.0), **reach),
        arm("cpo", run(0, 10.0, 1.0), run(1, 10.0, 11.0), **reach),
        arm("ppo", run(0, 500.0, 99.0), run(1, 500.0, 99.0)),
        arm("ecop", run(0, 1.0, 1.0), run(1, 1.0, 1.0), variant="paper"),
    ]
    blocks = fair.family_blocks("tasks", shown)
    found = {x.name: x for x in fair.standings(blocks)}
    assert list(found) == ["e-COP", "CPO", "e-COP (paper)", "PPO"]
    assert found["e-COP"].last.value == pytest.approx((0.75 + 1.0) / 2)
    cpo = found["CPO"]
    assert cpo.last.value == pytest.approx((1.3 / 3 + 0.5) / 2)
    assert cpo.ahead is not None
    assert cpo.ahead.value == pytest.approx((0.1 + 0.5) / 2)  # seeds 0 and 1 alone
    assert cpo.ahead.low == pytest.approx(0.05)  # 0.1 always, and no run of 11 drawn
    assert cpo.within.value == pytest.approx(4 / 5)
    assert cpo.excess == pytest.approx(0.1 / 5)
    assert (found["PPO"].blocks, found["PPO"].last.value) == (1, 0.0)
    table = tables.fair_table("tasks", shown)
    assert table
    marked = [row[0].text for row in table.rows if any(e.mark == "best" for e in row)]
    assert marked == ["e-COP"]
    words = fair.overall("Tasks", list(found.values()), len(blocks))
    assert "the best of the others is CPO" in words
    first, second = map(fair.verdict, blocks)
    assert first.startswith("PointCircle, limit 10: e-COP is ahead of the best other")
    assert "e-COP is, not clearly, ahead of the best other, CPO" in second
    assert "1 of 2 runs within" in second


def test_the_interval_covers_what_it_should():
    """Of 300 experiments with known mean, the share whose interval holds it."""
    chance = np.random.default_rng(3)
    hits = 0
    for _ in range(300):
        strata = [chance.normal(mean, 1.0, 20) for mean in (0.0, 2.0)]
        found = fair.mean_of_means(strata)
        hits += found.low <= 1.0 <= found.high
    assert 0.88 <= hits / 300 <= 0.98
    # With a single run each, the strata are drawn.
    alone = fair.mean_of_means([np.array([x]) for x in (0.0, 1.0, 1.0)])
    assert alone.value == pytest.approx(2 / 3)
    assert alone.low < alone.value < alone.high
    assert math.isnan(fair.mean_of_means([np.array([0.5])]).low)


def test_two_limits_and_limits_that_are_off():
    policy = fair.Measured(0.0, np.array([11.0, 99.0]), np.zeros(2), 0.0)
    assert policy.excess(np.array([10.0, np.inf])) == pytest.approx(0.1)
    assert not policy.within(np.array([10.0, np.inf]))
    assert policy.within(np.array([11.0, np.inf]))
    assert not policy.within(np.array([11.0, 98.0]))


def test_blocks_are_tasks_with_limits_once():
    """Fig. 4 runs Table 1's limit too: the cells are the same and count once."""
    some = run(0, 5.0, 1.0)
    shown = [
        arm("ecop", some),
        arm("ecop", some, section="limits", variant="limit 10"),
        arm("ecop", some, section="limits", variant="limit 5", limits=[5.0]),
    ]
    titles = [block.title for block in fair.family_blocks("tasks", shown)]
    assert titles == ["PointCircle, limit 10", "PointCircle, limit 5"]


@pytest.mark.parametrize(
    ("difference", "ends", "words"),
    [
        (0.2, (0.1, 0.3), "is ahead of"),
        (-0.2, (-0.3, -0.1), "is behind"),
        (0.2, (-0.1, 0.3), "is, not clearly, ahead of"),
        (-0.2, (-0.3, 0.1), "is, not clearly, behind"),
        (-0.2, (math.nan, math.nan), "is, not clearly, behind"),
        (0.001, (0.0, 0.002), "is level with"),
    ],
)
def test_ahead_level_behind(difference, ends, words):
    gap = fair.st.Estimate(difference, *ends)
    assert fair.standing_to(difference, gap) == words


def test_who_ran_alone_is_not_best():
    (block,) = fair.family_blocks("tasks", [arm("ecop", run(0, 5.0, 1.0))])
    assert "nothing else was run" in fair.verdict(block)
    (block,) = fair.family_blocks("tasks", [arm("cpo", run(0, 5.0, 1.0))])
    assert "e-COP was not run; CPO has reward 5" in fair.verdict(block)
