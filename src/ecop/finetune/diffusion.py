"""Constrained DDPO: fine-tune a diffusion model for a reward within limits.

A denoising chain x_T, ..., x_0 is an episode of T steps whose policy is a Gaussian at
each step, so log-probabilities, ratios and e-COP's loss are those of any other policy.

| symbol  | here       | meaning                                                      |
|---------|------------|--------------------------------------------------------------|
| abar    | `signal`   | share of the clean image's variance before a step [T + 1]     |
| mu, s   | mean, std  | x_{k+1} ~ N(mu_k(x_k), s_k^2), DDIM's step with `eta`         |
| KL_k    | `kl`       | |mu_k - mu_k,ref|^2 / (2 s_k^2): both are Gaussians           |

The KL of a chain is E[sum_k KL_k(x_k)] and has an exact gradient,

    sum_k E[grad KL_k(x_k)] + E[sum_k grad log p_k(x_{k+1}|x_k) sum_{g>k} KL_g(x_g)]:

the first term is differentiated in closed form, the second is a cost advantage. With
`eta` = 1 the steps are DDPM's. The last step of DDIM is without noise, so std has a
floor, `least_std`.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from ecop.errors import UserError
from ecop.finetune.loss_torch import cost_rise, ecop_loss
from ecop.finetune.prices import BETA, RATE, Damping, Prices

Denoiser = Callable[..., Tensor]  # (x [N, ...], t [N], *condition) -> prediction
Score = Callable[..., Tensor]  # images [N, ...], prompts if there are -> numbers [N]
KL = "kl"


class Schedule(NamedTuple):
    """The steps of a chain, from noise to image."""

    times: Tensor  # [T] what the denoiser is told
    signal: Tensor  # [T + 1] abar before each step, and after the last
    std: Tensor  # [T] noise of each step
    prediction: str = "epsilon"  # or "v_prediction", "sample"
    clip: float = math.inf  # predicted images are cut to [-clip, clip]

    def to(self, device: Any) -> Schedule:
        """Return the same steps on another device."""
        times, signal, std = (x.to(device) for x in self[:3])
        return self._replace(times=times, signal=signal, std=std)

    def mean(self, k: int, x: Tensor, predicted: Tensor) -> Tensor:
        """Return mu_k [N, ...] of DDIM's step k from x [N, ...]."""
        now, after = self.signal[k], self.signal[k + 1]
        if self.prediction == "epsilon":
            noise = predicted
            image = (x - (1 - now).sqrt() * noise) / now.sqrt()
        elif self.prediction == "v_prediction":
            image = now.sqrt() * x - (1 - now).sqrt() * predicted
            noise = now.sqrt() * predicted + (1 - now).sqrt() * x
        else:
            image = predicted
            noise = (x - now.sqrt() * image) / (1 - now).sqrt()
        image = image.clamp(-self.clip, self.clip)
        rest = (1 - after - self.std[k] ** 2).clamp_min(0.0)
        return after.sqrt() * image + rest.sqrt() * noise


def ddim_schedule(
    abar: Tensor,
    steps: int,
    *,
    eta: float = 1.0,
    least_std: float = 0.05,
    prediction: str = "epsilon",
    clip: float = math.inf,
) -> Schedule:
    """Return `steps` evenly spaced steps of a model trained with abar [train steps]."""
    if not 1 <= steps <= len(abar):
        raise UserError(f"steps must lie between 1 and {len(abar)}, not {steps}.")
    gap = len(abar) // steps
    times = torch.arange(steps).flip(0) * gap
    after = torch.cat([abar[times][1:], abar.new_ones(1)])
    signal = torch.cat([abar[times], after[-1:]])
    return _schedule(times, signal, eta, least_std, prediction, clip)


