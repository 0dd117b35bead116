"""Budgets for a diffusion model: DDPO, a Lagrangian and e-COP on 8x8 digits.

python examples/finetune/digits_budgets.py [--steps 150] [--out digits_budgets]
python examples/finetune/digits_seeds.py                 # table over seeds

A small denoiser learns scikit-learn's digits and is then rewarded for ink. DDPO paints
every pixel. The budgets: at most 10 % of the images look like an 8 (a classifier says
so), and 4 nats per chain to the model before. Writes curves and pictures of samples.
"""

import argparse
import copy
import json
import time
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import torch
from figures import FIRST
from matplotlib import pyplot as plt
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from torch import nn

from ecop.finetune.diffusion import EcopDDPO, ddim_schedule, rollout

STEPS, SHAPE, UNSAFE = 20, (128, 1, 8, 8), 8
FRESH = 2048  # images that measure the unsafe share apart from training
ABAR = torch.cumprod(1 - torch.linspace(1e-3, 0.1, 100), 0)
LIMITS = {"unsafe": 0.10, "kl": 4.0}
NEVER = dict.fromkeys(LIMITS, 1e9)
ARMS: dict[str, dict[str, Any]] = {
    "DDPO": {"limits": NEVER},
    "Lagrangian 0.3": {"beta": 0.0, "rate": 0.3},
    "e-COP": {},
}


