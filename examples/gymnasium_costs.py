"""e-COP on two stock Gymnasium environments, each with a cost of our own.

python examples/gymnasium_costs.py [iterations]

Trains each without and with its limit (2 seeds) and prints 100 fresh episodes per seed.
"""

import math
import sys

import ecop


def torque(obs, action, next_obs, info, t):
    """Torque spent in this step, in N m."""
    return abs(float(action[0]))


def off_centre(obs, action, next_obs, info, t):
    """1 if the cart is farther than 0.2 m from the centre."""
    return float(abs(next_obs[0]) > 0.2)


TASKS = [("CartPole-v1", off_centre, 5.0), ("Pendulum-v1", torque, 50.0)]


def main(iterations: int = 100) -> None:
    print("task, limit: reward, cost, episodes that ended early")
    for name, cost, limit in TASKS:
        env = ecop.from_gymnasium(name, horizon=100, costs=cost)
        for bound in (math.inf, limit):
            run = ecop.train(
                env, limits=[bound], seeds=2, iterations=iterations, episodes=10
            )
            result = run.evaluate(100).summary()
            reward, paid = result["reward"], result["constraints"][0]
            print(
                f"{name}, {cost.__name__} <= {bound:g}: "
                f"{reward['mean']:.1f} ± {reward['interval']:.1f}, "
                f"{paid['mean']:.1f} ± {paid['interval']:.1f}, "
                f"{100 * result['failed']:.0f} %",
                flush=True,
            )
        env.close()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
