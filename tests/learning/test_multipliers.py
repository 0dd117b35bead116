"""Multiplier rules against hand-worked sequences."""

import jax.numpy as jnp
import numpy as np
import pytest

from ecop.learning.multipliers import (
    FAR,
    MARGIN_RATE,
    REACH,
    Ascent,
    PidGains,
    grown_margin,
)


def array(*values):
    return jnp.asarray(values, jnp.float32)


def test_plain_ascent_is_projected():
    """Violations, in hundredths of their unit, within reach of an iteration."""
    ascent = Ascent(multiplier_rate=50.0)
    state = ascent.init(2)
    for violation, value in [
        (array(0.01, -0.01), [0.5, 0.0]),
        (array(-0.004, 0.02), [0.3, 1.0]),
        (array(-0.05, 0.05), [0.0, 1.5]),
    ]:
        state = ascent.step(state, violation, maximum=1.5)
        np.testing.assert_allclose(state.value, value, rtol=1e-5)


@pytest.mark.parametrize("rule", ["plain", "adam"])
def test_what_no_iteration_can_mend_counts_as_what_it_can(rule):
    ascent = Ascent(multiplier_rate=2.0, multiplier_rule=rule)
    far, near = ascent.init(1), ascent.init(1)
    for violation in (30.0, 7.0, -0.5, 2 * REACH):
        far = ascent.step(far, array(violation))
        near = ascent.step(near, array(np.sign(violation) * REACH))
        assert float(far.value[0]) == float(near.value[0])
    if rule == "plain":
        assert float(far.value[0]) == pytest.approx(2.0 * 2 * REACH)


def test_adam_steps_do_not_depend_on_the_scale():
    values = []
    for scale in (1e-2, 1e-5):
        ascent = Ascent(multiplier_rate=0.1, multiplier_rule="adam")
        state = ascent.init(1)
        for violation in (2.0, 1.0, -0.5):
            state = ascent.step(state, array(scale * violation))
        values.append(float(state.value[0]))
    assert values[0] == pytest.approx(values[1], rel=1e-2)
    assert 0.1 < values[0] < 0.3


def test_pid_by_hand():
    """K_P = 1, K_I = 0.5, K_D = 2, memories 0.5 and 0.75, a delay of 2."""
    gains = PidGains(
        proportional=1.0,
        integral=0.5,
        derivative=2.0,
        error_memory=0.5,
        cost_memory=0.75,
        delay=2,
    )
    state = gains.init(1)
    #   violation  I      error   cost      cost two before  rise     lambda
    expected = [
        (4.0, 2.0, 4.0, 4.0),  # first value, no rise: 4 + 2 = 6
        (8.0, 6.0, 6.0, 5.0),  # rise 5 - 4: 6 + 6 + 2 = 14
        (0.0, 6.0, 3.0, 3.75),  # 3.75 < 4, no rise: 3 + 6 = 9
        (-20.0, 0.0, -8.5, -2.1875),  # 0 - 8.5 < 0
        (12.0, 6.0, 1.75, 1.359375),  # 1.36 < 3.75, no rise: 1.75 + 6
        (12.0, 12.0, 6.875, 4.01953125),  # rise 4.0195 + 2.1875
    ]
    answers = [6.0, 14.0, 9.0, 0.0, 7.75, 6.875 + 12.0 + 2 * 6.20703125]
    for row, answer in zip(expected, answers, strict=True):
        # In hundredths of the unit, so that none is far.
        violation, total, error, cost = (x / 100 for x in row)
        state, multiplier = gains.step(state, array(violation))
        assert float(state.integral[0]) == pytest.approx(total)
        assert float(state.error.value[0]) == pytest.approx(error, rel=1e-5)
        assert float(state.cost.value[0]) == pytest.approx(cost, rel=1e-5)
        assert float(multiplier[0]) == pytest.approx(answer / 100, rel=1e-5)


def test_a_slack_limit_in_another_unit_is_no_rise():
    gains = PidGains(derivative=5.0, delay=1)
    state = gains.init(1)
    for violation in (-1e4, -1e5, -3.0, -50.0):
        state, multiplier = gains.step(state, array(violation))
        assert float(multiplier[0]) == 0.0
    near, far = (gains.step(state, array(x))[1] for x in (FAR, 1e4))
    assert float(near[0]) == float(far[0]) > 0.0


def test_the_margin_adds_up_what_remains():
    margin, slow = jnp.zeros(2, jnp.float32), np.zeros(2)
    rng = np.random.default_rng(3)
    for violation in rng.normal(size=(40, 2)) * np.array([0.02, 10.0]):
        margin = grown_margin(margin, jnp.asarray(violation, jnp.float32))
        for i in range(2):
            mendable = min(max(violation[i], -REACH), REACH)
            slow[i] = max(0.0, slow[i] + MARGIN_RATE * mendable)
        np.testing.assert_allclose(margin, slow, rtol=1e-4, atol=1e-7)
