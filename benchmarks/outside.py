"""Our baselines beside other libraries' on PointCircle, with the same samples.

    python benchmarks/outside.py results/outside.jsonl --library sb3 --algorithm ppo
    python benchmarks/outside.py results/outside.jsonl --table
    python benchmarks/outside.py results/outside.jsonl --plot docs/images/outside.png

A cell is (library, algorithm, setting, seed, steps) and is one line of JSON with its
learning curve: for every block of 20 episodes (4000 steps) the mean episodic return and
cost of the training episodes. Cells that are there already are not run again. "default"
is the library's own setting, "tuned" (ours only) the preset of that name, "adapted" as
near to our defaults as the library's options allow (docs/outside.md has the
differences). The libraries are not dependencies of this project.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import ecop
from ecop.config import resolve

TASK, LIMIT, HORIZON, EPISODES = "PointCircle", 10.0, 200, 20
BLOCK = EPISODES * HORIZON
LIBRARIES = ("ecop", "sb3", "omnisafe")
ORDER = ("ppo", "ppo_lag", "cpo")
INSTALL = {
    "sb3": "stable-baselines3 is missing: pip install stable-baselines3 gymnasium.",
    "omnisafe": "OmniSafe is missing: docs/outside.md says how to make it importable.",
}


class Tasks:
    """Episodes side by side, in step, with the time in the observation [N, 10].

    All end at the horizon, which is a termination, and start again together. `episodes`
    holds return and cost of every finished episode, in order.
    """

    def __init__(self, count: int, seed: int) -> None:
        self.env = ecop.make_gymnasium_vec(TASK, count)
        self.count, self.seed, self.episodes = count, 1000 * seed, []

    def reset(self) -> np.ndarray:
        """Start new episodes; return their observations."""
        observation, _ = self.env.reset(seed=self.seed)
        self.seed, self.time, self.sums = None, 0, np.zeros((self.count, 2))
        return self._with_time(observation)

    def step(self, action: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return observations, rewards and costs; the caller looks at `over`."""
        observation, reward, _, _, info = self.env.step(action)
        self.time += 1
        self.sums += np.stack([reward, info["cost"]], axis=1)
        if self.over:
            self.episodes += self.sums.tolist()
        return self._with_time(observation), reward, info["cost"]

    @property
    def over(self) -> bool:
        """Whether the horizon is reached."""
        return self.time == HORIZON

    def _with_time(self, observation: np.ndarray) -> np.ndarray:
        time = np.full((self.count, 1), self.time / HORIZON, np.float32)
        return np.concatenate([observation, time], axis=1)

    @staticmethod
    def spaces() -> tuple[Any, Any]:
        """Observation and action space of one episode."""
        from gymnasium.spaces import Box

        return Box(-np.inf, np.inf, (10,), np.float32), Box(-1, 1, (2,), np.float32)


def blocks(episodes: list) -> list[list[float]]:
    """Rows of steps so far, mean return, mean cost; one per 20 episodes."""
    whole = len(episodes) // EPISODES * EPISODES
    means = np.array(episodes[:whole]).reshape(-1, EPISODES, 2).mean(axis=1)
    return [
        [BLOCK * (i + 1), round(float(r), 2), round(float(c), 2)]
        for i, (r, c) in enumerate(means)
    ]


def run_ecop(cell: dict) -> list:
    preset = "paper" if cell["setting"] == "paper" else "default"
    episodes = resolve(TASK, cell["algorithm"], preset).train.episodes
    run = ecop.train(
        TASK,
        cell["algorithm"],
        preset=preset,
        limits=[LIMIT],
        seeds=1,
        first_seed=cell["seed"],
        iterations=cell["steps"] // (episodes * HORIZON),
    )
    return [
        [line["reward"], line["costs"][0]]
        for line in run.metrics
        for _ in range(episodes)
    ]


def run_sb3(cell: dict) -> list:
    import torch
    from stable_baselines3 import PPO
    from stable_baselines3.common.vec_env import VecEnv, VecNormalize

    class PointCircle(VecEnv):
        def __init__(self, count: int) -> None:
            super().__init__(count, *Tasks.spaces())
            self.tasks = Tasks(count, cell["seed"])

        def reset(self) -> np.ndarray:
            return self.tasks.reset()

        def step_async(self, actions: np.ndarray) -> None:
            self.actions = actions

        def step_wait(self) -> Any:
            observation, reward, _ = self.tasks.step(self.actions)
            over, infos = self.tasks.over, [{} for _ in range(self.num_envs)]
            if over:
                infos = [{"terminal_observation": row} for row in observation]
                observation = self.tasks.reset()
            return observation, reward, np.full(self.num_envs, over), infos

        def close(self) -> None:
            pass

        def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list:
            return [False] * self.num_envs

        def get_attr(self, attr_name: str, indices: Any = None) -> list:
            return [None] * self.num_envs

        def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
            raise NotImplementedError

        def env_method(self, method_name: str, *args: Any, **kwargs: Any) -> list:
            raise NotImplementedError

    torch.set_num_threads(1)
    # 8 x 256 are the 2048 steps of the default rollout, collected faster.
    count, options = 8, {"n_steps": 256}
    if cell["setting"] == "adapted":
        count = EPISODES
        options = {
            "n_steps": HORIZON,
            "batch_size": 1000,
            "n_epochs": 20,
            "learning_rate": 1e-3,
            "gamma": 1.0,
            "gae_lambda": 0.98,
            "policy_kwargs": {"net_arch": [32, 32], "log_std_init": -0.5},
        }
    bare = PointCircle(count)
    env = VecNormalize(bare, gamma=options.get("gamma", 0.99))
    model = PPO("MlpPolicy", env, seed=cell["seed"], device="cpu", **options)
    model.learn(cell["steps"])
    return bare.tasks.episodes