def schedule_of(
    scheduler: Any, steps: int, *, eta: float = 1.0, least_std: float = 0.05
) -> Schedule:
    """Return the steps of a diffusers DDIMScheduler."""
    config = scheduler.config
    if getattr(config, "thresholding", False):
        raise UserError(
            "Dynamic thresholding is not supported: set thresholding=False."
        )
    if config.prediction_type not in ("epsilon", "v_prediction", "sample"):
        raise UserError(f"prediction_type '{config.prediction_type}' is not supported.")
    scheduler.set_timesteps(steps)
    times = scheduler.timesteps.cpu()
    gap = config.num_train_timesteps // steps
    before = times - gap
    abar = scheduler.alphas_cumprod.cpu()
    last = torch.as_tensor(scheduler.final_alpha_cumprod, dtype=abar.dtype)
    after = torch.where(before >= 0, abar[before.clamp_min(0)], last)
    signal = torch.cat([abar[times], after[-1:]])
    clip = config.clip_sample_range if config.clip_sample else math.inf
    return _schedule(times, signal, eta, least_std, config.prediction_type, clip)


def _schedule(
    times: Tensor,
    signal: Tensor,
    eta: float,
    least_std: float,
    prediction: str,
    clip: float,
) -> Schedule:
    if not (eta >= 0 and least_std > 0):
        raise UserError("eta must be zero or more and least_std positive.")
    now, after = signal[:-1], signal[1:]
    variance = (1 - after) / (1 - now) * (1 - now / after)
    std = (eta * variance.clamp_min(0.0).sqrt()).clamp_min(least_std)
    return Schedule(times, signal, std, prediction, clip)


