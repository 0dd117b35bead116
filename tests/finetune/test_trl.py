"""EcopTrainer on a real TRL with a tiny GPT-2 that is built here."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_gpt

from ecop.errors import UserError

torch = pytest.importorskip("torch", reason="needs ecop[trl]: torch is missing")
pytest.importorskip("trl", reason="needs ecop[trl]: trl is missing")
pytestmark = pytest.mark.filterwarnings("default")  # of other people's packages


@pytest.fixture(scope="module")
def model_path(tmp_path_factory):
    return tiny_gpt.save(tmp_path_factory.mktemp("gpt"))


def config(out, *, steps=2, **changes):
    from trl.trainer.grpo_config import GRPOConfig

    from ecop.finetune.trl import KEEP_REFERENCE

    settings = {
        "output_dir": str(out),
        "max_steps": steps,
        "per_device_train_batch_size": 16,
        "num_generations": 8,
        "max_completion_length": 6,
        "learning_rate": 1e-2,
        "lr_scheduler_type": "constant",
        "beta": KEEP_REFERENCE,
        "disable_dropout": True,
        "report_to": [],
        "logging_steps": 1,
        "save_strategy": "no",
        "use_cpu": True,
        "bf16": False,
        "disable_tqdm": True,
    }
    return GRPOConfig(**(settings | changes))


def make(model, out, *, trainer_options=None, **changes) -> Any:
    from ecop.finetune.trl import EcopTrainer, completion_length

    options = {
        "reward_funcs": tiny_gpt.count_a,
        "cost_funcs": [tiny_gpt.bad_words, completion_length],
        "cost_limits": [0.1, 3.0],
        "kl_limit": 0.5,
        "train_dataset": tiny_gpt.prompts(),
    } | (trainer_options or {})
    return EcopTrainer(model, args=config(out, **changes), **options)


def weights(trainer):
    return torch.cat([p.detach().flatten() for p in trainer.model.parameters()])


def logged(trainer, key):
    return [row[key] for row in trainer.state.log_history if key in row]


@pytest.mark.parametrize("pieces", [1, 2])
def test_the_advantage_is_mixed_with_prices(model_path, tmp_path, monkeypatch, pieces):
    """In the loss if the batch is one piece, else before: the same numbers."""
    from trl.trainer.grpo_trainer import GRPOTrainer
    from trl.trainer.utils import shuffle_sequence_dict

    paid = {"kl_limit": -1.0, "cost_limits": [0.0, 0.0]}  # nobody can keep these
    trainer = make(
        model_path,
        tmp_path,
        trainer_options=paid,
        per_device_train_batch_size=16 // pieces,
        gradient_accumulation_steps=pieces,
    )
    trainer.train()  # away from the reference, so that there is a KL
    trainer.prices.batches = 0  # the scales start anew
    inner = GRPOTrainer._generate_and_score_completions

    def spied(self, inputs):
        output = inner(self, inputs)
        adv = output["advantages"]
        return output | {"plain": adv.clone(), "group": torch.arange(len(adv)) // 8}

    monkeypatch.setattr(GRPOTrainer, "_generate_and_score_completions", spied)
    trainer.model.train()
    scored = trainer._generate_and_score_completions(
        [row for row in tiny_gpt.prompts(2) for _ in range(8)]
    )
    before = trainer.prices.batches
    output: Any = shuffle_sequence_dict(scored)
    trainer.compute_loss(trainer.model, output)
    assert trainer.prices.batches - before == (pieces == 1)
    mixed = output["advantages"].clone()
    trainer.compute_loss(trainer.model, output)  # another pass over the same batch
    assert torch.equal(output["advantages"], mixed)
    assert trainer.prices.batches == 1
    # Everything again, slowly, from the completions themselves.
    ids, mask = output["completion_ids"], output["completion_mask"]
    texts = [
        trainer.processing_class.decode(row[m > 0])
        for row, m in zip(ids, mask, strict=True)
    ]
    bad = [text.split().count("bad") for text in texts]
    length = [int(m.sum()) for m in mask]
    full = torch.cat([output["prompt_ids"], ids], dim=1)
    kl = np.zeros(len(ids))
    reference = trainer.ref_model(full).logits.log_softmax(-1).detach()
    policy = trainer.model(full).logits.log_softmax(-1).detach()
    start = output["prompt_ids"].shape[1]
    for n in range(len(ids)):
        for t in range(length[n]):
            token = int(ids[n, t])
            now, then = (
                policy[n, start + t - 1, token],
                reference[n, start + t - 1, token],
            )
            kl[n] += float(now - then)
    costs = np.array([bad, length, kl], float).T
    group = output["group"].numpy()
    cost_adv = costs - np.array([costs[group == g].mean(0) for g in group])
    prices, scale = trainer.prices.prices(), trainer.prices.scale
    floor = 0.1 * np.abs(trainer.prices.limits)
    np.testing.assert_allclose(scale, np.maximum(cost_adv.std(0), floor), rtol=1e-4)
    expected = output["plain"].numpy() - cost_adv @ (prices / scale)
    np.testing.assert_allclose(output["advantages"], expected, atol=1e-4)
    assert prices.min() > 0


def test_prices_of_a_policy_that_is_the_reference_have_no_kl(model_path, tmp_path):
    trainer = make(model_path, tmp_path)
    trainer.train()
    kl = logged(trainer, "ecop/kl/cost")
    assert abs(kl[0]) < 1e-4
    assert abs(kl[1]) > 1e-4


def test_slack_limits_leave_grpo_as_it_is(model_path, tmp_path):
    from trl.trainer.grpo_trainer import GRPOTrainer

    slack = {"cost_limits": [1e6, 1e6], "kl_limit": 1e6}
    ours = make(model_path, tmp_path, trainer_options=slack)
    start = weights(ours)
    ours.train()
    reward: Any = tiny_gpt.count_a
    theirs = GRPOTrainer(
        model_path,
        reward_funcs=reward,
        args=config(tmp_path),
        train_dataset=tiny_gpt.prompts(),
    )
    theirs.train()
    assert torch.equal(weights(ours), weights(theirs))
    assert not torch.equal(weights(ours), start)


def test_every_constraint_is_logged(model_path, tmp_path):
    trainer = make(model_path, tmp_path)
    trainer.train()
    row = next(r for r in trainer.state.log_history if "ecop/kl/cost" in r)
    for name in ("bad_words", "completion_length", "kl"):
        for key in ("cost", "error", "limit", "multiplier", "price", "violated"):
            assert f"ecop/{name}/{key}" in row
    assert row["ecop/completion_length/limit"] == 3.0
    assert row["ecop/completion_length/cost"] == row["completions/mean_length"]
    assert row["ecop/completion_length/violated"] == 1.0


def test_gradient_accumulation_has_the_price_of_the_whole_batch(model_path, tmp_path):
    """One batch in one piece and in four micro-batches: the same step."""
    whole = make(model_path, tmp_path, steps=1, loss_type="dr_grpo")
    whole.train()
    parts = make(
        model_path,
        tmp_path,
        steps=1,
        loss_type="dr_grpo",
        per_device_train_batch_size=4,
        gradient_accumulation_steps=4,
    )
    parts.train()
    assert logged(whole, "ecop/bad_words/cost") == logged(parts, "ecop/bad_words/cost")
    np.testing.assert_array_equal(whole.prices.prices(), parts.prices.prices())
    np.testing.assert_allclose(
        logged(whole, "grad_norm"), logged(parts, "grad_norm"), rtol=1e-4
    )


def test_iterations_reuse_the_batch_and_its_price(model_path, tmp_path):
    trainer = make(model_path, tmp_path, steps=4, num_iterations=2)
    trainer.train()
    assert trainer.prices.batches == 2
    assert len(logged(trainer, "ecop/kl/cost")) == 2


@pytest.mark.parametrize("loss_type", ["grpo", "dr_grpo", "bnpo", "dapo", "cispo"])
def test_every_loss_type_trains(model_path, tmp_path, loss_type):
    trainer = make(model_path, tmp_path, steps=1, loss_type=loss_type)
    start = weights(trainer)
    trainer.train()
    assert torch.isfinite(weights(trainer)).all()
    assert not torch.equal(weights(trainer), start)


def test_evaluation_measures_and_leaves_the_multipliers(model_path, tmp_path):
    trainer = make(
        model_path,
        tmp_path,
        per_device_eval_batch_size=8,
        trainer_options={"eval_dataset": tiny_gpt.prompts(4)},
    )
    trainer.train()
    before = trainer.prices.to_json()
    metrics = trainer.evaluate()
    assert trainer.prices.to_json() == before
    assert metrics["eval_ecop/completion_length/cost"] > 0
    assert "eval_ecop/kl/violated" in metrics


def test_resume_goes_on_with_the_same_bits(model_path, tmp_path):
    straight = make(model_path, tmp_path / "a", steps=4)
    straight.train()
    broken = make(
        model_path, tmp_path / "b", steps=4, save_strategy="steps", save_steps=2
    )
    broken.train()
    again = make(model_path, tmp_path / "b", steps=4)
    again.train(resume_from_checkpoint=str(tmp_path / "b" / "checkpoint-2"))
    assert (
        again.prices.to_json() == straight.prices.to_json() == broken.prices.to_json()
    )
    assert torch.equal(weights(again), weights(straight))
    saved = json.loads(
        (tmp_path / "b" / "checkpoint-2" / "ecop_prices.json").read_text()
    )
    assert saved["batches"] == 2


def test_resume_without_prices_is_refused(model_path, tmp_path):
    trainer = make(model_path, tmp_path, save_strategy="steps", save_steps=1)
    trainer.train()
    (tmp_path / "checkpoint-1" / "ecop_prices.json").unlink()
    with pytest.raises(UserError, match=r"no ecop_prices\.json"):
        make(model_path, tmp_path).train(str(tmp_path / "checkpoint-1"))


def test_lora(model_path, tmp_path):
    peft = pytest.importorskip("peft", reason="needs peft for LoRA")
    lora = peft.LoraConfig(r=4, target_modules=["c_attn"], task_type="CAUSAL_LM")
    trainer = make(model_path, tmp_path, steps=3, trainer_options={"peft_config": lora})
    assert trainer.ref_model is None
    trainer.train()
    kl = logged(trainer, "ecop/kl/cost")
    assert abs(kl[0]) < 1e-4  # a fresh adapter changes nothing
    assert abs(kl[-1]) > 1e-5


def test_a_cost_model(model_path, tmp_path):
    """A classifier beside a cost function, by its path, as TRL's reward models."""
    folder = tmp_path / "toxicity"
    tiny_gpt.save(folder, "GPT2ForSequenceClassification")
    options = {"cost_funcs": [str(folder), tiny_gpt.bad_words], "kl_limit": None}
    trainer = make(model_path, tmp_path / "out", trainer_options=options, beta=0.0)
    trainer.train()
    assert trainer.prices.names == ("toxicity", "bad_words")
    costs = trainer._costs
    assert costs.shape == (16, 2)
    assert costs[:, 0].std() > 0
    last = logged(trainer, "ecop/toxicity/cost")[-1]
    assert last == pytest.approx(costs[:, 0].mean().item(), rel=1e-5)


