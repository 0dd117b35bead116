"""One rank of EcopTrainer under torch.distributed.run: one step, then its numbers."""

import json
import os
import sys
from pathlib import Path

import tiny_gpt

from ecop.finetune.trl import KEEP_REFERENCE, EcopTrainer, completion_length


def main(model: str, folder: Path) -> None:
    from trl.trainer.grpo_config import GRPOConfig

    seen = {"bad_words": [], "completion_length": []}

    def bad_words(completions, **_):
        seen["bad_words"] += tiny_gpt.bad_words(completions)
        return tiny_gpt.bad_words(completions)

    def length(completion_ids, **_):
        seen["completion_length"] += completion_length(completion_ids)
        return completion_length(completion_ids)

    length.__name__ = "completion_length"
    trainer = EcopTrainer(
        model,
        reward_funcs=tiny_gpt.count_a,
        cost_funcs=[bad_words, length],
        cost_limits=[0.1, 3.0],
        kl_limit=0.5,
        args=GRPOConfig(
            output_dir=str(folder / "out"),
            max_steps=1,
            per_device_train_batch_size=8,
            num_generations=8,
            max_completion_length=6,
            beta=KEEP_REFERENCE,
            report_to=[],
            logging_steps=1,
            save_strategy="no",
            use_cpu=True,
            bf16=False,
            disable_dropout=True,
            disable_tqdm=True,
        ),
        train_dataset=tiny_gpt.prompts(),
    )
    trainer.train()
    logs = [row for row in trainer.state.log_history if "ecop/kl/cost" in row]
    means = {name: logs[0][f"ecop/{name}/cost"] for name in seen} if logs else {}
    found = seen | {"prices": trainer.prices.prices().tolist(), "means": means}
    (folder / f"{os.environ['RANK']}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
