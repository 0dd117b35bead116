"""A made-up batch of advantages and log probabilities, and the slow loss of it."""

from typing import Any

import numpy as np

N, T, C, CLIP = 6, 5, 2, 0.2
MULTIPLIER, BETA = (0.4, 0.0), 1.5


def batch(seed=0, dtype: Any = np.float32) -> dict[str, Any]:
    """Arrays of a batch with ratios on both sides of the clip and dead steps."""
    rng = np.random.default_rng(seed)
    logp_old = rng.normal(-1, 0.3, (N, T))
    mask = np.ones((N, T))
    mask[1, 3:] = mask[4, 1:] = 0
    made = {
        "logp": logp_old + rng.normal(0, 0.3, (N, T)),
        "logp_old": logp_old,
        "adv": rng.normal(size=(N, T)),
        "cost_adv": rng.normal(size=(N, T, C)),
        "mask": mask,
        "violation": np.array([0.3, 0.1]),
    }
    return {name: array.astype(dtype) for name, array in made.items()}


def slow_gain_and_psi(b):
    """Loops over rows, steps and constraints."""
    gain, psi = 0.0, b["violation"].astype(np.float64).copy()
    for n in range(N):
        for t in range(T):
            if not b["mask"][n, t]:
                continue
            ratio = float(np.exp(np.float64(b["logp"][n, t]) - b["logp_old"][n, t]))
            near = min(max(ratio, 1 - CLIP), 1 + CLIP)
            adv = float(b["adv"][n, t])
            gain += min(ratio * adv, near * adv) / (N * T)
            for i in range(C):
                cost = float(b["cost_adv"][n, t, i])
                psi[i] += (max(ratio * cost, near * cost) - cost) / (N * T)
    return gain, psi


def slow_objective(b):
    """-gain + sum_i beta/2 (max(0, psi_i + lambda_i/beta)^2 - (lambda_i/beta)^2)."""
    gain, psi = slow_gain_and_psi(b)
    shift = np.array(MULTIPLIER) / BETA
    return -gain + BETA / 2 * np.sum(np.maximum(0, psi + shift) ** 2 - shift**2)


def slow_gradient(b, step=1e-6):
    """Central differences of the slow objective by logp [N, T]."""
    gradient = np.zeros((N, T))
    for index in np.ndindex(N, T):
        for sign in (1, -1):
            moved = {name: array.astype(np.float64) for name, array in b.items()}
            moved["logp"][index] += sign * step
            gradient[index] += sign * slow_objective(moved) / (2 * step)
    return gradient
