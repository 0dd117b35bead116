"""Budgets for a model on disk or from the hub: the smallest complete script.

python examples/finetune/tiny_text.py tiny                    # makes a model folder
python examples/finetune/from_pretrained.py tiny [--steps 50] [--lora] [--resume]

For a model from the hub change one line, MODEL. docs/finetune/real_models.md says what
to set and what to watch at real sizes.
"""

import sys

import tiny_text
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import GRPOConfig

from ecop.finetune.trl import KEEP_REFERENCE, EcopTrainer, completion_length

MODEL = sys.argv[1]  # a folder, or a name on the hub, such as "Qwen/Qwen3-0.6B"
STEPS = int(sys.argv[sys.argv.index("--steps") + 1]) if "--steps" in sys.argv else 50


def main() -> None:
    peft_config = None
    if "--lora" in sys.argv:
        from peft import LoraConfig

        peft_config = LoraConfig(
            r=8, target_modules=["c_attn"], fan_in_fan_out=True, task_type="CAUSAL_LM"
        )  # target_modules of most models: ["q_proj", "v_proj"], no fan_in_fan_out
    trainer = EcopTrainer(
        AutoModelForCausalLM.from_pretrained(MODEL),
        processing_class=AutoTokenizer.from_pretrained(MODEL),
        reward_funcs=tiny_text.praise,  # yours: texts -> numbers, or a reward model
        cost_funcs=[tiny_text.unsafe, completion_length],  # or a cost model
        cost_limits=[0.3, 10.0],
        kl_limit=6.0,
        args=GRPOConfig(
            output_dir="budgets",
            max_steps=STEPS,
            per_device_train_batch_size=96,
            num_generations=16,
            max_completion_length=16,
            learning_rate=1e-2 if peft_config else 1e-3,
            warmup_steps=20,
            loss_type="dr_grpo",
            scale_rewards="batch",
            beta=KEEP_REFERENCE,  # loads the reference, which kl_limit needs
            disable_dropout=True,
            save_steps=25,
            logging_steps=5,
            use_cpu=not torch.cuda.is_available(),
            bf16=torch.cuda.is_available(),
            report_to=[],  # "tensorboard" or "wandb": the limits are logged there too
        ),
        train_dataset=tiny_text.prompts(),
        peft_config=peft_config,
    )
    trainer.train(resume_from_checkpoint="--resume" in sys.argv)
    trainer.save_model("budgets/final")
    prices = trainer.prices
    for figures in zip(prices.names, prices.limits, prices.multiplier, strict=True):
        print("{}: limit {:g}, multiplier {:.3f}".format(*figures))


if __name__ == "__main__":
    main()
