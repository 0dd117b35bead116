"""Learning curves of a run, read from its metrics alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

REWARD = "#0b6e99"
COST = "#b3541e"


def plot_metrics(
    metrics: list[dict[str, Any]], cost_names: tuple[str, ...], title: str, file: Path
) -> None:
    """Reward and each cost by iteration: mean over seeds, shaded std, dashed limit.

    Iterations that some seed lacks are left out; costs without a name are counted.
    """
    count = len(metrics[0]["limits"])
    cost_names = (*cost_names, *(f"{i + 1}" for i in range(len(cost_names), count)))
    lines = {
        (m["seed"], m["iteration"]): m for m in metrics if len(m["costs"]) == count
    }
    seeds = sorted({seed for seed, _ in lines})
    every = set.intersection(*({k for s, k in lines if s == seed} for seed in seeds))
    steps = np.array(sorted(every), int)

    def curves(name: str) -> np.ndarray:
        return np.array([[lines[seed, k][name] for k in steps] for seed in seeds])

    costs = curves("costs").reshape(len(seeds), len(steps), count)
    panels = [("episodic reward", curves("reward"), None, REWARD)]
    for i, name in enumerate(cost_names[:count]):
        label = f"episodic cost: {name}"
        panels.append((label, costs[..., i], metrics[0]["limits"][i], COST))
    figure = Figure(figsize=(5.2 * len(panels), 3.8))
    FigureCanvasAgg(figure)
    axes = figure.subplots(1, len(panels), squeeze=False)
    who = f"{len(seeds)} seed" + "s" * (len(seeds) > 1)
    for axis, (label, values, limit, colour) in zip(axes[0], panels, strict=True):
        mean, std = values.mean(axis=0), values.std(axis=0)
        axis.plot(steps, mean, color=colour, label=f"mean of {who}")
        axis.fill_between(
            steps, mean - std, mean + std, color=colour, alpha=0.2, lw=0, label="± std"
        )
        if limit is not None:
            axis.axhline(limit, color="black", ls="--", lw=1, label=f"limit {limit:g}")
        axis.set_xlabel("iteration")
        axis.set_ylabel(label)
        axis.grid(alpha=0.25)
        axis.legend(frameon=False)
    figure.suptitle(title)
    figure.tight_layout()
    figure.savefig(file, dpi=130)