def run_omnisafe(cell: dict) -> list:
    import omnisafe
    import torch
    from omnisafe.envs.core import CMDP, env_register

    name, made = "ecop/PointCircle", []

    class PointCircle(CMDP):
        """Episodes side by side; all end at the horizon and start again together."""

        _support_envs = [name]  # noqa: RUF012
        need_auto_reset_wrapper = need_time_limit_wrapper = need_evaluation = False

        def __init__(self, env_id: str, num_envs: int = 1, **_: Any) -> None:
            super().__init__(env_id)
            self._num_envs = num_envs
            made.append(Tasks(num_envs, cell["seed"]))
            self._observation_space, self._action_space = Tasks.spaces()
            self._metadata: dict = {}

        @property
        def max_episode_steps(self) -> int:
            return HORIZON

        def set_seed(self, seed: int) -> None:
            pass  # the tasks have the seed of the cell

        def reset(self, seed: int | None = None, options: dict | None = None) -> Any:
            return torch.as_tensor(made[0].reset()), {}

        def step(self, action: torch.Tensor) -> Any:
            tasks = made[0]
            rows = tasks.step(action.detach().numpy())
            over = torch.full((tasks.count,), tasks.over)
            observation = tasks.reset() if tasks.over else rows[0]
            reward, cost = torch.as_tensor(rows[1]), torch.as_tensor(rows[2])
            observation = torch.as_tensor(observation)
            return observation, reward, cost, over, torch.zeros_like(over), {}

        def render(self) -> None:
            return None

        def close(self) -> None:
            return None

    env_register(PointCircle)
    algorithm = cell["algorithm"]
    title = {"ppo": "PPO", "ppo_lag": "PPOLag", "cpo": "CPO"}[algorithm]
    train = {"total_steps": cell["steps"], "torch_threads": 1}
    train["vector_env_nums"] = EPISODES
    algo, model, log = {}, {}, {"use_wandb": False, "use_tensorboard": False}
    if cell["setting"] == "adapted":
        algo = {"steps_per_epoch": BLOCK, "gamma": 1.0, "cost_gamma": 1.0}
        algo |= {"lam": 0.98, "lam_c": 0.98, "batch_size": 1000, "update_iters": 20}
        log |= {"window_lens": EPISODES}
        model = {"linear_lr_decay": False}
        model |= {part: {"hidden_sizes": [32, 32]} for part in ("actor", "critic")}
        model["critic"]["lr"] = 1e-3
        if algorithm != "cpo":
            algo["kl_early_stop"] = False
            model["actor"]["lr"] = 1e-3
    with tempfile.TemporaryDirectory() as folder:
        custom = {
            "seed": cell["seed"],
            "train_cfgs": train,
            "algo_cfgs": algo,
            "logger_cfgs": {**log, "log_dir": folder},
            "model_cfgs": model,
        }
        if algorithm == "ppo_lag":
            custom["lagrange_cfgs"] = {"cost_limit": LIMIT}
        elif algorithm == "cpo":
            custom["algo_cfgs"]["cost_limit"] = LIMIT
        omnisafe.Agent(title, name, custom_cfgs=custom).agent.learn()
    return made[0].episodes


RUN = {"ecop": run_ecop, "sb3": run_sb3, "omnisafe": run_omnisafe}


def measure(cell: dict) -> dict:
    start = time.perf_counter()
    try:
        episodes = RUN[cell["library"]](cell)
    except ModuleNotFoundError as error:
        raise SystemExit(f"{INSTALL[cell['library']]} ({error})") from error
    seconds = time.perf_counter() - start
    return {"cell": cell, "seconds": round(seconds, 1), "curve": blocks(episodes)}


def table(lines: list[dict]) -> str:
    """The last 10 % of each budget, and ours in the same window of samples."""
    head = ["algorithm", "library", "setting", "seeds x steps", "reward"]
    head += ["cost / limit", "late blocks above", "steps/s"]
    rows = [[*head, "ours: reward", "ours: cost"], ["---"] * (len(head) + 2)]
    found = groups(lines)
    for name, group in found.items():
        values = curves(group)
        end = values.shape[1]
        late = slice(end - max(1, round(0.1 * end)), end)
        row = [*name, f"{len(group)} x {end * BLOCK:,}", *summary(values[:, late])]
        row.append(f"{(values[:, late, 2] > LIMIT).mean():.0%}")
        pace = [line["cell"]["steps"] / line["seconds"] for line in group]
        row.append(f"{np.mean(pace):,.0f}")
        ours = found.get((name[0], "ecop", "tuned"))
        rows.append([*row, *(summary(curves(ours)[:, late]) if ours else ["", ""])])
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def summary(late: np.ndarray) -> list[str]:
    """Mean and spread over seeds of the reward, mean cost."""
    reward = late[..., 1].mean(axis=1)
    cost = f"{late[..., 2].mean():.2f} / {LIMIT:g}"
    return [f"{reward.mean():.1f} ± {reward.std():.1f}", cost]


