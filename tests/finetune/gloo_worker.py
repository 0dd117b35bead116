"""One rank of two: its half of the batch in two micro-batches, psi all-reduced."""

import json
import sys
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from batches import BETA, CLIP, MULTIPLIER, N, T, batch

from ecop.finetune import Prices
from ecop.finetune.loss_torch import all_reduced, cost_rise, ecop_loss
from ecop.finetune.prices import Damping


def main(folder: Path, rank: int) -> None:
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=2
    )
    half = slice(rank * N // 2, (rank + 1) * N // 2)
    full = {k: torch.tensor(v) for k, v in batch().items()}
    violation = full.pop("violation")
    mine = {k: v[half] for k, v in full.items()}
    parts = [slice(0, 1), slice(1, N // 2)]
    names = ("logp", "logp_old", "cost_adv", "mask")
    rise = torch.stack(
        [
            cost_rise(*(mine[k][rows] for k in names), clip=CLIP, total=N * T)
            for rows in parts
        ]
    )
    psi = all_reduced(rise.sum(0)) + violation
    damping = Damping(np.array(MULTIPLIER), BETA, np.inf)
    logp = mine.pop("logp").requires_grad_()
    for rows in parts:
        part = {k: v[rows] for k, v in mine.items()}
        loss, _ = ecop_loss(
            logp[rows],
            **part,
            violation=violation,
            prices=damping,
            clip=CLIP,
            psi=psi,
            total=N * T,
        )
        loss.backward()
    assert logp.grad is not None
    # Prices of a batch that is spread over ranks: moments are all-reduced sums.
    cost = mine["cost_adv"].sum(1)
    moments = all_reduced(torch.stack([cost.sum(0), (cost**2).sum(0)])).numpy() / N
    prices = Prices([0.1, 0.1])
    prices.update(moments[0], np.sqrt(moments[1] - moments[0] ** 2), N)
    found = {
        "psi": psi.tolist(),
        "gradient": logp.grad.tolist(),
        "prices": prices.prices().tolist(),
    }
    (folder / f"{rank}.json").write_text(json.dumps(found))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
