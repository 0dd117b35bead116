"""A language whose best constrained policy is known: a time-dependent bigram.

A sentence has at most H words. The state is the last word, the action the next one;
word 0 ends the sentence (absorbing, free of reward and cost). A reference model
p_h(a|s), the "pretrained" one, gives a policy its divergence in nats per sentence

    KL = sum_h E[log pi_h(a|s) - log p_h(a|s)],

which has a limit D of its own beside the limits d_i of the costs. KL is convex in the
occupancy but not linear, so the linear program does not apply. Duality does: for
multipliers lambda >= 0 and mu > 0

    max_pi  J - lambda.(J_C - d) - mu (KL - D)

is solved by soft dynamic programming backward in h,

    V_h(s) = mu log sum_a p_h(a|s) exp((r - lambda.c)(h,s,a) / mu + V_{h+1}(a) / mu),

whose policy is the only maximiser. The dual is convex and smooth with the gradient
(d - J_C, D - KL); its value bounds the optimum from above whatever the minimiser did.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize

from ecop.errors import UserError
from ecop.exact.cmdp import TabularCMDP, tabular_cmdp
from ecop.exact.values import evaluate_exact, occupancy_of

END = 0
LEAST_PRICE = 1e-3  # of KL: soft dynamic programming divides by it


@dataclass(frozen=True, eq=False)
class LanguageWorld:
    """A tabular CMDP of words, a reference policy and a limit on the KL to it."""

    cmdp: TabularCMDP
    reference: np.ndarray  # [H, S, A], rows of the end word are certain
    kl_limit: float  # nats per sentence

    def __post_init__(self) -> None:
        if not self.kl_limit > 0:
            raise UserError(f"The KL limit must be positive, not {self.kl_limit}.")


class LanguageSolution(NamedTuple):
    """The constrained optimum and its certificate."""

    value: float
    costs: np.ndarray  # [C]
    kl: float
    multipliers: np.ndarray  # [C] reward per cost
    kl_multiplier: float  # reward per nat
    policy: np.ndarray  # [H, S, A]
    gap: float  # the optimum lies at most this much higher


def language_world(
    *,
    horizon: int = 24,
    words: int = 10,
    limits: tuple[float, float] = (0.5, 12.0),
    kl_limit: float = 2.0,
    seed: int = 0,
) -> LanguageWorld:
    """Words that please, two of them unsafe: the limits are unsafe words, length, KL.

    Word i of 1 .. words pleases by i / words, so the two that please most are the
    unsafe ones. The reference prefers words at random, anew at each step, and ends a
    sentence ever more readily; by default it says 11.5 words, 2.4 of them unsafe.
    """
    if words < 3:
        raise UserError(f"The language needs at least 3 words, not {words}.")
    rng = np.random.default_rng(seed)
    size = words + 1
    logits = rng.normal(size=(horizon, size, size))
    logits[:, :, END] = np.linspace(-1.0, 2.0, horizon)[:, None]
    logits[:, END] = np.where(np.arange(size) == END, 0.0, -np.inf)
    reference = _softmax(logits)
    word = np.arange(size)
    alive = (word != END)[:, None]
    transition = np.zeros((size, size, size))
    transition[:, word, word] = 1
    transition[END] = np.eye(size)[END]
    unsafe = word >= words - 1
    cmdp = tabular_cmdp(
        "Language",
        transition=transition,
        reward=np.where(alive, word / words, 0.0),
        costs=np.stack([alive & unsafe, alive & (word != END)]).astype(float),
        initial=np.where(word == END, 0.0, 1 / words),
        limits=limits,
        cost_names=["unsafe", "length"],
        horizon=horizon,
    )
    return LanguageWorld(cmdp, reference, kl_limit)


def language(
    *, horizon: int = 24, words: int = 10, limits: tuple[float, float] = (0.5, 12.0)
) -> TabularCMDP:
    """Return the CMDP of `language_world`, without its limit on the KL."""
    return language_world(horizon=horizon, words=words, limits=limits).cmdp


def divergence(world: LanguageWorld, policy: np.ndarray) -> float:
    """KL of the policy [H, S, A] to the reference, in nats per sentence."""
    occupancy = occupancy_of(world.cmdp, policy)
    visited = occupancy > 0
    with np.errstate(divide="ignore"):
        ratio = np.log(policy[visited]) - np.log(world.reference[visited])
    return float(occupancy[visited] @ ratio)


def soft_response(
    world: LanguageWorld, multipliers: np.ndarray, kl_multiplier: float
) -> tuple[float, np.ndarray]:
    """max_pi J - lambda.J_C - mu KL, and the policy [H, S, A] that reaches it."""
    cmdp = world.cmdp
    signal = cmdp.reward - np.tensordot(multipliers, cmdp.costs, axes=1)
    with np.errstate(divide="ignore"):
        log_reference = np.log(world.reference)
    value = np.zeros(cmdp.states)
    policy = np.zeros_like(world.reference)
    for h in reversed(range(cmdp.horizon)):
        score = log_reference[h]
        score = score + (signal[h] + cmdp.expected_next(h, value)) / kl_multiplier
        top = score.max(axis=-1, keepdims=True)
        weight = np.exp(score - top)
        total = weight.sum(axis=-1, keepdims=True)
        policy[h] = weight / total
        value = kl_multiplier * (top + np.log(total))[:, 0]
    return float(cmdp.initial @ value), policy


def solve_language(world: LanguageWorld) -> LanguageSolution:
    """Return the optimum under all limits, by minimising the dual."""
    limits = np.array([*world.cmdp.limits, world.kl_limit])

    def dual(multipliers: np.ndarray) -> tuple[float, np.ndarray]:
        best, policy = soft_response(world, multipliers[:-1], multipliers[-1])
        _, costs = evaluate_exact(world.cmdp, policy)
        spent = np.array([*costs, divergence(world, policy)])
        return best + float(multipliers @ limits), limits - spent

    count = len(limits) - 1
    found = minimize(
        dual,
        np.array([*np.zeros(count), 1.0]),
        jac=True,
        method="L-BFGS-B",
        bounds=[(0, None)] * count + [(LEAST_PRICE, None)],
        options={"ftol": 1e-15, "gtol": 1e-10, "maxiter": 2000},
    )
    upper, slack = dual(found.x)
    if (slack < -1e-3 * limits).any():
        raise UserError(
            "No policy was found that keeps all limits: raise one of them "
            f"(missed by {-slack.min():.3g})."
        )
    _, policy = soft_response(world, found.x[:-1], found.x[-1])
    value, costs = evaluate_exact(world.cmdp, policy)
    return LanguageSolution(
        value=value,
        costs=costs,
        kl=divergence(world, policy),
        multipliers=found.x[:-1],
        kl_multiplier=float(found.x[-1]),
        policy=policy,
        gap=upper - value,
    )


def _softmax(logits: np.ndarray) -> np.ndarray:
    weight = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return weight / weight.sum(axis=-1, keepdims=True)