def test_completions_nobody_scored_stay_out(model_path, tmp_path):
    """TRL gives them the advantage 0; a finite cost beside them must not hide it."""

    def some(completions, **_):
        return [None if i % 2 else 1.0 * i for i in range(len(completions))]

    options = {"reward_funcs": some, "cost_limits": [1e6, 1e6], "kl_limit": 1e6}
    trainer = make(model_path, tmp_path, trainer_options=options)
    trainer.model.train()
    rows = [row for row in tiny_gpt.prompts(2) for _ in range(8)]
    adv = trainer._generate_and_score_completions(rows)["advantages"]
    assert (adv[1::2] == 0).all()
    assert (adv[::2] != 0).any()


def nan(completions, **_):
    return [float("nan")] * len(completions)


def none(completions, **_):
    return [None] * len(completions)


def short(completions, **_):
    return [0.0]


def raises(completions, **_):
    raise RuntimeError("the cost model is not there")


@pytest.mark.parametrize(
    ("cost", "error", "message"),
    [
        (nan, UserError, "'nan' returned NaN, None or infinity for 16 of 16"),
        (none, UserError, "'none' returned NaN"),
        (short, ValueError, "'short' returned 1"),
        (raises, RuntimeError, "the cost model is not there"),
    ],
)
def test_costs_that_cannot_be_used_stop_the_training(
    model_path, tmp_path, cost, error, message
):
    options = {"cost_funcs": [cost], "cost_limits": [1.0]}
    with pytest.raises(error, match=message):
        make(model_path, tmp_path, trainer_options=options).train()


