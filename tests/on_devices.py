"""Train seeds on four virtual devices of the CPU, beside threads on one of them."""

# ruff: noqa: E402 - the devices are settled before anything else is imported

import jax

jax.config.update("jax_num_cpu_devices", 4)
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")

import sys

import numpy as np

import ecop
from ecop.training import Learner, TrainConfig, init_seeds, run_seeds, vmapped_rounds

SEEDS = int(sys.argv[1])
DEVICES = min(SEEDS, 4)

env = ecop.make("PointCircle", horizon=20)
config = TrainConfig(seeds=SEEDS, episodes=4, critic_epochs=1)
learner = Learner(env, env.spec, ecop.PPOLagrangian(epochs=1), config)
states = init_seeds(learner)
*_, alone = run_seeds(learner, states, [3, 2])
rounds, places = [], set()
for part in vmapped_rounds(learner, states, [3, 2]):
    rounds.append(part)
    places |= {len(array.sharding.device_set) for array in jax.live_arrays()}
assert max(places) == DEVICES, places
*_, again = vmapped_rounds(learner, states, [1, 4])
assert len(rounds) == 2
assert len(again.after) == len(rounds[-1].after) == SEEDS
for one, other, cut in zip(alone.after, rounds[-1].after, again.after, strict=True):
    assert int(other.iteration) == 5
    for a, b, c in zip(*map(jax.tree.leaves, (one, other, cut)), strict=True):
        if jax.numpy.issubdtype(a.dtype, jax.dtypes.prng_key):
            a, b, c = map(jax.random.key_data, (a, b, c))
        np.testing.assert_array_equal(b, c)  # however the iterations are cut
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4)
