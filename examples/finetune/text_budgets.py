"""Budgets for a language model: GRPO, GRPO with a KL coefficient, and e-COP.

python examples/finetune/text_budgets.py [--steps 150] [--out text_budgets]

A tiny GPT (`tiny_text.py`) writes adverts and is rewarded for praise. The reward can
be hacked: unsafe claims count double, so GRPO ends with "miracle miracle miracle".
e-COP earns what can be earned with 0.3 claims, 10 words and 6 nats per advert. Writes
a picture, the samples and the figures of every step. About 3 minutes on 2 cores.
"""

import argparse
import contextlib
import io
import json
import os
import time
import warnings
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import tiny_text
import torch
from figures import FIRST
from matplotlib import pyplot as plt
from trl import GRPOConfig

from ecop.finetune.trl import KEEP_REFERENCE, EcopTrainer, completion_length

LIMITS = {"unsafe": 0.3, "completion_length": 10.0, "kl": 6.0}
NEVER = dict.fromkeys(LIMITS, 1e6)  # limits that never bind leave GRPO, bit for bit
METHODS: dict[str, dict[str, Any]] = {
    "GRPO": {"limits": NEVER},
    "GRPO, KL coefficient 0.04": {"limits": NEVER, "coefficient": 0.04},
    "e-COP": {},
}


def config(folder: Path, steps: int, seed: int, coefficient: float) -> GRPOConfig:
    """96 adverts per step; sums over words, so that every gradient is unbiased."""
    return GRPOConfig(
        output_dir=str(folder),
        max_steps=steps,
        seed=seed,
        per_device_train_batch_size=96,
        num_generations=16,
        max_completion_length=16,
        learning_rate=1e-3,
        lr_scheduler_type="constant_with_warmup",
        warmup_steps=20,
        loss_type="dr_grpo",
        scale_rewards="batch",
        beta=coefficient,
        disable_dropout=True,
        logging_steps=1,
        save_strategy="no",
        report_to=[],
        use_cpu=True,
        bf16=False,
        disable_tqdm=True,
    )


def train(
    model: str,
    folder: Path,
    *,
    steps: int,
    seed: int = FIRST,
    limits: dict[str, float] = LIMITS,
    coefficient: float = KEEP_REFERENCE,
    **options: float,
) -> tuple[dict[str, list[float]], list[str], float]:
    """Train; return figures of every step, samples and seconds per step."""
    trainer = EcopTrainer(
        model,
        reward_funcs=tiny_text.praise,
        cost_funcs=[tiny_text.unsafe, completion_length],
        cost_limits=[limits["unsafe"], limits["completion_length"]],
        kl_limit=limits["kl"],
        args=config(folder, steps, seed, coefficient),
        train_dataset=tiny_text.prompts(),
        **options,
    )
    start = time.perf_counter()
    with contextlib.redirect_stdout(io.StringIO()):  # TRL prints every step
        trainer.train()
    seconds = (time.perf_counter() - start) / steps
    rows = [row for row in trainer.state.log_history if "reward" in row]
    keys = {"reward": "reward"} | {name: f"ecop/{name}/cost" for name in LIMITS}
    for figure in ("error", "price"):
        keys |= {f"{name} {figure}": f"ecop/{name}/{figure}" for name in LIMITS}
    course = {name: [row[key] for row in rows] for name, key in keys.items()}
    logs = zip(trainer._logs["prompt"], trainer._logs["completion"], strict=True)
    return course, [f"{p} {c}" for p, c in list(logs)[::16]], seconds


def draw(courses: dict[str, dict[str, list[float]]], file: Path) -> None:
    """Reward and costs over steps; limits dashed."""
    titles = {
        "reward": "reward (praise)",
        "unsafe": "unsafe claims per advert",
        "completion_length": "words per advert",
        "kl": "KL to the reference, nats",
    }
    figure, axes = plt.subplots(1, 4, figsize=(13, 3), layout="constrained")
    for (key, title), axis in zip(titles.items(), axes, strict=True):
        for (name, course), colour in zip(
            courses.items(), ("#999999", "#d08000", "#0060c0"), strict=True
        ):
            axis.plot(course[key], color=colour, label=name, lw=1.2)
        if key in LIMITS:
            axis.axhline(LIMITS[key], color="black", ls="--", lw=0.8)
        axis.set_yscale("symlog", linthresh=1.0 if key != "reward" else 4.0)
        axis.set(title=title, xlabel="step", ylim=(0, None))
    axes[0].legend(frameon=False, fontsize=8)
    figure.savefig(file, dpi=130)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--out", type=Path, default=Path("text_budgets"))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    model = tiny_text.make(options.out / "model")
    courses = {}
    for name, settings in METHODS.items():
        found = train(model, options.out / "run", steps=options.steps, **settings)
        courses[name], samples, seconds = found
        late = slice(-(options.steps // 4), None)
        means = {key: float(np.mean(v[late])) for key, v in courses[name].items()}
        print(f"{name} ({seconds:.2f} s per step), means of the last quarter:")
        print("  reward {reward:.2f}; unsafe {unsafe:.2f}, ".format(**means), end="")
        print("length {completion_length:.1f}, KL {kl:.2f}".format(**means))
        for sample in samples[:4]:
            print(f"    {sample}", flush=True)
    (options.out / "courses.json").write_text(json.dumps(courses))
    draw(courses, options.out / "text_budgets.png")
    print(options.out / "text_budgets.png")


if __name__ == "__main__":
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    warnings.simplefilter("ignore")
    matplotlib.use("Agg")
    torch.set_num_threads(1)
    main()
