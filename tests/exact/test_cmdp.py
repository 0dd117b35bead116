"""Tables: what is stored, and one clear sentence for each kind of bad input."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import sparse

from ecop.errors import UserError
from ecop.exact import (
    PROBLEMS,
    backward_induction,
    evaluate_exact,
    random_cmdp,
    smallest_cost,
    tabular_cmdp,
)

HALF = np.full((2, 2, 2), 0.5)


def small(**changes):
    options = {
        "transition": HALF,
        "reward": np.eye(2),
        "costs": np.ones((1, 2, 2)),
        "limits": [1.0],
        "horizon": 3,
    }
    return tabular_cmdp("Small", **(options | changes))


def with_entry(array, index, value):
    array = np.array(array, float)
    array[index] = value
    return array


BAD = {
    "sum": ({"transition": with_entry(HALF, (1, 0, 1), 0.4)}, r"state 1, action 0 sum"),
    "negative": (
        {"transition": with_entry(with_entry(HALF, (1, 1, 0), -0.5), (1, 1, 1), 1.5)},
        r"negative at step 0, state 1, action 1",
    ),
    "transition nan": (
        {"transition": with_entry(HALF, (0, 0, 0), np.nan)},
        r"transition at step 0 holds NaN",
    ),
    "transition shape": (
        {"transition": np.ones((2, 2))},
        r"transition must have shape",
    ),
    "transition steps": (
        {"transition": np.stack([HALF] * 2)},
        r"transition has 2 steps but the horizon is 3",
    ),
    "sparse shape": (
        {"transition": sparse.csr_array(np.full((3, 2), 0.5))},
        r"step 0 must have shape \[4, 2\]",
    ),
    "reward shape": ({"reward": np.zeros(2)}, r"reward must have shape"),
    "reward steps": ({"reward": np.zeros((2, 2, 2))}, r"reward table has 2 steps"),
    "reward nan": ({"reward": [[np.nan, 0], [0, 0]]}, r"reward table holds NaN"),
    "reward ragged": ({"reward": [[1], [0, 0]]}, r"not a plain array"),
    "costs shape": ({"costs": np.ones((2, 2))}, r"costs must have shape"),
    "costs states": ({"costs": np.ones((1, 3, 2))}, r"costs must have shape"),
    "costs inf": ({"costs": np.full((1, 2, 2), np.inf)}, r"costs table holds NaN"),
    "horizon": ({"horizon": 0}, r"horizon must be an integer of at least 1, not 0"),
    "half a step": ({"horizon": 2.5}, r"horizon must be an integer .*, not 2.5"),
    "negative limit": ({"limits": [-1.0]}, r"'cost_0' must be zero or more, not -1"),
    "nan limit": ({"limits": [np.nan]}, r"'cost_0' must be zero or more, not nan"),
    "too many limits": ({"limits": [1, 2]}, r"1 cost\(s\).*2 limit\(s\)"),
    "no limits": ({"limits": []}, r"1 cost\(s\).*0 limit\(s\)"),
    "names": ({"cost_names": ["a", "b"]}, r"1 cost\(s\) but 2 cost name"),
    "initial shape": ({"initial": np.ones(3) / 3}, r"initial distribution must have"),
    "initial sum": ({"initial": [0.5, 0.6]}, r"initial distribution sums to 1.1"),
    "initial negative": ({"initial": [1.5, -0.5]}, r"negative probability"),
    "initial nan": ({"initial": [np.nan, 1.0]}, r"initial distribution holds NaN"),
    "initial state": ({"initial": 2}, r"integer from 0 to 1, not 2"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_clear_sentence(case):
    changes, sentence = BAD[case]
    with pytest.raises(UserError, match=sentence) as caught:
        small(**changes)
    message = str(caught.value)
    assert message.endswith(".")
    assert "\n" not in message


def test_canonical_form_is_checked_too():
    with pytest.raises(UserError, match="reward table holds NaN"):
        replace(small(), reward=np.full((3, 2, 2), np.nan))


@pytest.mark.parametrize(
    ("policy", "sentence"),
    [
        (np.full((3, 2, 3), 1 / 3), "must have shape"),
        (np.full((2, 2), 0.4), "sum to 1"),
        (np.array([[1.5, -0.5], [0.5, 0.5]]), "sum to 1"),
        (np.full((2, 2), np.nan), "sum to 1"),
    ],
)
def test_bad_policies(policy, sentence):
    with pytest.raises(UserError, match=sentence):
        evaluate_exact(small(), policy)


def test_stationary_tables_are_not_copied_over_time():
    cmdp = small(horizon=50)
    assert len(cmdp.transition) == 1
    assert cmdp.reward.strides[0] == 0
    assert cmdp.costs.strides[1] == 0


def test_given_once_equals_given_at_each_step():
    base = random_cmdp(seed=1, horizon=4)
    dense = base.transition[0].toarray().reshape(6, 3, 6)
    options = {
        "reward": np.array(base.reward),
        "costs": np.array(base.costs),
        "initial": base.initial,
        "limits": base.limits,
        "horizon": 4,
    }
    policy = np.random.default_rng(0).dirichlet(np.ones(3), (4, 6))
    expected = evaluate_exact(base, policy)
    for transition in (dense, np.stack([dense] * 4), list(base.transition) * 4):
        other = tabular_cmdp("Same", transition=transition, **options)
        assert_allclose(evaluate_exact(other, policy)[0], expected[0], atol=1e-12)
        assert_allclose(evaluate_exact(other, policy)[1], expected[1], atol=1e-12)


def test_no_costs_at_all():
    cmdp = small(costs=None, limits=[])
    assert cmdp.costs.shape == (0, 3, 2, 2)
    assert_allclose(backward_induction(cmdp).value, 3.0)


@pytest.mark.parametrize("tightness", [0.0, 0.3, 1.0])
def test_tightness_interpolates_the_limit(tightness):
    cmdp = random_cmdp(seed=6, tightness=tightness)
    least, most = smallest_cost(cmdp), backward_induction(cmdp).costs[0]
    assert least < most
    assert_allclose(cmdp.limits, [most + tightness * (least - most)], atol=1e-12)


def test_random_cmdp_options():
    cmdp = random_cmdp(states=9, successors=2, time_varying=True, horizon=3, seed=1)
    assert len(cmdp.transition) == 3
    for matrix in cmdp.transition:
        assert (np.diff(matrix.indptr) == 2).all()
    assert np.abs(cmdp.reward[0] - cmdp.reward[1]).max() > 0.1
    other = random_cmdp(states=9, successors=2, time_varying=True, horizon=3, seed=2)
    assert np.abs(cmdp.reward - other.reward).max() > 0.1
    for successors in (0, 7):
        with pytest.raises(UserError, match="between 1 and 6"):
            random_cmdp(states=6, successors=successors)
    with pytest.raises(UserError, match="between 0 and 1"):
        random_cmdp(tightness=1.5)


@pytest.mark.parametrize("name", PROBLEMS)
def test_problems_take_horizon_and_limit(name):
    cmdp = PROBLEMS[name](horizon=4, limit=0.75)
    assert cmdp.horizon == cmdp.spec.horizon == 4
    assert cmdp.limits == cmdp.spec.limits == (0.75,)
    assert cmdp.name == name


def test_cost_of_peak_hours_changes_with_the_step():
    cmdp = PROBLEMS["PeakHours"]()
    charging = cmdp.costs[0, :, 0, 1]
    assert_allclose(charging, np.repeat([0.5, 2.0, 1.0], 4))


def test_inventory_cuts_orders_to_the_free_space():
    cmdp = PROBLEMS["Inventory"]()
    matrix = cmdp.transition[0].toarray().reshape(6, 6, 6)
    assert_allclose(matrix[4, 5], matrix[4, 1])
    assert cmdp.reward[0, 4, 5] == cmdp.reward[0, 4, 1]
    assert cmdp.costs[0, 0, 4, 5] == cmdp.costs[0, 0, 4, 1]
