"""The time step as networks see it: rich enough for a policy that changes with h.

Short horizons have one entry per step, so that neighbouring steps share nothing but
what the rest of the network makes of them. Long ones have the time itself and waves of
1, 2, 4, ... periods per episode: smooth at first, sharp where training asks for it.
"""

from __future__ import annotations

import numpy as np

SHORT = 40  # steps up to which every step has an entry of its own
import os
AMP = float(os.environ.get("AMP", 0.5)); DEC = float(os.environ.get("DEC", 0.5)); WAVES = int(os.environ.get("WAVES", 5))


def time_table(horizon: int) -> np.ndarray:
    """Entries [H, F] float32 of every step."""
    h = np.arange(horizon)
    if horizon <= SHORT:
        return np.eye(horizon, dtype=np.float32)
    share = h / horizon
    phase = 2.0 * np.pi * share[:, None] * 2.0 ** np.arange(WAVES)[None]
    line = 2.0 * share[:, None] - 1.0
    size = AMP * DEC ** np.arange(WAVES)
    waves = [size * np.sin(phase), size * np.cos(phase)]
    return np.hstack([line, *waves]).astype(np.float32)


def time_size(horizon: int) -> int:
    """F, the number of entries."""
    return horizon if horizon <= SHORT else 1 + 2 * WAVES
