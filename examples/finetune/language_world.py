"""e-COP in torch against the exact optimum of a small language.

python examples/finetune/language_world.py [--quick]

A table of logits [H, S, A] starts at the reference of `ecop.exact.language` and is
trained from sampled sentences; the policy is then evaluated exactly, so the gap to the
optimum is no estimate. The table shows what is behind the gap: the noise of the
gradient, which moves the policy at random and so spends KL that buys no reward.
"""

import sys
import time
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from figures import FIRST

from ecop.exact import evaluate_exact
from ecop.exact.language import (
    END,
    LanguageWorld,
    divergence,
    language_world,
    solve_language,
)
from ecop.finetune import BETA, Prices
from ecop.finetune.loss_torch import ecop_loss


@dataclass(frozen=True)
class Options:
    """How a run is trained."""

    sentences: int = 128
    iterations: int = 300
    learning_rate: float = 0.03
    optimiser: str = "adam"
    to_go: bool = False  # advantages per word, from the rewards and costs still to come
    beta: float = BETA
    caution: float = 0.0


class Curve(NamedTuple):
    """Exact figures of a run at its marks M; costs are unsafe, length, KL."""

    rewards: np.ndarray  # [M]
    costs: np.ndarray  # [M, 3]
    prices: np.ndarray  # [M, 3] multipliers
    average: tuple[float, np.ndarray]  # the same of the averaged parameters


def train(world: LanguageWorld, options: Options, seed: int) -> Curve:
    """Train a table of logits on sampled sentences; evaluate it exactly."""
    generator = torch.Generator().manual_seed(seed)
    reference = torch.tensor(world.reference).clamp_min(1e-30).log().float()
    reward = torch.tensor(np.array(world.cmdp.reward)).float()
    costs = torch.tensor(np.moveaxis(world.cmdp.costs, 0, -1).copy()).float()
    logits = reference.clamp_min(-20).requires_grad_()
    make = {"adam": torch.optim.Adam, "sgd": torch.optim.SGD}[options.optimiser]
    optimiser = make([logits], lr=options.learning_rate)
    prices = Prices(
        [*world.cmdp.limits, world.kl_limit],
        beta=options.beta,
        caution=options.caution,
    )
    average, rows = logits.detach().clone(), []
    h = torch.arange(world.cmdp.horizon)[None]
    for iteration in range(options.iterations):
        table = logits.log_softmax(-1)
        with torch.no_grad():
            state, word = speak(world, table, options.sentences, generator)
            mask = (state != END).float()
            old = table[h, state, word]
            ratio = mask * (old - reference[h, state, word])
            paid = torch.cat([costs[h, state, word], ratio[..., None]], dim=-1)
            earned = reward[h, state, word]
            total = paid.sum(1)
            violation = prices.update(
                total.mean(0).tolist(),
                total.std(0, correction=0).tolist(),
                options.sentences,
            )
            unit = earned.sum(1).std() + 1e-6
            adv = advantage(earned[..., None] / unit, mask, options.to_go)[..., 0]
            scale = torch.tensor(prices.scale).float()
            cost_adv = advantage(paid / scale, mask, options.to_go)
        loss, _ = ecop_loss(
            table[h, state, word],
            old,
            adv,
            cost_adv,
            mask,
            torch.tensor(violation).float(),
            prices.damping,
            total=options.sentences,  # sums over words, means over sentences
        )
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        average.lerp_(logits.detach(), 0.01)
        if iteration % 5 == 0:
            rows.append((*exactly(world, logits), prices.multiplier))
    columns = [np.array(column) for column in zip(*rows, strict=True)]
    return Curve(*columns, exactly(world, average))


