"""NumPy policies: the same bits in any company, at any place, with any threads."""

import itertools
import os
import subprocess
import sys

import numpy as np
import pytest

from ecop.simulators.acting import Company, act_together, product
from ecop.types import HostPolicy

H = 700  # longer than what a company remembers beyond an episode


def random_policy(seed, sizes, head, steps=1):
    """Sizes are observation, hidden layers, outputs; `steps` sets of parameters."""
    rng = np.random.default_rng(seed)
    pairs = list(itertools.pairwise(sizes))
    weights = [rng.normal(size=(steps, i, j)) / np.sqrt(i) for i, j in pairs]
    biases = [rng.normal(size=(steps, j)) for _, j in pairs]
    biases[0] = rng.normal(size=(H, sizes[1]))
    mean, scale = rng.normal(size=sizes[0]), rng.uniform(0.1, 2.0, sizes[0])
    gate = rng.normal(size=(H, sizes[1] if len(sizes) > 2 else 0))
    mean, scale, gate = (x.astype(np.float32) for x in (mean, scale, gate))
    weights, biases = (
        tuple(x.astype(np.float32) for x in part) for part in (weights, biases)
    )
    return HostPolicy(mean, scale, weights, biases, gate, head)


@pytest.mark.parametrize(
    ("sizes", "head", "actions"),
    [
        ((3, 32, 32, 1), "normal", 1),
        ((17, 64, 64, 6), "normal", 6),
        ((11, 33, 7, 6), "spread", 3),
        ((4, 64, 2), "choice", 2),
        ((141, 200, 100, 20), "normal", 20),
        ((5, 3), "normal", 3),
        ((1, 1, 1), "normal", 1),
    ],
)
def test_a_row_has_the_same_bits_in_any_company(sizes, head, actions):
    rng = np.random.default_rng(1)
    seen = rng.normal(size=(40, sizes[0])).astype(np.float32)
    noise = rng.normal(size=(40, actions)).astype(np.float32)
    policy = random_policy(0, sizes, head)
    alone = np.concatenate(
        [act_together(policy, seen[[n]], 2, noise[[n]]) for n in range(40)]
    )
    for rows in (slice(0, 40), slice(3, 5), slice(1, 17), slice(0, 40, 3)):
        together = act_together(policy, seen[rows], 2, noise[rows])
        assert together.tobytes() == alone[rows].tobytes()


@pytest.mark.parametrize("steps", [1, H])
def test_a_company_acts_as_each_does_alone(steps):
    """Episodes of three policies come, move and go; what they did is written down."""
    rng = np.random.default_rng(2)
    policies = [random_policy(s, (6, 9, 4), "spread", steps) for s in range(3)]
    noise = rng.normal(size=(30, H, 2)).astype(np.float32)
    company = Company(3, policies[0], noise[0])
    under_way: list[int] = []
    told: dict[int, list] = {}
    finished = begun = 0
    while finished < 30:
        while len(under_way) < 3 and begun < 30:
            company.join(len(under_way), policies[begun % 3], noise[begun])
            company.observation[len(under_way)] = rng.normal(size=6)
            under_way.append(begun)
            told[begun] = []
            begun += 1
        seen = company.observation.copy()
        actions = company.act(len(under_way))
        for i, n in enumerate(under_way):
            h = len(told[n])
            alone = act_together(policies[n % 3], seen[[i]], h, noise[n, [h]])
            assert actions[i].tobytes() == alone.tobytes()
            told[n].append((seen[i], actions[i]))
            company.observation[i] = rng.normal(size=6)
        for i in reversed(range(len(under_way))):
            if rng.uniform() < 0.01 or len(told[under_way[i]]) == H:
                written = company.record(i)
                for ours, theirs in zip(
                    written, zip(*told[under_way[i]], strict=True), strict=True
                ):
                    np.testing.assert_array_equal(ours, theirs)
                last = under_way.pop()
                if i < len(under_way):
                    company.move(i, len(under_way))
                    under_way[i] = last
                finished += 1


def test_large_products_are_cut():
    rng = np.random.default_rng(3)
    x = rng.normal(size=(3, 1, 300)).astype(np.float32)
    weight = rng.normal(size=(300, 257)).astype(np.float32)
    np.testing.assert_allclose(product(x, weight), x @ weight, atol=1e-4)


THREADS = """
import hashlib
import numpy as np
from ecop.simulators.acting import product
rng = np.random.default_rng(0)
x, weight = (rng.normal(size=n).astype("f4") for n in ((3, 1, 100_000), (100_000, 16)))
print(hashlib.sha256(product(x, weight).tobytes()).hexdigest())
"""


def test_threads_of_the_linear_algebra_change_no_bit():
    """OpenBLAS shares the sums of this product among threads if it is asked at once."""
    said = []
    for threads in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", THREADS],
            env=os.environ | {"OPENBLAS_NUM_THREADS": threads},
            check=True,
            capture_output=True,
        )
        said.append(done.stdout)
    assert said[0] == said[1]
