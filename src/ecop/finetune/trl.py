"""`EcopTrainer`: TRL's GRPOTrainer with limits on costs and on the KL divergence.

    trainer = EcopTrainer(
        model=path, reward_funcs=helpful, cost_funcs=[unsafe, completion_length],
        cost_limits=[0.1, 200.0], kl_limit=10.0,
        args=GRPOConfig(beta=KEEP_REFERENCE, ...), train_dataset=prompts,
    )

How it rides on TRL, each override calling `super()`:

- Costs are reward functions of weight 0: TRL runs, gathers and logs them, and leaves
  them out of its advantage.
- `_calculate_rewards` checks the costs and keeps them.
- `_generate_and_score_completions` updates the multipliers once per batch (not in
  evaluation) and returns the advantage A - sum_i price_i A_Ci. On-policy that is
  e-COP's gradient with every `loss_type`; with `num_iterations` > 1 the price is held
  at the one of the batch.
- `compute_loss`, `_get_per_token_logps_and_entropies`: if the loss takes the batch in
  one piece, all that waits for its log-probabilities, which the KL needs.
- `_save_checkpoint`, `_load_optimizer_and_scheduler`: the multipliers as JSON.

A_Ci is the cost of the whole completion minus the mean of its group, divided by the
running standard deviation. The KL of a completion is the sum of log pi/pi_ref over its
tokens (k1): unbiased, and so is its gradient as a cost; k3 has almost none near the
reference. A limit binds the mean over the batch, not every prompt.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor
from transformers import PreTrainedModel
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR
from trl.trainer.grpo_config import GRPOConfig
from trl.trainer.grpo_trainer import GRPOTrainer

from ecop.errors import UserError
from ecop.finetune.prices import BETA, RATE, Prices

KEEP_REFERENCE = 1e-8  # a GRPOConfig.beta that loads the reference and weighs nothing
STATE_FILE = "ecop_prices.json"
KL = "kl"
ROWS = "ecop_rows"  # in a batch whose prices wait for the loss
SEAMS = (
    "_calculate_rewards",
    "_generate_and_score_completions",
    "compute_loss",
    "_get_per_token_logps_and_entropies",
    "_save_checkpoint",
    "_load_optimizer_and_scheduler",
)


def completion_length(completion_ids: Sequence[Sequence[int]], **_: Any) -> list[float]:
    """Cost: the tokens of each completion, the end token included."""
    return [float(len(ids)) for ids in completion_ids]


class EcopTrainer(GRPOTrainer):
    """GRPO with upper limits on the mean of each cost and of the KL divergence.

    model, reward_funcs, args and all other arguments are GRPOTrainer's.
    cost_funcs: functions with the signature of reward functions, or cost models.
    cost_limits: one per cost function, in its own units per completion.
    kl_limit: nats per completion to the reference; needs `args.beta` > 0, for which
        `KEEP_REFERENCE` is enough, and `args.disable_dropout` if there is dropout.
    beta: damping; 0 is a plain Lagrangian. (GRPOConfig.beta is TRL's KL coefficient.)
    rate: what a multiplier gains per batch and unit of violation.
    caution: standard errors that are added to each measured cost.
    bound: where multipliers and prices stop.
    cost_processing_classes: tokenizers of the cost models, one per cost function.
    """

    _tag_names = ["trl", "grpo", "ecop"]  # noqa: RUF012, as in TRL

    def __init__(
        self,
        model: Any,
        reward_funcs: Any,
        args: GRPOConfig | None = None,
        *,
        cost_funcs: Any = (),
        cost_limits: float | Sequence[float] = (),
        kl_limit: float | None = None,
        beta: float = BETA,
        rate: float = RATE,
        caution: float = 0.0,
        bound: float = 100.0,
        reward_processing_classes: Any = None,
        cost_processing_classes: Any = None,
        **options: Any,
    ) -> None:
        check_seams()
        rewards, costs = _as_list(reward_funcs), _as_list(cost_funcs)
        limits = _limits(costs, _as_list(cost_limits), kl_limit)
        args = copy.copy(args) if args else GRPOConfig("ecop")  # weights are added
        if kl_limit is not None and args.beta == 0.0:
            raise UserError(
                "kl_limit needs the reference model, which TRL loads only if "
                "GRPOConfig.beta is not 0: set it to KEEP_REFERENCE."
            )
        weights = args.reward_weights or [1.0] * len(rewards)
        args.reward_weights = [*weights, *[0.0] * len(costs)]
        processing = _as_list(reward_processing_classes) or [None] * len(rewards)
        processing += _as_list(cost_processing_classes) or [None] * len(costs)
        self.prices = Prices(limits, beta=beta, rate=rate, caution=caution, bound=bound)
        self.kl_limit = kl_limit
        self._cost_columns = slice(len(rewards), len(rewards) + len(costs))
        self._costs = torch.zeros(0, len(costs))  # [N of all ranks, C] of the batch
        self._unpriced: dict[str, Any] | None = None  # the batch of the loss under way
        super().__init__(
            model,
            [*rewards, *costs],
            args,
            reward_processing_classes=processing,
            **options,
        )
        if kl_limit is not None and _drops(self._module):
            raise UserError(
                "Dropout makes the measured KL wrong: set disable_dropout=True in "
                "GRPOConfig, or give no kl_limit."
            )

    @property
    def _module(self) -> torch.nn.Module:
        """The model; transformers types it as one that may be missing."""
        return cast(torch.nn.Module, self.model)

    def _calculate_rewards(self, *args: Any, **kwargs: Any) -> Tensor:
        """Scores [N of all ranks, R + C]; keeps the costs and refuses NaN in them."""
        scores = super()._calculate_rewards(*args, **kwargs)
        costs = scores[:, self._cost_columns]
        for column, name in zip(costs.T, self.prices.names, strict=False):
            bad = int((~torch.isfinite(column)).sum())
            if bad:
                raise UserError(
                    f"The cost function '{name}' returned NaN, None or infinity for "
                    f"{bad} of {len(column)} completions: return a number for each."
                )
        self._costs = costs.clone()
        # TRL skips completions that no reward function scored: costs must not hide it.
        others = torch.ones(scores.shape[1], dtype=torch.bool, device=scores.device)
        others[self._cost_columns] = False
        unscored = torch.isnan(scores[:, others]).all(dim=1)
        scores[unscored] = torch.nan
        return scores

    def _generate_and_score_completions(self, inputs: Any) -> dict[str, Any]:
        """TRL's batch with the advantage A - sum_i price_i A_Ci, now or in the loss."""
        output = super()._generate_and_score_completions(inputs)
        logps = output.get("old_per_token_logps")
        rows = torch.arange(
            len(output["advantages"]), device=output["advantages"].device
        )
        pieces = cast(GRPOConfig, self.args).steps_per_generation
        whole = pieces == 1 or not self._module.training
        if self.kl_limit is not None and logps is None:
            if whole:
                return output | {ROWS: rows}  # the loss computes the log-probabilities
            logps = self._sampling_logps(output)
        self._put_prices(output, rows, logps)
        return output

    def compute_loss(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """TRL's loss; a batch without prices gets them on the way."""
        self._unpriced = inputs if ROWS in inputs else None
        return super().compute_loss(model, inputs, *args, **kwargs)

    def _get_per_token_logps_and_entropies(self, *args: Any, **kwargs: Any) -> Any:
        """TRL's log-probabilities; the first of a loss are those of the sampler."""
        found = super()._get_per_token_logps_and_entropies(*args, **kwargs)
        if self._unpriced is not None:
            inputs, self._unpriced = self._unpriced, None
            self._put_prices(inputs, inputs.pop(ROWS), found[0].detach())
        return found

    def _put_prices(
        self, batch: dict[str, Any], rows: Tensor, logps: Tensor | None
    ) -> None:
        """Update the multipliers and mix the advantages of a batch.

        rows: where each row [N of this rank] was when the costs were kept.
        logps: log-probabilities [N, T] of the sampler; unused without `kl_limit`.
        """
        costs = self._costs.double()
        if self.kl_limit is not None:
            kl = torch.zeros(len(rows), dtype=costs.dtype, device=rows.device)
            kl[rows] = self._divergence(batch, cast(Tensor, logps))
            gathered: Any = self.accelerator.gather(kl)
            costs = torch.cat([costs, gathered[:, None]], dim=1)
        training = self._module.training
        group = self.num_generations if training else self.num_generations_eval
        cost_adv = centred(costs, group or 1)
        means = costs.mean(dim=0).tolist()
        stds = (cost_adv**2).mean(dim=0).sqrt().tolist()
        if training:
            self.prices.update(means, stds, len(costs))
        self._log_prices(means, stds, len(costs), "train" if training else "eval")
        mine = cost_adv[self.accelerator.process_index * len(rows) + rows]
        price = mine.new_tensor(self.prices.prices() / self.prices.scale)
        adv = batch["advantages"]
        paid = (mine @ price).to(adv.dtype)
        batch["advantages"] = adv - (paid if adv.dim() == 1 else paid[:, None])

    def _divergence(self, batch: dict[str, Any], logps: Tensor) -> Tensor:
        """Sum over the tokens of log pi/pi_ref [N of this rank], in nats."""
        mask = batch["completion_mask"] * batch.get("tool_mask", 1)
        ratio = (logps - batch["ref_per_token_logps"]).double()
        return torch.where(mask > 0, ratio, 0.0).sum(dim=1)

    @torch.no_grad()
    def _sampling_logps(self, output: dict[str, Any]) -> Tensor:
        """Log probabilities [N, T] under the policy; TRL skips them on-policy."""
        ids = torch.cat([output["prompt_ids"], output["completion_ids"]], dim=1)
        mask = torch.cat([output["prompt_mask"], output["completion_mask"]], dim=1)
        known = inspect.signature(self._get_per_token_logps_and_entropies).parameters
        logps, *_ = self._get_per_token_logps_and_entropies(
            self.model,
            ids,
            mask,
            output["completion_ids"].size(1),
            batch_size=self.args.per_device_train_batch_size,
            **{key: value for key, value in output.items() if key in known},
        )
        return logps

    def _log_prices(
        self, means: Sequence[float], stds: Sequence[float], count: int, mode: str
    ) -> None:
        """What `Prices.rows` has, to whatever TRL reports to."""
        for name, row in self.prices.rows(means, stds, count).items():
            for key, value in row.items():
                self._metrics[mode][f"ecop/{name}/{key}"].append(value)

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        super()._save_checkpoint(model, trial)
        if self.args.should_save:
            folder = Path(self._get_output_dir(trial=trial))
            folder /= f"{PREFIX_CHECKPOINT_DIR}-{self.state.global_step}"
            (folder / STATE_FILE).write_text(self.prices.to_json())

    def _load_optimizer_and_scheduler(self, checkpoint: Any) -> None:
        super()._load_optimizer_and_scheduler(checkpoint)
        if checkpoint is None:
            return
        file = Path(checkpoint) / STATE_FILE
        if not file.is_file():
            raise UserError(
                f"'{checkpoint}' has no {STATE_FILE}: resume from a checkpoint that "
                "EcopTrainer wrote, or start anew."
            )
        self.prices.load_json(file.read_text())


def centred(costs: Tensor, group: int) -> Tensor:
    """Costs [N, C] minus the mean of their group of `group` rows in a row."""
    grouped = costs.view(-1, group, costs.shape[1])
    return (grouped - grouped.mean(dim=1, keepdim=True)).view_as(costs)


def check_seams(trainer: Any = GRPOTrainer) -> None:
    """Refuse a TRL whose methods are no longer the ones that are extended here."""
    missing = [name for name in SEAMS if not hasattr(trainer, name)]
    if missing:
        raise UserError(
            f"This version of TRL has no {', '.join(missing)} in GRPOTrainer: install "
            "a version that ecop[trl] allows."
        )


def _drops(model: torch.nn.Module) -> bool:
    """Return whether a dropout of the model is switched on."""
    layers = (m for m in model.modules() if isinstance(m, torch.nn.Dropout))
    return any(layer.p > 0 for layer in layers)


def _as_list(given: Any) -> list[Any]:
    if given is None:
        return []
    return list(given) if isinstance(given, list | tuple) else [given]


def _limits(
    costs: Sequence[Any], limits: Sequence[float], kl_limit: float | None
) -> dict[str, float]:
    """Limits by the name of the cost; KL last."""
    if len(costs) != len(limits):
        raise UserError(
            f"There are {len(costs)} cost functions but {len(limits)} cost_limits: "
            "give one limit per cost function, in the same order."
        )
    if not costs and kl_limit is None:
        raise UserError(
            "There is nothing to keep: give cost_funcs with cost_limits, or kl_limit."
        )
    names = [_name(cost) for cost in costs] + [KL] * (kl_limit is not None)
    if len(set(names)) < len(names):
        raise UserError(f"The costs {names} need different names: rename a function.")
    values = [*limits, *([] if kl_limit is None else [kl_limit])]
    return dict(zip(names, values, strict=True))


def _name(cost: str | PreTrainedModel | Callable[..., Any]) -> str:
    """Return the name under which a cost is logged."""
    if isinstance(cost, str):
        return cost.rstrip("/").split("/")[-1]
    if isinstance(cost, PreTrainedModel):
        return str(cost.config.name_or_path).rstrip("/").split("/")[-1]
    return getattr(cost, "__name__", type(cost).__name__)