def log_prob(x: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    """Log density [N] of x [N, ...] under N(mean, std^2), summed over pixels."""
    each = -0.5 * ((x - mean) / std) ** 2 - std.log() - 0.5 * math.log(2 * math.pi)
    return each.flatten(1).sum(1)


def step_kl(mean: Tensor, reference: Tensor, std: Tensor) -> Tensor:
    """KL [N] between two Gaussians with the same std, in nats."""
    return ((mean - reference) ** 2).flatten(1).sum(1) / (2 * std**2)


class Chains(NamedTuple):
    """N denoising chains of T steps."""

    path: Tensor  # [T + 1, N, ...] x from noise to image
    logp: Tensor  # [N, T]
    kl: Tensor  # [N, T] of each step to the reference's
    reference: Tensor  # [T, N, ...] the reference's means
    condition: tuple[Tensor, ...]  # each [N, ...]; what the denoiser is told beside

    @property
    def images(self) -> Tensor:
        """The last x [N, ...]."""
        return self.path[-1]


@torch.no_grad()
def rollout(
    denoiser: Denoiser,
    reference: Denoiser,
    schedule: Schedule,
    shape: tuple[int, ...],
    generator: torch.Generator | None = None,
    condition: tuple[Tensor, ...] = (),
) -> Chains:
    """Draw chains of `shape` [N, ...] with the denoiser, called with `condition`."""
    device = schedule.std.device
    x = torch.randn(shape, generator=generator, device=device)
    path, logps, kls, means = [x], [], [], []
    for k in range(len(schedule.times)):
        t = schedule.times[k].expand(shape[0])
        mean = schedule.mean(k, x, denoiser(x, t, *condition))
        other = schedule.mean(k, x, reference(x, t, *condition))
        std = schedule.std[k]
        noise = torch.randn(shape, generator=generator, device=device)
        following = mean + std * noise
        logps.append(log_prob(following, mean, std))
        kls.append(step_kl(mean, other, std))
        means.append(other)
        x = following
        path.append(x)
    return Chains(
        torch.stack(path),
        torch.stack(logps, 1),
        torch.stack(kls, 1),
        torch.stack(means),
        condition,
    )


def kl_to_come(kl: Tensor, groups: int = 1) -> Tensor:
    """sum_{g>k} KL_g minus its mean over the chains of a group, [N, T] from [N, T]."""
    return centred(kl.flip(1).cumsum(1).flip(1) - kl, groups)


def centred(values: Tensor, groups: int) -> Tensor:
    """Values [N, ...] minus the mean of their group; groups are rows in a row."""
    grouped = values.unflatten(0, (groups, -1))
    return (grouped - grouped.mean(1, keepdim=True)).flatten(0, 1)


@dataclass
class EcopDDPO:
    """DDPO with upper limits on the mean of each cost and of the chain's KL.

    denoiser: the module that is trained, called as denoiser(x, t, *condition).
    reference: a frozen copy of where it started.
    schedule: the steps of a chain.
    reward: images [N, ...] -> rewards [N]; with prompts, (images, prompts) -> [N].
    costs: name -> images [N, ...] -> costs [N]; with prompts as the reward.
    limits: name -> upper limit of the mean cost; "kl" in nats per chain.
    optimiser: over the denoiser's parameters.
    beta, rate, caution, bound: as in `Prices`.
    clip: the ratio is clipped to 1 +- this.
    epochs: gradient steps per batch; from the second on psi is measured anew.
    max_norm: gradients are shortened to this norm.
    encode: prompts (N texts) -> the denoiser's condition, if it is told prompts.
    decode: the end of a chain -> images that reward and costs see.
    """

    denoiser: nn.Module
    reference: nn.Module
    schedule: Schedule
    reward: Score
    costs: Mapping[str, Score]
    limits: Mapping[str, float]
    optimiser: torch.optim.Optimizer
    beta: float = BETA
    rate: float = RATE
    caution: float = 0.0
    bound: float = 100.0
    clip: float = 0.2
    epochs: int = 1
    max_norm: float = 1.0
    encode: Callable[[list[str]], tuple[Tensor, ...]] | None = None
    decode: Callable[[Tensor], Tensor] | None = None

    def __post_init__(self) -> None:
        missing = set(self.costs) - set(self.limits)
        unknown = set(self.limits) - set(self.costs) - {KL}
        if missing or unknown:
            raise UserError(
                "Give one limit per cost, by the same name ('kl' is known): "
                f"{sorted(missing | unknown)} has only one of the two."
            )
        if KL in self.costs:
            raise UserError("'kl' is measured by itself: give it a limit, not a cost.")
        if self.epochs < 1:
            raise UserError(f"epochs must be 1 or more, not {self.epochs}.")
        order = [*self.costs, *([KL] if KL in self.limits else [])]
        self.prices = Prices(
            {name: self.limits[name] for name in order},
            beta=self.beta,
            rate=self.rate,
            caution=self.caution,
            bound=self.bound,
        )
        self.reference.requires_grad_(False)

    @classmethod
    def from_pipeline(
        cls,
        pipeline: Any,
        *,
        steps: int,
        optimiser: Callable[[Any], torch.optim.Optimizer],
        eta: float = 1.0,
        least_std: float = 0.05,
        guidance: float = 1.0,
        **options: Any,
    ) -> EcopDDPO:
        """Train the UNet of a diffusers pipeline in place.

        pipeline: one with `unet` and a DDIMScheduler, such as DDIMPipeline, or with a
            text encoder and a VAE beside, such as StableDiffusionPipeline.
        steps: of a chain.
        optimiser: parameters -> optimiser.
        guidance: scale of classifier-free guidance for prompts; 1 is none.
        options: what `EcopDDPO` takes beside.
        """
        schedule = schedule_of(pipeline.scheduler, steps, eta=eta, least_std=least_std)
        if getattr(pipeline, "text_encoder", None) is None:
            denoiser = UNetDenoiser(pipeline.unet)
        else:
            denoiser = PromptedDenoiser(pipeline.unet, guidance)
            options = {
                "encode": partial(encode_prompts, pipeline, guidance > 1.0),
                "decode": partial(decode_latents, pipeline.vae),
            } | options
        return cls(
            denoiser=denoiser,
            reference=copy.deepcopy(denoiser).eval(),
            schedule=schedule.to(pipeline.unet.device),
            optimiser=optimiser(denoiser.parameters()),
            **options,
        )

    def step(
        self,
        shape: tuple[int, ...],
        generator: torch.Generator | None = None,
        prompts: Sequence[str] = (),
    ) -> dict[str, Any]:
        """Draw chains of `shape` [N, ...], update prices and denoiser once.

        prompts: each has N / len(prompts) chains, and its own baseline.
        """
        groups = len(prompts) or 1
        texts = self._repeated(prompts, shape[0])
        condition = self.encode(texts) if self.encode else ()
        chains = rollout(
            self.denoiser, self.reference, self.schedule, shape, generator, condition
        )
        with torch.no_grad():
            images = self.decode(chains.images) if self.decode else chains.images
        told = (texts,) if prompts else ()
        reward = scored("reward", self.reward, images, *told)
        costs = self.costs.items()
        totals = [scored(name, cost, images, *told) for name, cost in costs]
        adv, cost_adv, violation, measured = self._advantages(
            chains, reward, totals, groups
        )
        for epoch in range(self.epochs):
            psi = violation
            if epoch:  # the ratio is no longer 1
                psi = psi + self._rise(chains, cost_adv)
            self._descend(chains, adv, cost_adv, violation, psi)
        return {
            "reward": reward.mean().item(),
            "kl": chains.kl.sum(1).mean().item(),
            "constraints": self.prices.rows(*measured),
            "images": images,
        }

    def _repeated(self, prompts: Sequence[str], count: int) -> list[str]:
        """Each prompt as often as it has chains; refuse what does not fit."""
        if isinstance(prompts, str):
            raise UserError("prompts is a list of texts: put the one text in a list.")
        if bool(prompts) != (self.encode is not None):
            raise UserError(
                "Give prompts if, and only if, the denoiser is told them (`encode`)."
            )
        each = count // (len(prompts) or 1)
        if prompts and (each < 2 or each * len(prompts) != count):
            raise UserError(
                f"{count} chains cannot be shared by {len(prompts)} prompts: give each "
                "prompt the same number, two or more."
            )
        return [prompt for prompt in prompts for _ in range(each)]

    def _advantages(
        self, chains: Chains, reward: Tensor, totals: list[Tensor], groups: int = 1
    ) -> tuple[Tensor, Tensor, Tensor, tuple[list[float], list[float], int]]:
        """A [N, 1], A_C [N, T, C] and violation [C]; means, deviations and count."""
        count, steps = chains.logp.shape
        each = [centred(total, groups)[:, None].expand(-1, steps) for total in totals]
        if KL in self.limits:
            totals = [*totals, chains.kl.sum(1)]
            each.append(kl_to_come(chains.kl, groups))
        total = torch.stack(totals, 1) if totals else reward.new_zeros(count, 0)
        means = total.mean(0).tolist()
        stds = centred(total, groups).std(0, correction=0).tolist()
        violation = reward.new_tensor(self.prices.update(means, stds, count))
        adv = centred(reward, groups)
        adv = adv / (adv.std() + 1e-6)
        scale = reward.new_tensor(self.prices.scale)
        cost_adv = torch.stack(each, -1) if each else total[:, None]
        return adv[:, None], cost_adv / scale, violation, (means, stds, count)

    def _descend(
        self,
        chains: Chains,
        adv: Tensor,
        cost_adv: Tensor,
        violation: Tensor,
        psi: Tensor,
    ) -> None:
        """One gradient step; the chain's steps are micro-batches with one price."""
        count, steps = chains.logp.shape
        prices = self.prices.damping
        self.optimiser.zero_grad()
        for k in range(steps):
            logp, kl = self._step_terms(chains, k)
            loss, _ = ecop_loss(
                logp[:, None],
                chains.logp[:, k : k + 1],
                adv,
                cost_adv[:, k : k + 1],
                torch.ones_like(adv),
                violation,
                prices,
                self.clip,
                psi=psi,
                total=count,
            )
            loss = loss + self._kl_price(prices, psi) * kl.sum() / count
            loss.backward()
        nn.utils.clip_grad_norm_(self.denoiser.parameters(), self.max_norm)
        self.optimiser.step()

    @torch.no_grad()
    def _rise(self, chains: Chains, cost_adv: Tensor) -> Tensor:
        """Predicted change [C] of the costs since the chains were drawn."""
        count, steps = chains.logp.shape
        rise = cost_adv.new_zeros(cost_adv.shape[-1])
        for k in range(steps):
            logp, kl = self._step_terms(chains, k)
            rise += cost_rise(
                logp[:, None],
                chains.logp[:, k : k + 1],
                cost_adv[:, k : k + 1],
                cost_adv.new_ones(count, 1),
                self.clip,
                total=count,
            )
            if KL in self.limits:
                change = (kl - chains.kl[:, k]).mean()
                rise[-1] += change / float(self.prices.scale[-1])
        return rise

    def _step_terms(self, chains: Chains, k: int) -> tuple[Tensor, Tensor]:
        """Log probability [N] of step k and its KL [N], under the denoiser now."""
        x = chains.path[k]
        t = self.schedule.times[k].expand(len(x))
        predicted = self.denoiser(x, t, *chains.condition)
        mean, std = self.schedule.mean(k, x, predicted), self.schedule.std[k]
        return (
            log_prob(chains.path[k + 1], mean, std),
            step_kl(mean, chains.reference[k], std),
        )

    def _kl_price(self, prices: Damping, psi: Tensor) -> float:
        """Price of a nat; 0 without a limit on the KL."""
        if KL not in self.limits:
            return 0.0
        price = prices.price(np.asarray(psi.tolist()))
        return float(price[-1] / self.prices.scale[-1])


def scored(name: str, score: Score, images: Tensor, *prompts: list[str]) -> Tensor:
    """Return the numbers [N] of a reward or cost; refuse what is not one per image."""
    with torch.no_grad():
        values = torch.as_tensor(score(images, *prompts), dtype=images.dtype)
        values = values.to(images.device)
    if values.shape != (len(images),):
        raise UserError(
            f"'{name}' returned shape {list(values.shape)}: return one number for each "
            f"of the {len(images)} images."
        )
    if not torch.isfinite(values).all():
        raise UserError(f"'{name}' returned NaN or infinity: return finite numbers.")
    return values


class UNetDenoiser(nn.Module):
    """A diffusers UNet as a denoiser: the tensor instead of the output object."""

    def __init__(self, unet: nn.Module) -> None:
        super().__init__()
        self.unet = unet

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        """Return the prediction [N, ...]."""
        return self.unet(x, t).sample


class PromptedDenoiser(nn.Module):
    """A UNet2DConditionModel as a denoiser, with classifier-free guidance."""

    def __init__(self, unet: nn.Module, guidance: float = 1.0) -> None:
        super().__init__()
        if getattr(unet, "config", {}).get("addition_embed_type") is not None:
            raise UserError(
                "UNets with added conditions, as SDXL's, are not supported."
            )
        if not guidance >= 1.0:
            raise UserError(f"guidance must be 1 or more, not {guidance}.")
        self.unet, self.guidance = unet, guidance

    def forward(self, x: Tensor, t: Tensor, text: Tensor, *empty: Tensor) -> Tensor:
        """Return the prediction [N, ...] for embeddings of text and empty prompt."""
        told = self.unet(x, t, encoder_hidden_states=text).sample
        if not empty:
            return told
        free = self.unet(x, t, encoder_hidden_states=empty[0]).sample
        return free + self.guidance * (told - free)


@torch.no_grad()
def encode_prompts(
    pipeline: Any, guided: bool, prompts: list[str]
) -> tuple[Tensor, ...]:
    """Embeddings [N, L, D] of prompts, and of the empty prompt if `guided`."""
    found = pipeline.encode_prompt(prompts, pipeline.unet.device, 1, guided)
    return tuple(found[:2]) if guided else (found[0],)


def decode_latents(vae: Any, latents: Tensor) -> Tensor:
    """Images [N, 3, ...] in -1 .. 1 of the latents of a VAE."""
    return vae.decode(latents / vae.config.scaling_factor).sample
