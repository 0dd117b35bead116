"""A busy road (highway-env): drive fast, and keep your distance.

pip install 'ecop[examples]'; python examples/highway.py [iterations]
"""

import sys

import highway_env  # noqa: F401, registers the roads

import ecop

ROAD = {
    "lanes_count": 2,
    "vehicles_count": 6,
    "simulation_frequency": 3,
    "offscreen_rendering": True,
    "observation": {"type": "Kinematics", "normalize": False},
}
HORIZON, LIMIT = 20, 2.0  # seconds; seconds of them too close


def too_close(obs, action, next_obs, info, t):
    """1 if a car of our lane is less than 25 m ahead of us, or we crashed."""
    there, ahead, aside = next_obs[1:, :3].T  # of the others, in metres from us
    near = (there > 0) & (ahead > 0) & (ahead < 25) & (abs(aside) < 2)
    return float(near.any() or info["crashed"])


def main(iterations=40):
    env = ecop.from_gymnasium(
        "highway-fast-v0",
        horizon=HORIZON,
        costs=too_close,
        limits=[LIMIT],
        options={"config": {**ROAD, "duration": HORIZON}},
    )
    print(ecop.check_cmdp(env))  # among others: what a random policy does
    run = ecop.train(env, seeds=1, iterations=iterations, episodes=20)
    print(run.evaluate(50))
    run.render("highway.gif")
    env.close()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
