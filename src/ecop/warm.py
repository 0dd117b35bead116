"""A new run that begins where another one is: other limits, other task constants.

Policy, critics and observation statistics are taken over; what an algorithm remembers
(multipliers, penalties, learning rates) belongs to the old limits and begins anew.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from ecop import runs
from ecop.config import RunConfig, build
from ecop.errors import UserError
from ecop.evaluate import nonfinite
from ecop.learning.critics import CriticState
from ecop.learning.descent import ADAM
from ecop.training import Learner, init_seeds
from ecop.types import TrainState

SHAPE = (
    "policy",
    "network",
    "hidden",
    "std",
)  # options that decide which arrays there are


def config_of(start: Any) -> RunConfig:
    """The config of a run, or of a run folder."""
    if isinstance(start, str | Path):
        return runs.read_config(Path(start))
    if not isinstance(getattr(start, "config", None), RunConfig):
        raise UserError(f"start must be a run or its folder, not {start!r:.60}.")
    return start.config


def shape_of(start: Any) -> dict[str, Any]:
    """Options of a start that a run takes over unless it is given others."""
    train = config_of(start).train
    return {name: getattr(train, name) for name in ("seeds", "horizon", *SHAPE)}


def warm_states(config: RunConfig, learner: Learner, start: Any) -> list[TrainState]:
    """States of all seeds; where a start has fewer policies, they begin more than one.

    A start's folder runs no code that it names: it is read with this run's environment.
    """
    theirs = config_of(start)
    if theirs.task != config.task:
        raise UserError(
            f"The start was trained on {theirs.task}, not on {config.task}; a policy "
            "can begin only where it knows what it sees."
        )
    for name in SHAPE:
        there, here = getattr(theirs.train, name), getattr(config.train, name)
        if there != here:
            raise UserError(
                f"The start has {name}={there!r}, not {here!r}; without the option the "
                "start's is taken."
            )
    if isinstance(start, str | Path):
        old = build(theirs, learner.env)
        states, _ = runs.load_checkpoint(Path(start), old)
        if states is None:
            raise UserError(f"'{start}' has no checkpoint yet.")
    else:
        old, states = start.learner, start.states
    a, b = old.spec, learner.spec
    for name in ("observation_size", "action", "horizon", "cost_names"):
        there, here = getattr(a, name), getattr(b, name)
        if there != here:
            raise UserError(f"The start's task has {name} {there}, not {here}.")
    sick = [name for state in states for name in nonfinite(state)]
    if sick:
        raise UserError(f"The start's {sick[0]} holds NaN or infinity.")
    fresh = init_seeds(learner)
    return [warm(learner, old, x, states[i % len(states)]) for i, x in enumerate(fresh)]


def warm(
    learner: Learner, old: Learner, fresh: TrainState, state: TrainState
) -> TrainState:
    """A fresh state with what a trained one has learned."""
    same = old.spec.enforced == learner.spec.enforced
    critics = state.critics if same else matched(learner, old, fresh, state)
    scale = state.cost_scale if same else fresh.cost_scale
    memory = learner.algorithm.init(learner.policy, state.policy, learner.spec)
    return fresh._replace(
        policy=state.policy,
        critics=critics,
        normaliser=state.normaliser,
        length=state.length,
        cost_scale=scale,
        algorithm=memory,
    )


def matched(
    learner: Learner, old: Learner, fresh: TrainState, state: TrainState
) -> CriticState:
    """Critics where other costs are enforced: known ones are kept, others are fresh."""
    known = {None: 0} | {cost: 1 + i for i, cost in enumerate(old.spec.enforced)}
    sources = [known.get(cost) for cost in (None, *learner.spec.enforced)]
    new: CriticState = fresh.critics

    def columns(ours: jax.Array, theirs: jax.Array) -> jax.Array:
        picked = [
            ours[..., i] if place is None else theirs[..., place]
            for i, place in enumerate(sources)
        ]
        return jnp.stack(picked, axis=-1)

    params = tuple(
        new.params[i] if place is None else state.critics.params[place]
        for i, place in enumerate(sources)
    )
    return CriticState(
        params=params,
        optimiser=ADAM.init(params),
        gram=state.critics.gram,
        moment=jax.tree.map(columns, new.moment, state.critics.moment),
        std=jax.tree.map(columns, new.std, state.critics.std),
    )
