"""What the limits cost: the CPU time of a step that EcopTrainer adds to GRPO's.

python examples/finetune/overhead.py [steps]

Clocks (CPU time) around our own methods, so that other programs on the machine matter
little. GRPO here has a KL coefficient, so that it has a reference too. A batch that the
loss takes in one piece gives the KL of its own log-probabilities; one that is cut into
micro-batches needs a forward pass before, because prices are those of the whole batch.
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


def measure(model: str, steps: int, pieces: int) -> None:
    """Train with the batch in so many pieces; print what we add per step."""
    SPENT.clear()
    with tempfile.TemporaryDirectory() as folder:
        args = text_budgets.config(Path(folder), steps, 0, KEEP_REFERENCE)
        args.per_device_train_batch_size //= pieces
        args.gradient_accumulation_steps = args.steps_per_generation = pieces
        trainer = EcopTrainer(
            model,
            tiny_text.praise,
            args,
            cost_funcs=[tiny_text.unsafe, completion_length],
            cost_limits=[0.3, 10.0],
            kl_limit=6.0,
            train_dataset=tiny_text.prompts(),
        )
        start = time.process_time()
        with contextlib.redirect_stdout(io.StringIO()):
            trainer.train()
        total = time.process_time() - start
    added = SPENT["prices"] + SPENT["rewards, ours"] - SPENT["rewards, TRL"]
    plain = total - added - SPENT["log-probabilities"]
    print(f"pieces: {pieces}; GRPO's own work: {plain / steps:.4f} s of CPU per step")
    for name, spent in (
        ("prices and advantages", added),
        ("log-probabilities for the KL", SPENT["log-probabilities"]),
    ):
        print(f"  {name}: {spent / steps:.4f} s, {100 * spent / plain:+.1f} %")


def main(steps: int = 60) -> None:
    clocked(GRPOTrainer, "_calculate_rewards", "rewards, TRL")
    clocked(EcopTrainer, "_calculate_rewards", "rewards, ours")
    clocked(EcopTrainer, "_put_prices", "prices")
    clocked(EcopTrainer, "_sampling_logps", "log-probabilities")
    with tempfile.TemporaryDirectory() as folder:
        model = tiny_text.make(Path(folder) / "model")
        for pieces in (1, 4):
            measure(model, steps, pieces)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    main(*map(int, sys.argv[1:2]))
