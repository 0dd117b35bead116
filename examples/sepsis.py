"""Sepsis in intensive care (ICU-Sepsis): survive, with a budget of drugs.

pip install 'ecop[examples]'; python examples/sepsis.py [iterations]
"""

import sys

import gymnasium
import icu_sepsis  # noqa: F401, registers the ward
import numpy as np

import ecop
from ecop.exact import evaluate_exact, solve, tabular_cmdp

HORIZON, LIMIT = 20, 6.0  # decisions; levels of fluid and vasopressor, summed over them


class Ward(gymnasium.ObservationWrapper):
    """The ward; what one sees of a patient are 47 measurements."""

    def __init__(self):
        super().__init__(gymnasium.make("Sepsis/ICU-Sepsis-v2"))
        self.seen = self.unwrapped._state_cluster_centers.astype(np.float32)
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (47,))

    def observation(self, observation):
        """Of the patients of this state, the mean."""
        return self.seen[observation]


def dose(obs, action, next_obs, info, t):
    """Actions 0 .. 24 are five levels of fluid times five of vasopressor."""
    return float(action // 5 + action % 5)


def table():
    """The same problem as a table, which a linear program solves."""
    ward = Ward().unwrapped
    chance = ward._tx_mat / ward._tx_mat.sum(axis=-1, keepdims=True)
    levels = [dose(None, action, None, None, 0) for action in range(25)]
    costs = np.tile(levels, (716, 1)) * (np.arange(716) < 713)[:, None]  # then: over
    cmdp = tabular_cmdp(
        "ICUSepsis",
        transition=chance,
        reward=(chance * ward._r_mat).sum(axis=-1),
        costs=costs[None],
        initial=ward._d_0 / ward._d_0.sum(),
        limits=[LIMIT],
        cost_names=["dose"],
        horizon=HORIZON,
    )
    doctors = ward.expert_policy + (ward.expert_policy.sum(axis=1) == 0)[:, None] / 25
    return cmdp, np.tile(doctors, (HORIZON, 1, 1))


def main(iterations=300):
    cmdp, doctors = table()
    best = solve(cmdp)
    survive, spent = evaluate_exact(cmdp, doctors)
    print(f"doctors: survival {survive:.4f}, dose {spent[0]:.2f}")
    print(f"optimum: survival {best.value:.4f}, dose {best.costs[0]:.2f}")
    env = ecop.from_gymnasium(Ward, horizon=HORIZON, costs=dose, limits=[LIMIT])
    run = ecop.train(env, seeds=1, iterations=iterations)
    print(run.evaluate(1000))
    run.plot("sepsis.png")
    env.close()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