def curves(group: list[dict]) -> np.ndarray:
    """Curves [S, blocks, 3] of a group, cut to the shortest."""
    shortest = min(len(line["curve"]) for line in group)
    return np.array([line["curve"][:shortest] for line in group])


def groups(lines: list[dict]) -> dict[tuple, list[dict]]:
    """Cells that differ only in their seed or budget, ours first."""

    def place(line: dict) -> tuple:
        cell = line["cell"]
        order = ORDER.index(cell["algorithm"]), LIBRARIES.index(cell["library"])
        return (*order, cell["setting"], cell["seed"])

    found: dict[tuple, list[dict]] = {}
    for line in sorted(lines, key=place):
        names = ("algorithm", "library", "setting")
        found.setdefault(tuple(line["cell"][x] for x in names), []).append(line)
    return found


def plot(lines: list[dict], file: Path) -> None:
    """Reward above, cost below, one column per algorithm; means over seeds."""
    import matplotlib.pyplot as plt

    styles = {
        ("ecop", "default"): ("ecop (ours), default", "tab:blue", "--"),
        ("ecop", "tuned"): ("ecop (ours), tuned", "tab:blue", "-"),
        ("sb3", "default"): ("stable-baselines3, default", "tab:orange", "-"),
        ("sb3", "adapted"): ("stable-baselines3, adapted", "tab:orange", "--"),
        ("omnisafe", "default"): ("OmniSafe, default", "tab:green", "-"),
        ("omnisafe", "adapted"): ("OmniSafe, adapted", "tab:green", "--"),
    }
    figure, axes = plt.subplots(
        2, len(ORDER), figsize=(12, 6.2), sharex=True, sharey="row"
    )
    for (algorithm, library, setting), group in groups(lines).items():
        values = curves(group)
        label, colour, style = styles[library, setting]
        column = axes[:, ORDER.index(algorithm)]
        for axis, value in zip(column, (1, 2), strict=True):
            smooth = np.apply_along_axis(running_mean, 1, values[..., value])
            steps = values[0, :, 0] / 1e3
            kind = {"color": colour, "linestyle": style, "linewidth": 1.6}
            axis.plot(steps, smooth.mean(axis=0), label=label, **kind)
            low, high = smooth.min(axis=0), smooth.max(axis=0)
            axis.fill_between(steps, low, high, color=colour, alpha=0.12)
    for i, name in enumerate(("PPO (no constraint)", "PPO-Lagrangian", "CPO")):
        axes[0, i].set_title(name)
        axes[1, i].axhline(LIMIT, color="black", linewidth=1, linestyle=":")
        axes[1, i].set(xlabel="1000 environment steps", yscale="log", ylim=(2, 200))
        axes[1, i].set_yticks([2, 5, 10, 20, 50, 100, 200])
        axes[1, i].yaxis.set_major_formatter("{x:g}")
        axes[0, i].legend(fontsize=8, loc="lower right")
    axes[0, 0].set_ylabel("episodic reward")
    axes[1, 0].set_ylabel("episodic cost (dotted: limit)")
    figure.tight_layout()
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, dpi=110)


def running_mean(x: np.ndarray, width: int = 5) -> np.ndarray:
    """Mean of each block and the few before it."""
    sums = np.cumsum(np.append(0.0, x))
    end = np.arange(1, len(x) + 1)
    begin = np.maximum(end - width, 0)
    return (sums[end] - sums[begin]) / (end - begin)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--library", choices=LIBRARIES)
    parser.add_argument("--algorithm", choices=ORDER)
    parser.add_argument("--setting", default="default")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=1_200_000)
    parser.add_argument("--table", action="store_true", help="print, do not run")
    parser.add_argument("--plot", type=Path, help="draw the curves, do not run")
    arguments = parser.parse_args()
    file = arguments.file
    lines = (
        [json.loads(x) for x in file.read_text().splitlines()] if file.exists() else []
    )
    if arguments.plot:
        plot(lines, arguments.plot)
    elif not arguments.table:
        if arguments.library is None or arguments.algorithm is None:
            parser.error("name a cell: --library and --algorithm")
        names = ("library", "algorithm", "setting", "seed", "steps")
        cell = {name: getattr(arguments, name) for name in names}
        if cell not in [line["cell"] for line in lines]:
            lines.append(measure(cell))
            with file.open("a") as output:
                output.write(json.dumps(lines[-1]) + "\n")
    print(table(lines))


if __name__ == "__main__":
    main()
