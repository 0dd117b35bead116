"""A dam (MO-Gymnasium): supply the town, and flood the land upstream within a budget.

pip install 'ecop[examples]'; python examples/water_reservoir.py [iterations]
"""

import math
import sys

import mo_gymnasium

import ecop
from ecop.interop.costs import VectorReward

HORIZON, LIMIT = 30, 40.0  # days; height above the dam, summed over them


def dam(**options):
    """The reservoir; an action is the share of its water to let go."""
    return mo_gymnasium.make("water-reservoir-v0", normalized_action=True, **options)


def main(iterations=60):
    costs = VectorReward(reward=1, costs={"flood": 0})  # rewards are minus both
    env = ecop.from_gymnasium(dam, horizon=HORIZON, costs=costs)
    for limit in (math.inf, LIMIT):
        run = ecop.train(env, limits=[limit], seeds=2, iterations=iterations)
        print(f"flood <= {limit:g}\n{run.evaluate(100)}")
    run.plot("water_reservoir.png")
    env.close()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
