"""e-COP's loss in torch: against loops, against JAX, in parts and over two ranks."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from batches import (
    BETA,
    CLIP,
    MULTIPLIER,
    N,
    T,
    batch,
    slow_gain_and_psi,
    slow_gradient,
)

from ecop.finetune import loss_jax
from ecop.finetune.prices import Damping

torch = pytest.importorskip("torch", reason="needs ecop[finetune]: torch is missing")

DAMPING = Damping(np.array(MULTIPLIER), BETA, np.inf)


def tensors(dtype: Any = np.float32) -> dict[str, Any]:
    return {k: torch.tensor(v) for k, v in batch(dtype=dtype).items()}


def value_and_gradient(b):
    from ecop.finetune.loss_torch import ecop_loss

    logp = b["logp"].clone().requires_grad_()
    loss, psi = ecop_loss(**(b | {"logp": logp}), prices=DAMPING, clip=CLIP)
    loss.backward()
    return loss.item(), psi, logp.grad


def test_value_and_gradient_against_loops():
    loss, psi, gradient = value_and_gradient(tensors())
    gain, slow = slow_gain_and_psi(batch())
    price = np.maximum(0, np.array(MULTIPLIER) + BETA * slow)
    expected = -gain + price @ (slow - batch()["violation"])
    assert loss == pytest.approx(expected, abs=1e-6)
    np.testing.assert_allclose(psi, slow, atol=1e-6)
    np.testing.assert_allclose(gradient, slow_gradient(batch()), atol=1e-6)


@pytest.mark.parametrize("seed", range(5))
def test_the_same_numbers_in_jax(seed):
    from ecop.finetune.loss_torch import ecop_loss

    b = batch(seed)
    logp = torch.tensor(b["logp"]).requires_grad_()
    rest = {k: torch.tensor(v) for k, v in b.items() if k != "logp"}
    loss, psi = ecop_loss(logp, **rest, prices=DAMPING, clip=CLIP)
    loss.backward()

    def jax_loss(logp):
        rest: dict[str, Any] = {k: jnp.asarray(v) for k, v in b.items() if k != "logp"}
        return loss_jax.ecop_loss(logp, **rest, prices=DAMPING, clip=CLIP)

    (other, other_psi), gradient = jax.value_and_grad(jax_loss, has_aux=True)(
        jnp.asarray(b["logp"])
    )
    np.testing.assert_allclose(loss.detach(), other, atol=1e-6)
    np.testing.assert_allclose(psi, other_psi, atol=1e-6)
    np.testing.assert_allclose(logp.grad, gradient, atol=1e-6)


def test_on_policy_it_is_a_mixed_advantage():
    from ecop.finetune.loss_torch import ecop_loss

    b = tensors(np.float64)
    logp = b["logp_old"].clone().requires_grad_()
    loss, psi = ecop_loss(**(b | {"logp": logp}), prices=DAMPING, clip=CLIP)
    loss.backward()
    torch.testing.assert_close(psi, b["violation"])
    multiplier = torch.tensor(MULTIPLIER, dtype=torch.float64)
    price = (multiplier + BETA * b["violation"]).clamp(min=0)
    mixed = b["adv"] - b["cost_adv"] @ price
    torch.testing.assert_close(logp.grad, -b["mask"] * mixed / (N * T))


def test_gradient_accumulation_is_exact():
    from ecop.finetune.loss_torch import cost_rise, ecop_loss

    b = tensors()
    _, _, whole = value_and_gradient(b)
    parts = [slice(0, 1), slice(1, 4), slice(4, N)]
    rise = sum(
        cost_rise(
            *(b[k][rows] for k in ("logp", "logp_old", "cost_adv", "mask")),
            clip=CLIP,
            total=N * T,
        )
        for rows in parts
    )
    psi = rise + b["violation"]

    def accumulated(**options):
        logp = b["logp"].clone().requires_grad_()
        for rows in parts:
            part = {k: v[rows] for k, v in b.items() if k not in ("violation", "logp")}
            loss, _ = ecop_loss(
                logp[rows],
                **part,
                violation=b["violation"],
                prices=DAMPING,
                clip=CLIP,
                total=N * T,
                **options,
            )
            loss.backward()
        return logp.grad

    exact = (accumulated(psi=psi) - whole).abs().max()
    per_part = (accumulated() - whole).abs().max()
    assert exact < 1e-7
    assert per_part > 1e-4  # a penalty of its own per micro-batch is another loss


def test_two_processes_give_the_gradient_of_one(tmp_path):
    worker = Path(__file__).with_name("gloo_worker.py")
    env = os.environ | {"OMP_NUM_THREADS": "1"}
    started = [
        subprocess.Popen(
            [sys.executable, worker, str(tmp_path), str(rank)],
            env=env,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    for process in started:
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors
    ranks = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2)]
    assert ranks[0]["psi"] == ranks[1]["psi"]
    assert ranks[0]["prices"] == ranks[1]["prices"]
    _, psi, whole = value_and_gradient(tensors())
    np.testing.assert_allclose(ranks[0]["psi"], psi, atol=1e-6)
    both = np.concatenate([rank["gradient"] for rank in ranks])
    np.testing.assert_allclose(both, whole, atol=1e-7)
