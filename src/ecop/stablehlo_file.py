"""A policy as StableHLO, by `jax.export`: what XLA runs, with the steps of `acting`.

    policy = jax.export.deserialize(bytearray(Path("policy.stablehlo").read_bytes()))
    action = policy.call(observation, step)

Observation [N, O] float32 and step [N] int32 give the most likely actions [N, ...] as
the environment wants them; a memory [N, U] is a third argument and a second result.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import export
from jaxtyping import Array

from ecop.errors import UserError
from ecop.learning.networks import Policy
from ecop.rollout import Actor, react
from ecop.simulators.forms import ActionForm, Chosen, Scaled

PLATFORMS = ("cpu", "cuda", "tpu")


def to_stablehlo(policy: Policy, actor: Actor, form: ActionForm) -> bytes:
    """The file."""

    def one(observation: Array, step: Array, *memory: Array) -> Any:
        old = memory[0][None] if memory else policy.network.start(1)
        actions, new = react(policy, actor, observation[None], step, old)
        action = acted(form, actions.mode()[0])
        return (action, new[0]) if memory else action

    (rows,) = export.symbolic_shape("N")
    rest = [x.shape[1:] for x in jax.tree.leaves(policy.network.start(1))]
    shapes = [(policy.spec.observation_size,), (), *rest]
    kinds = (jnp.float32, jnp.int32, jnp.float32)
    inputs = [
        jax.ShapeDtypeStruct((rows, *shape), kind)
        for shape, kind in zip(shapes, kinds, strict=False)
    ]
    made = export.export(jax.jit(jax.vmap(one)), platforms=PLATFORMS)(*inputs)
    try:
        return bytes(made.serialize())
    except ImportError:
        raise UserError(
            "StableHLO needs a package: pip install flatbuffers; or export to .npz."
        ) from None


def acted(form: ActionForm, action: Array) -> Array:
    """An action as the environment wants it (`simulators/forms.py`), in 32 bits."""
    if isinstance(form, Scaled):
        low, high = (jnp.asarray(x, jnp.float32) for x in (form.low, form.high))
        x = jnp.clip(action, -1.0, 1.0).reshape(low.shape)
        x = jnp.clip(low + (x + 1.0) * (high - low) / 2.0, low, high)
        whole = np.issubdtype(form.low.dtype, np.integer)
        return jnp.round(x).astype(jnp.int32) if whole else x
    if isinstance(form, Chosen):
        return action + form.start
    return action.reshape(form.sizes.shape) + jnp.asarray(form.start, jnp.int32)