@pytest.mark.parametrize(
    ("options", "changes", "message"),
    [
        ({"cost_limits": [0.1]}, {}, "one limit per cost function"),
        ({}, {"beta": 0.0}, "KEEP_REFERENCE"),
        ({"cost_limits": [0.1, float("nan")]}, {}, "finite number"),
        ({"cost_limits": [0.1, "short"]}, {}, "finite number, not 'short'"),
        ({"cost_limits": {"bad_words": 0.1}}, {}, "one limit per cost function"),
        (
            {"cost_funcs": [], "cost_limits": [], "kl_limit": None},
            {},
            "nothing to keep",
        ),
        ({"cost_funcs": [tiny_gpt.bad_words] * 2}, {}, "different names"),
        ({"rate": -1.0}, {}, "rate must be zero or more"),
        ({}, {"disable_dropout": False}, "Dropout makes the measured KL wrong"),
    ],
)
def test_wrong_uses(model_path, tmp_path, options, changes, message):
    with pytest.raises(UserError, match=message):
        make(model_path, tmp_path, trainer_options=options, **changes)


def test_a_trl_without_our_seams_is_refused():
    from ecop.finetune.trl import SEAMS, EcopTrainer, check_seams

    check_seams()
    with pytest.raises(UserError, match="has no _calculate_rewards"):
        check_seams(object)
    overridden = {name for name in vars(EcopTrainer) if name in SEAMS}
    assert overridden == set(SEAMS)


