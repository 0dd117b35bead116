"""Budgets for fine-tuning: e-COP's prices for language and diffusion models.

A completion of at most T tokens and a denoising chain of T steps are episodes with a
finite horizon, so e-COP's damped penalty applies to them as it stands.

| module       | what it is                                            | needs     |
|--------------|-------------------------------------------------------|-----------|
| `prices`     | multipliers, prices and units of the limits           | NumPy     |
| `loss_torch` | e-COP's loss, exact over micro-batches and ranks      | torch     |
| `loss_jax`   | the same numbers                                      | JAX       |
| `trl`        | `EcopTrainer`: TRL's GRPOTrainer with limits          | trl       |
| `diffusion`  | constrained DDPO for a denoiser or a pipeline         | torch     |

This package imports nothing but `prices`, so `import ecop.finetune` needs no torch.
"""

from ecop.finetune.prices import BETA, RATE, Damping, Prices

__all__ = ["BETA", "RATE", "Damping", "Prices"]
