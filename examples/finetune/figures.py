"""What is shown of several runs: costs, overshoot, and swing with and without noise."""

import numpy as np

FIRST = 200  # seeds of the tables start here; trials of settings had others


def figures(
    costs: np.ndarray, errors: np.ndarray, limits: np.ndarray
) -> dict[str, np.ndarray]:
    """Means over seeds of measured costs [S, C, steps] with standard errors.

    late: costs of the last quarter [C]; worst: the same of the worst seed [C].
    overshoot: largest mean of 10 steps in a row, in % above the limit [C].
    swing: standard deviation over the steps of the last half [C].
    noise: what the swing would be if the policy stood still [C].
    policy: the rest, root of swing^2 - noise^2, the swing of the policy itself [C].
    """
    steps = costs.shape[-1]
    smooth = np.apply_along_axis(np.convolve, -1, costs, np.ones(10) / 10, "valid")
    late = costs[..., -(steps // 4) :].mean(-1)
    variance = costs[..., steps // 2 :].var(-1, ddof=1).mean(0)
    noise = (errors[..., steps // 2 :] ** 2).mean((0, 2))
    return {
        "late": late.mean(0),
        "worst": late.max(0),
        "overshoot": 100 * np.maximum(0, smooth.max(-1) / limits - 1).mean(0),
        "swing": np.sqrt(variance),
        "noise": np.sqrt(noise),
        "policy": np.sqrt(np.maximum(0, variance - noise)),
    }


HEAD = (
    "| method | reward | costs, last quarter | worst seed | overshoot, % | swing | "
    "of it noise | of the policy |\n" + "|---" * 8 + "|"
)


def row(name: str, rewards: list[float], found: dict[str, np.ndarray]) -> str:
    """Return a row of the table; costs are parted by slashes."""
    cells = [f"{np.mean(rewards):.3g} ± {np.std(rewards):.2g}"]
    for key, column in found.items():
        form = ".0f" if key == "overshoot" else ".3g"
        cells.append(" / ".join(format(value, form) for value in column))
    return f"| {name} | " + " | ".join(cells) + " |"
