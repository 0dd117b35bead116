"""What the limits cost: the CPU time of a step that EcopTrainer adds to GRPO's.

python examples/finetune/overhead.py MODEL_FOLDER [steps]

One run with clocks (CPU time) around TRL's own methods and around ours, so that other
programs on the machine matter little. The KL needs log-probabilities of the sampling
policy, which TRL skips on-policy: one forward pass, counted apart.
"""

import contextlib
import io
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import text_budgets
import tiny_text
import torch
from trl import GRPOTrainer

from ecop.finetune.trl import KEEP_REFERENCE, EcopTrainer, completion_length

SPENT: Counter[str] = Counter()


def clocked(owner: type, name: str, key: str) -> None:
    """Add the CPU time of a method to SPENT[key]."""
    inner: Callable[..., Any] = getattr(owner, name)

    def outer(*args: Any, **kwargs: Any) -> Any:
        start = time.process_time()
        try:
            return inner(*args, **kwargs)
        finally:
            SPENT[key] += time.process_time() - start

    setattr(owner, name, outer)


def main(model: str, steps: int = 60) -> None:
    for owner, whose in ((GRPOTrainer, "TRL"), (EcopTrainer, "ours")):
        clocked(owner, "_generate_and_score_completions", f"score, {whose}")
        clocked(owner, "_calculate_rewards", f"rewards, {whose}")
    clocked(EcopTrainer, "_sampling_logps", "log-probabilities")
    with tempfile.TemporaryDirectory() as folder:
        trainer = EcopTrainer(
            model,
            tiny_text.praise,
            text_budgets.config(Path(folder), steps, 0, KEEP_REFERENCE),
            cost_funcs=[tiny_text.unsafe, completion_length],
            cost_limits=[0.3, 10.0],
            kl_limit=6.0,
            train_dataset=tiny_text.prompts(),
        )
        start = time.process_time()
        with contextlib.redirect_stdout(io.StringIO()):
            trainer.train()
        total = time.process_time() - start
    # TRL's scoring calls our _calculate_rewards: what that adds is inside both.
    added = SPENT["score, ours"] - SPENT["score, TRL"] - SPENT["log-probabilities"]
    added += SPENT["rewards, ours"] - SPENT["rewards, TRL"]
    plain = total - added - SPENT["log-probabilities"]
    print(f"GRPO's own work: {plain / steps:.4f} s of CPU per step")
    for name, spent in (
        ("prices and advantages", added),
        ("log-probabilities for the KL", SPENT["log-probabilities"]),
    ):
        print(f"{name}: {spent / steps:.4f} s, {100 * spent / plain:+.1f} %")


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    main(sys.argv[1], *map(int, sys.argv[2:3]))