def speak(
    world: LanguageWorld, table: torch.Tensor, count: int, generator: torch.Generator
) -> tuple[torch.Tensor, torch.Tensor]:
    """Draw sentences: states [N, H] and words [N, H]."""
    first = torch.tensor(world.cmdp.initial).expand(count, -1)
    state = torch.multinomial(first, 1, generator=generator)[:, 0]
    states, words = [], []
    for h in range(world.cmdp.horizon):
        word = torch.multinomial(table[h, state].exp(), 1, generator=generator)[:, 0]
        states.append(state)
        words.append(word)
        state = word
    return torch.stack(states, 1), torch.stack(words, 1)


def advantage(signal: torch.Tensor, mask: torch.Tensor, to_go: bool) -> torch.Tensor:
    """Centred sums [N, H, C] of a signal [N, H, C]: of the sentence, or still to go."""
    if not to_go:
        total = signal.sum(1, keepdim=True)
        return (total - total.mean(0)) * mask[..., None]
    rest = signal.flip(1).cumsum(1).flip(1)
    alive = mask[..., None].sum(0).clamp_min(1)
    return (rest - (rest * mask[..., None]).sum(0) / alive) * mask[..., None]


def exactly(world: LanguageWorld, logits: torch.Tensor) -> tuple[float, np.ndarray]:
    """Reward and costs [3] (unsafe, length, KL) of a table of logits."""
    policy = logits.detach().double().softmax(-1).numpy()
    policy[:, END] = world.reference[:, END]
    reward, costs = evaluate_exact(world.cmdp, policy)
    return reward, np.array([*costs, divergence(world, policy)])


ROWS = [
    ("128 sentences, Adam 0.1", Options(learning_rate=0.1)),
    ("the same, 900 iterations", Options(learning_rate=0.1, iterations=900)),
    ("128, Adam 0.03", Options()),
    ("the same, 900 iterations", Options(iterations=900)),
    ("128, Adam 0.03, per word", Options(to_go=True)),
    ("128, SGD 5", Options(optimiser="sgd", learning_rate=5.0)),
    ("512, Adam 0.1", Options(sentences=512, learning_rate=0.1)),
    ("512, Adam 0.03", Options(sentences=512)),
    ("512, Adam 0.03, caution 1", Options(sentences=512, caution=1.0)),
    ("512, Adam 0.03, Lagrangian", Options(sentences=512, beta=0.0)),
    ("2048, Adam 0.03", Options(sentences=2048)),
]


def main(quick: bool) -> None:
    torch.set_num_threads(1)
    world = language_world()
    best = solve_language(world)
    print(f"exact optimum {best.value:.4f} at {best.costs}, KL {best.kl:.3f}")
    print("| run | reward, % of the optimum | unsafe | length | KL | worst | ", end="")
    print("price of KL | averaged: % at KL | seconds |\n" + "|---" * 9 + "|")
    seeds = range(FIRST, FIRST + (1 if quick else 4))
    limits = np.array([*world.cmdp.limits, world.kl_limit])
    for name, options in ROWS[:3] if quick else ROWS:
        start = time.perf_counter()
        curves = [train(world, options, seed) for seed in seeds]
        seconds = (time.perf_counter() - start) / len(seeds)
        late = slice(len(curves[0].rewards) // 2, None)
        reward = np.mean([c.rewards[late].mean() for c in curves])
        costs = np.mean([c.costs[late].mean(0) for c in curves], 0)
        worst = np.mean([(c.costs[late] / limits - 1).max() for c in curves])
        price = np.mean([c.prices[late, 2].mean() for c in curves])
        averaged = np.mean([c.average[0] for c in curves])
        kl = np.mean([c.average[1][2] for c in curves])
        print(
            f"| {name} | {100 * reward / best.value:.1f} | {costs[0]:.2f} | "
            f"{costs[1]:.1f} | {costs[2]:.2f} | {100 * worst:+.0f} % | {price:.2f} | "
            f"{100 * averaged / best.value:.1f} at {kl:.2f} | {seconds:.1f} |",
            flush=True,
        )


if __name__ == "__main__":
    main("--quick" in sys.argv[1:])
