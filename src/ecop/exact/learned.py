"""What a learner reaches, measured without sampling.

A trained policy is turned into its table pi_h(a|s) [H, S, A] and evaluated exactly, so
the only randomness left is that of the training itself.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ecop.envs.tabular import TabularEnv
from ecop.errors import UserError
from ecop.exact.values import evaluate_exact
from ecop.rollout import Actor, distribution
from ecop.training import Learner
from ecop.types import TrainState


def policy_table(learner: Learner, state: TrainState) -> np.ndarray:
    """Return the trained policy as probabilities [H, S, A] in float64."""
    if not isinstance(learner.env, TabularEnv):
        raise UserError("Only the policy of a tabular task can be written as a table.")
    return _probabilities(_log_table(learner, state))


def evaluate_learned(
    learner: Learner, states: list[TrainState]
) -> list[tuple[float, np.ndarray]]:
    """Return the exact J and J_C [C] of each seed's policy; no sampling."""
    return [
        evaluate_exact(learner.env.cmdp, policy_table(learner, state))
        for state in states
    ]


def _probabilities(log_table: jax.Array) -> np.ndarray:
    """Return probabilities [H, S, A] in float64 that sum to 1 there too."""
    table = np.exp(np.asarray(log_table, np.float64))
    return table / table.sum(axis=-1, keepdims=True)


def _log_table(learner: Learner, state: TrainState) -> jax.Array:
    """Log probabilities [H, S, A] of all actions in all states at all steps."""
    actor = Actor(state.policy, state.normaliser)
    every = jnp.eye(learner.spec.observation_size, dtype=jnp.float32)

    def at(h: jax.Array) -> jax.Array:
        found: Any = distribution(learner.policy, actor, every, h)
        return found.log_probs

    return lax.map(at, jnp.arange(learner.spec.horizon))
