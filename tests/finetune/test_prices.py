"""Multipliers, prices and units, against slow versions; no torch."""

import json
import math
import subprocess
import sys

import numpy as np
import pytest

from ecop.errors import UserError
from ecop.finetune import Prices


def penalty(psi, multiplier, beta):
    """The paper's damped penalty of one constraint, as printed (Problem 6)."""
    return (
        beta / 2 * (max(0.0, psi + multiplier / beta) ** 2 - (multiplier / beta) ** 2)
    )


@pytest.mark.parametrize("psi", [-2.0, -0.3, 0.0, 0.4, 3.0])
@pytest.mark.parametrize("multiplier", [0.0, 0.7])
def test_price_is_the_slope_of_the_damped_penalty(psi, multiplier):
    prices = Prices([1.0], beta=1.5)
    prices.multiplier = np.array([multiplier])
    step = 1e-6
    slope = penalty(psi + step, multiplier, 1.5) - penalty(psi - step, multiplier, 1.5)
    assert prices.prices([psi])[0] == pytest.approx(slope / (2 * step), abs=1e-5)


def test_updates_against_a_slow_version():
    rng = np.random.default_rng(0)
    limits, beta, rate, caution = [0.5, 12.0], 2.0, 0.1, 0.7
    prices = Prices(limits, beta=beta, rate=rate, caution=caution)
    multiplier, running = [0.0, 0.0], [0.0, 0.0]
    for batch in range(20):
        means, stds = rng.uniform(0, [1, 24]), rng.uniform(0, [0.1, 5])
        violation = prices.update(means, stds, 64)
        for i, limit in enumerate(limits):
            older = 0.9 * running[i] + 0.1 * stds[i]
            running[i] = older if batch else stds[i]
            unit = max(running[i], 0.1 * limit)
            excess = means[i] + caution * stds[i] / math.sqrt(64) - limit
            assert violation[i] == pytest.approx(excess / unit)
            multiplier[i] = max(0.0, multiplier[i] + rate * excess / unit)
            assert prices.multiplier[i] == pytest.approx(multiplier[i])
            price = max(0.0, multiplier[i] + beta * excess / unit)
            assert prices.prices()[i] == pytest.approx(price)


def test_a_cost_and_its_limit_in_other_units_change_nothing():
    rng = np.random.default_rng(1)
    one, other = Prices([2.0], caution=1.0), Prices([2000.0], caution=1.0)
    for _ in range(5):
        mean, std = rng.uniform(0, 4, 1), rng.uniform(0, 1, 1)
        one.update(mean, std, 8)
        other.update(1000 * mean, 1000 * std, 8)
    np.testing.assert_allclose(one.prices(), other.prices())
    assert one.multiplier[0] > 0


def test_a_cost_that_never_varied_has_a_unit():
    prices = Prices({"rare": 0.2, "never": 0.0})
    prices.update([0.0, 0.0], [0.0, 0.0], 4)
    np.testing.assert_allclose(prices.scale, [0.02, 1.0])
    assert np.isfinite(prices.prices()).all()


def test_bound_stops_multiplier_and_price():
    prices = Prices([1.0], rate=1.0, beta=1.0, bound=3.0)
    for _ in range(10):
        prices.update([50.0], [1.0], 4)
    assert prices.multiplier[0] == 3.0
    assert prices.prices()[0] == 3.0


def test_slack_limits_cost_nothing():
    prices = Prices([5.0])
    prices.update([1.0], [1.0], 4)
    assert prices.prices()[0] == prices.multiplier[0] == 0.0


def test_state_through_json_goes_on_with_the_same_bits():
    prices = Prices({"unsafe": 0.3, "kl": 6.0}, caution=0.5)
    prices.update([0.7, 9.1], [0.3, 1.7], 32)
    again = Prices({"unsafe": 0.3, "kl": 6.0}, caution=0.5)
    again.load_json(prices.to_json())
    for p in (prices, again):
        p.update([0.4, 5.0], [0.2, 1.1], 32)
    assert again.to_json() == prices.to_json()
    np.testing.assert_array_equal(again.prices(), prices.prices())


def test_rows_say_what_to_log():
    prices = Prices({"unsafe": 0.3, "kl": 6.0})
    prices.update([0.7, 5.0], [0.3, 1.7], 32)
    rows = prices.rows([0.7, 5.0], [0.3, 1.7], 36)
    assert rows["unsafe"]["violated"] == 1.0
    assert rows["kl"]["violated"] == 0.0
    assert rows["unsafe"]["error"] == pytest.approx(0.05)
    wanted = {"cost", "error", "limit", "multiplier", "price", "violated"}
    assert set(rows["kl"]) == wanted
    assert rows["unsafe"]["price"] == pytest.approx(prices.prices()[0])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"limits": [math.nan]}, "finite number"),
        ({"limits": [math.inf]}, "finite number"),
        ({"limits": [1.0], "beta": -1}, "beta must be zero or more"),
        ({"limits": [1.0], "rate": math.inf}, "rate must be zero or more"),
        ({"limits": [1.0], "caution": -0.1}, "caution must be zero or more"),
        ({"limits": [1.0], "bound": 0.0}, "bound must be positive"),
        ({"limits": [1.0], "beta": 0.0, "rate": 0.0}, "no limit has a price"),
    ],
)
def test_options_out_of_range(options, message):
    limits = options.pop("limits")
    with pytest.raises(UserError, match=message):
        Prices(limits, **options)


def test_costs_that_cannot_be_used():
    prices = Prices({"unsafe": 0.3})
    with pytest.raises(UserError, match="mean of 'unsafe' is nan"):
        prices.update([math.nan], [1.0], 4)
    with pytest.raises(UserError, match="one mean per constraint"):
        prices.update([1.0, 2.0], [1.0], 4)
    with pytest.raises(UserError, match="negative"):
        prices.update([1.0], [-1.0], 4)


def test_state_of_other_constraints_is_refused():
    saved = json.loads(Prices({"unsafe": 0.3}).to_json())
    prices = Prices({"kl": 6.0})
    with pytest.raises(UserError, match="same constraints"):
        prices.load_json(json.dumps(saved))
    with pytest.raises(UserError, match="not readable"):
        prices.load_json("{")
    with pytest.raises(UserError, match="one number per constraint"):
        prices.load_json(json.dumps(saved | {"names": ["kl"], "violation": [0, 1]}))


def test_importing_needs_no_torch():
    code = "import ecop, ecop.finetune, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
