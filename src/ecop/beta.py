"""beta = "auto": the paper's line search for a feasible initial damping factor.

Short training runs from the same start, one per rung of a ladder of betas, smallest
first; the first beta whose costs end within all limits wins, since Theorem 1 asks for a
beta that is large enough and a larger one slows learning. If none is feasible, the one
with the smallest violation wins.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np

from ecop.algorithms.ecop import BETA_LADDER
from ecop.training import DISPATCH, Learner, init_seeds, run_seeds

TRIAL = 60  # iterations per rung
SEEDS = 2


def search_beta(
    learner: Learner, note: Callable[[str], None]
) -> tuple[float, list[dict[str, Any]]]:
    """The chosen beta, and what was tried: beta, reward and violation of each rung."""
    enforced = list(learner.spec.enforced)
    limits = np.asarray(learner.spec.limits)[enforced]
    tried: list[dict[str, Any]] = []
    for beta in BETA_LADDER:
        states = [
            state._replace(algorithm=state.algorithm._replace(beta=jnp.float32(beta)))
            for state in init_seeds(learner)[:SEEDS]
        ]
        rounds = list(run_seeds(learner, states, [DISPATCH] * (TRIAL // DISPATCH)))
        late = [m for part in rounds[-len(rounds) // 3 :] for m in part.metrics]
        cost = np.mean([m["costs"][:, enforced].mean(axis=0) for m in late], axis=0)
        violation = float(np.max(cost - limits, initial=-np.inf))
        reward = float(np.mean([m["reward"].mean() for m in late]))
        tried.append({"beta": beta, "reward": reward, "violation": violation})
        note(f"beta {beta:g}: reward {reward:.4g}, worst violation {violation:+.4g}")
        if violation <= 0:
            break
    best = min(tried, key=lambda t: max(t["violation"], 0.0))
    note(f"beta = {best['beta']:g} chosen")
    return best["beta"], tried