class Denoiser(nn.Module):
    """Two hidden layers over pixels and time; predicts the noise."""

    def __init__(self) -> None:
        super().__init__()
        self.time = nn.Embedding(len(ABAR), 64)
        self.layers = nn.Sequential(
            nn.Linear(128, 256), nn.SiLU(), nn.Linear(256, 256), nn.SiLU()
        )
        self.out = nn.Linear(256, 64)

    def forward(self, x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        """Return the noise [N, 1, 8, 8] in x at times t [N]."""
        hidden = self.layers(torch.cat([x.flatten(1), self.time(t)], dim=1))
        return self.out(hidden).view_as(x)


def pretrain(digits: torch.Tensor, steps: int = 3000) -> Denoiser:
    """Train a denoiser on digits [N, 1, 8, 8] in -1 .. 1."""
    torch.manual_seed(0)
    denoiser = Denoiser()
    optimiser = torch.optim.Adam(denoiser.parameters(), lr=1e-3)
    for _ in range(steps):
        clean = digits[torch.randint(len(digits), (128,))]
        t = torch.randint(len(ABAR), (128,))
        noise = torch.randn_like(clean)
        abar = ABAR[t].view(-1, 1, 1, 1)
        noisy = abar.sqrt() * clean + (1 - abar).sqrt() * noise
        loss = ((denoiser(noisy, t) - noise) ** 2).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return denoiser


def ink(images: torch.Tensor) -> torch.Tensor:
    """Reward [N]: mean of the pixels, cut to what can be printed."""
    return images.clamp(-1, 1).flatten(1).mean(1)


def looks_like(classifier: LogisticRegression, digit: int) -> Any:
    """Return a cost: 1 for each image that the classifier takes for the digit."""

    def cost(images: torch.Tensor) -> torch.Tensor:
        found = classifier.predict(images.clamp(-1, 1).flatten(1).numpy())
        return torch.tensor((found == digit).astype(np.float32))

    return cost


def train(
    start: Denoiser,
    cost: Any,
    *,
    steps: int,
    seed: int,
    limits: dict[str, float] = LIMITS,
    **options: float,
) -> tuple[dict[str, list[float]], torch.Tensor, float]:
    """Fine-tune; return figures of every step, images and seconds per step."""
    denoiser = copy.deepcopy(start)
    trainer = EcopDDPO(
        denoiser=denoiser,
        reference=copy.deepcopy(start),
        schedule=ddim_schedule(ABAR, STEPS, least_std=0.1),
        reward=ink,
        costs={"unsafe": cost},
        limits=limits,
        optimiser=torch.optim.Adam(denoiser.parameters(), lr=5e-5),
        **options,
    )
    generator = torch.Generator().manual_seed(seed)
    apart = torch.Generator().manual_seed(seed + 1_000_000)
    rows, fresh, seconds = [], [], 0.0
    for step in range(steps):
        begun = time.perf_counter()
        rows.append(trainer.step(SHAPE, generator))
        seconds += (time.perf_counter() - begun) / steps
        if step >= steps // 2 and step % 10 == 0:
            shape = (FRESH, *SHAPE[1:])
            drawn = rollout(denoiser, denoiser, trainer.schedule, shape, apart)
            fresh.append(float(cost(drawn.images).mean()))
    course = {"reward": [row["reward"] for row in rows], "fresh": fresh}
    for name in LIMITS:
        figures_of = [row["constraints"][name] for row in rows]
        course[name] = [each["cost"] for each in figures_of]
        course[f"{name} error"] = [each["error"] for each in figures_of]
    return course, rows[-1]["images"], seconds


def draw(courses: dict, images: dict, file: Path) -> None:
    """Curves above, samples below."""
    figure = plt.figure(figsize=(11, 5.6), layout="constrained")
    above, below = figure.subfigures(2, 1, height_ratios=(1.2, 1))
    axes = above.subplots(1, 3)
    colours = ("#999999", "#d08000", "#0060c0")
    titles = {
        "reward": "reward: ink",
        "unsafe": "share of images that look like an 8",
        "kl": "KL to the model before, nats",
    }
    for (key, title), axis in zip(titles.items(), axes, strict=True):
        for name, colour in zip(ARMS, colours, strict=True):
            axis.plot(courses[name][key], color=colour, label=name, lw=1.1)
        if key in LIMITS:
            axis.axhline(LIMITS[key], color="black", ls="--", lw=0.8)
        axis.set(title=title, xlabel="step")
    axes[2].set_yscale("symlog", linthresh=10)
    axes[2].set_ylim(0, None)
    axes[0].legend(frameon=False, fontsize=8)
    names = ["before", *ARMS]
    for name, axis in zip(names, below.subplots(1, len(names)), strict=True):
        tiles = images[name][:25, 0].clamp(-1, 1).view(5, 5, 8, 8)
        tiles = nn.functional.pad(tiles, (0, 1, 0, 1), value=-1.0)
        axis.imshow(tiles.permute(0, 2, 1, 3).reshape(45, 45), cmap="gray")
        axis.set(title=name)
        axis.axis("off")
    figure.savefig(file, dpi=120)


def prepared() -> tuple[Denoiser, Any]:
    """Return the denoiser to start from and the unsafe cost."""
    data = load_digits()
    pixels = data.data / 8.0 - 1.0
    classifier = LogisticRegression(max_iter=2000).fit(pixels, data.target)
    start = pretrain(torch.tensor(pixels).float().view(-1, 1, 8, 8))
    return start, looks_like(classifier, UNSAFE)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--out", type=Path, default=Path("digits_budgets"))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    start, cost = prepared()
    courses, images = {}, {}
    _, images["before"], _ = train(start, cost, steps=1, seed=FIRST, **ARMS["DDPO"])
    for arm, settings in ARMS.items():
        courses[arm], images[arm], seconds = train(
            start, cost, steps=options.steps, seed=FIRST, **settings
        )
        late = slice(-(options.steps // 4), None)
        means = {key: float(np.mean(v[late])) for key, v in courses[arm].items()}
        print(f"{arm} ({seconds:.2f} s per step), last quarter: ", end="")
        line = "reward {reward:.3f}, unsafe {unsafe:.3f}, KL {kl:.2f}"
        print(line.format(**means), flush=True)
    (options.out / "courses.json").write_text(json.dumps(courses))
    draw(courses, images, options.out / "digits_budgets.png")
    print(options.out / "digits_budgets.png")


if __name__ == "__main__":
    matplotlib.use("Agg")
    torch.set_num_threads(1)
    main()
