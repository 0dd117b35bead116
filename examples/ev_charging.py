"""Cars at a transformer (EV2Gym): charge them, and overload the transformer rarely.

pip install 'ecop[examples]'; python examples/ev_charging.py [iterations]
"""

import sys
import tempfile
from pathlib import Path

import ev2gym
import gymnasium
import yaml
from ev2gym.models.ev2gym_env import EV2Gym
from ev2gym.rl_agent.state import V2G_profit_max_loads

import ecop

HORIZON, LIMIT = 24, 8.0  # hours; kWh above what the transformer may carry
HOME = Path(ev2gym.__file__).parent


def charged(env, *_):
    """KWh that went into the cars in this hour."""
    return env.current_power_usage[env.current_step - 1]


class Station(gymnasium.Wrapper):
    """Eight chargers, a day in steps of an hour; `info` has the overload."""

    def __init__(self):
        stock = HOME / "example_config_files" / "V2GProfitPlusLoads.yaml"
        config = yaml.safe_load(stock.read_text())
        config |= {"timescale": 60, "simulation_length": HORIZON, "tr_seed": 0}
        config |= {"number_of_charging_stations": 8, "v2g_enabled": False}
        config["transformer"]["max_power"] = 40  # kW
        config["ev_specs_file"] = str(HOME / "data" / "ev_specs_v2g_enabled2024.json")
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
            yaml.safe_dump(config, file)
            file.flush()
            env = EV2Gym(
                file.name,
                seed=0,
                state_function=V2G_profit_max_loads,
                reward_function=charged,
            )
        super().__init__(env)

    def step(self, action):
        """A step, with the overload of its hour."""
        *step, _ = self.env.step(action)
        over = sum(x.get_how_overloaded() for x in self.unwrapped.transformers)
        return *step, {"overload": float(over)}


def main(iterations=60):
    env = ecop.from_gymnasium(
        Station, horizon=HORIZON, costs="overload", limits=[LIMIT]
    )
    print(ecop.check_cmdp(env))  # among others: what a random policy does
    run = ecop.train(env, seeds=1, iterations=iterations, episodes=30)
    print(run.evaluate(50))
    run.plot("ev_charging.png")
    env.close()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