def test_the_seams_are_where_they_were():
    """Fails with a sentence when TRL moves what EcopTrainer builds on."""
    import inspect

    from trl.trainer.grpo_trainer import GRPOTrainer

    source = inspect.getsource(GRPOTrainer._generate_and_score_completions)
    for needed in (
        '"advantages": advantages',
        'output["ref_per_token_logps"]',
        'output["old_per_token_logps"]',
        "self._calculate_rewards(",
        "self.reward_weights",
    ):
        assert needed in source, f"TRL's batch no longer has {needed}: revisit trl.py."
    loss = inspect.getsource(GRPOTrainer._compute_loss)
    first = loss.index("self._get_per_token_logps_and_entropies(")
    assert first < loss.index('inputs["advantages"]'), "TRL's loss has a new order."
    wanted = ["self", "model", "input_ids", "attention_mask", "logits_to_keep"]
    found = inspect.signature(GRPOTrainer._get_per_token_logps_and_entropies)
    assert list(found.parameters)[:5] == wanted, "TRL's log probabilities have moved."


def test_two_processes_have_the_same_prices(model_path, tmp_path):
    worker = Path(__file__).with_name("trl_worker.py")
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    command += ["--master-port", "29517", str(worker), model_path, str(tmp_path)]
    env = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command, env=env, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    ranks = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2)]
    assert ranks[0]["prices"] == ranks[1]["prices"]
    for name in ("bad_words", "completion_length"):
        both = np.array([rank[name] for rank in ranks], float)
        assert ranks[0]["means"][name] == pytest.approx(both.mean())
        assert both[0].tolist() != both[1].tolist()
