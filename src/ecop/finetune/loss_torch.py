"""e-COP's loss in PyTorch, in the price form: exact over micro-batches and ranks.

A batch in one piece:

    loss, psi = ecop_loss(logp, logp_old, adv, cost_adv, mask, violation, prices)

A batch in parts (micro-batches, ranks) needs psi of the whole before any gradient:

    psi = violation + all_reduce(sum over parts of cost_rise(..., total=total))
    for part in parts:
        loss, _ = ecop_loss(..., psi=psi, total=total)
        loss.backward()

`total` counts the rows of the whole batch times T. While the ratio is still 1, the
rise is zero and psi is the violation, so the first pass can be left out.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor

from ecop.finetune.prices import Damping


def ecop_loss(
    logp: Tensor,
    logp_old: Tensor,
    adv: Tensor,
    cost_adv: Tensor,
    mask: Tensor,
    violation: Tensor,
    prices: Damping,
    clip: float = 0.2,
    *,
    psi: Tensor | None = None,
    total: float | None = None,
) -> tuple[Tensor, Tensor]:
    """Return the loss [] and psi [C] (without a gradient).

    logp, logp_old: log probabilities of the actions [N, T], now and when sampled.
    adv: advantages [N, T]; one per row is [N, 1].
    cost_adv: cost advantages [N, T, C] or [N, 1, C], in the units of `violation`.
    mask: 1 where there is an action [N, T].
    violation: of the whole batch [C].
    prices: multiplier, beta and bound, `Prices.damping`.
    psi: of the whole batch [C], if this is a part of it.
    total: rows times T of the whole batch, if this is a part of it.

    The value is -gain + price . cost; its gradient is that of e-COP's objective
    -gain + sum_i beta/2 max(0, psi_i + lambda_i/beta)^2.
    """
    total = float(mask.numel() if total is None else total)
    change = torch.exp(logp - logp_old)
    bounded = change.clamp(1.0 - clip, 1.0 + clip)
    gain = torch.minimum(change * adv, bounded * adv)
    rise = _rise(change, bounded, cost_adv, mask, total)
    if psi is None:
        psi = rise.detach() + violation
    multiplier = torch.as_tensor(prices.multiplier, dtype=psi.dtype, device=psi.device)
    price = Damping(multiplier, prices.beta, prices.bound).price(psi).detach()
    return -(mask * gain).sum() / total + price @ rise, psi.detach()


def cost_rise(
    logp: Tensor,
    logp_old: Tensor,
    cost_adv: Tensor,
    mask: Tensor,
    clip: float = 0.2,
    *,
    total: float | None = None,
) -> Tensor:
    """Pessimistic change of the costs [C]: mean of max(ratio A_C, clip A_C) - A_C.

    Shapes as in `ecop_loss`. Parts of a batch with the same `total` add up.
    """
    total = float(mask.numel() if total is None else total)
    change = torch.exp(logp - logp_old)
    return _rise(change, change.clamp(1.0 - clip, 1.0 + clip), cost_adv, mask, total)


def _rise(
    change: Tensor, bounded: Tensor, cost_adv: Tensor, mask: Tensor, total: float
) -> Tensor:
    cost = torch.maximum(change[..., None] * cost_adv, bounded[..., None] * cost_adv)
    return (mask[..., None] * (cost - cost_adv)).sum((0, 1)) / total


def all_reduced(x: Tensor) -> Tensor:
    """Sum of x over all ranks; x itself if there is one process."""
    if dist.is_available() and dist.is_initialized():
        x = x.clone()
        dist.all_reduce(x)
    return x
