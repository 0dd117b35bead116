"""The time step as networks see it: rich enough for a policy that changes with h.

Short horizons have one entry per step. Long ones have the time itself and waves of 1,
2, 4, ... periods per episode, the faster the smaller: smooth at first, sharp where
training asks for it. The first hidden layer adds the entries to the observation's, and
a gate scales its units by them, so that time and state combine: with sums alone a
network cannot choose another action for every pair of them.
"""

from __future__ import annotations

import numpy as np

SHORT = 40  # steps up to which every step has an entry of its own
WAVES = 0.5 * 0.5 ** np.arange(5)  # sizes; the fastest has 2^4 periods per episode
APART = 2.0  # of the gates of a fresh network, where every step has its own


def time_table(horizon: int) -> np.ndarray:
    """Entries [H, F] float32 of every step."""
    if horizon <= SHORT:
        return np.eye(horizon, dtype=np.float32)
    share = np.arange(horizon)[:, None] / horizon
    phase = 2.0 * np.pi * share * 2.0 ** np.arange(len(WAVES))
    waves = [WAVES * np.sin(phase), WAVES * np.cos(phase)]
    return np.hstack([2.0 * share - 1.0, *waves]).astype(np.float32)


def time_size(horizon: int) -> int:
    """F, the number of entries."""
    return horizon if horizon <= SHORT else 1 + 2 * len(WAVES)


def gate_scale(horizon: int) -> float:
    """How far apart a fresh network keeps the steps."""
    return APART if horizon <= SHORT else 0.0
