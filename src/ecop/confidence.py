"""What episodes say of a mean, whenever one looks: bets against a claim.

Against the claim "the mean of x is m or more", for x in [0, bound], bet that x falls
short: a stake s turns a capital of 1 into the product of 1 + s (m - x) / (bound - m)
over the episodes. If the claim is true the capital has no tendency to grow, so that it
ever exceeds 1 / error has a probability of `error` at most (Ville's inequality),
however long one goes on and whenever one stops. The right stake depends on what is not
known; the mean capital of several stakes is a fair bet too.
"""

from __future__ import annotations

import math

import numpy as np

STAKES = 0.5 ** np.arange(9)  # 1 loses all at x = bound


def log_capital(x: np.ndarray, bound: float, mean: float) -> float:
    """Evidence that the mean of x [E] in [0, bound] is below `mean` < bound."""
    with np.errstate(divide="ignore"):
        bets = np.log1p(STAKES[:, None] * (mean - x[None]) / (bound - mean))
    total = bets.sum(axis=1)
    most = total.max()
    if most == -np.inf:
        return -math.inf
    return float(most + np.log(np.exp(total - most).mean()))


def below(x: np.ndarray, bound: float, mean: float, error: float) -> bool:
    """Whether the mean of x is below `mean`; wrong with a probability up to `error`."""
    return mean >= bound or log_capital(x, bound, mean) >= -math.log(error)


def at_most(x: np.ndarray, bound: float, error: float) -> float:
    """The smallest value that the mean of x is shown to be below; `bound` for none."""
    low, high = 0.0, bound
    while high - low > 1e-9 * bound:
        middle = 0.5 * (low + high)
        # The evidence grows with the value, so that halving finds where it suffices.
        low, high = (low, middle) if below(x, bound, middle, error) else (middle, high)
    return high


def at_least(x: np.ndarray, bound: float, error: float) -> float:
    """The largest value that the mean of x is shown to be above; 0 for none."""
    return bound - at_most(bound - x, bound, error)
