"""Named tabular problems with known optima, and random ones.

Each function takes the horizon and the limit, with the defaults of the table in
docs/exact.md. Where a public benchmark left something open, the reading is the one
that reproduces its published optimum; the docstring says which.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy import sparse

from ecop.errors import UserError
from ecop.exact.cmdp import TabularCMDP, tabular_cmdp
from ecop.exact.values import (
    backward_induction,
    best_response,
    deterministic,
    evaluate_exact,
)

MOVES = ((-1, 0), (0, 1), (1, 0), (0, -1))
SLIP = 0.1  # share of the moves that go in a direction drawn from all four


def factored_ring(*, horizon: int = 6, limit: float = 3.0) -> TabularCMDP:
    """Three states in a ring: moving on from s earns (s + 1) / 3 and costs 1."""
    state = np.arange(3)
    transition = np.zeros((3, 2, 3))
    transition[state, 0, state] = 1
    transition[state, 1, (state + 1) % 3] = 1
    reward = np.stack([np.zeros(3), (state + 1) / 3], axis=-1)
    cost = np.stack([np.zeros(3), np.ones(3)], axis=-1)
    return tabular_cmdp(
        "FactoredRing",
        transition=transition,
        reward=reward,
        costs=cost[None],
        limits=[limit],
        cost_names=["moves"],
        horizon=horizon,
    )


def media_streaming(
    *, horizon: int = 10, limit: float = 5.0, levels: int = 10
) -> TabularCMDP:
    """Keep a media buffer from running dry with a limited share of fast downloads.

    Per step a packet arrives with probability .9 (action 0, fast, cost 1) or .1
    (action 1, slow) and one is played with probability .8. The published objective
    minimises the steps with an empty buffer, so the reward is minus that indicator.
    """
    played = 0.8
    level = np.arange(levels)
    transition = np.zeros((levels, 2, levels))
    for action, arrives in enumerate((0.9, 0.1)):
        stay = arrives * played + (1 - arrives) * (1 - played)
        transition[level, action, level] += stay
        up, down = np.minimum(level + 1, levels - 1), np.maximum(level - 1, 0)
        transition[level, action, up] += arrives * (1 - played)
        transition[level, action, down] += (1 - arrives) * played
    return tabular_cmdp(
        "MediaStreaming",
        transition=transition,
        reward=-np.repeat((level == 0)[:, None], 2, axis=1).astype(float),
        costs=np.tile([1.0, 0.0], (1, levels, 1)),
        limits=[limit],
        cost_names=["fast"],
        horizon=horizon,
    )


def inventory(*, horizon: int = 7, limit: float = 3.5) -> TabularCMDP:
    """Order stock before a random demand; earn by sales, pay for orders and storage.

    The published problem allows an order a only up to the free space 5 - s. Here all
    six actions exist everywhere and a larger order is cut to the free space: it copies
    a feasible action, so the optimum is unchanged. As in the public code, the gain of a
    demand d <= s + a is weighted with P(s + a - d | s, a), which for d = s + a is the
    probability of selling out. Reward and cost are divided by their largest entries.
    """
    demand = np.array([0.3, 0.2, 0.2, 0.2, 0.05, 0.05])
    size = len(demand)
    transition = np.zeros((size, size, size))
    gain, cost = np.zeros((size, size)), np.zeros((size, size))
    for stock, action in np.ndindex(size, size):
        order = min(action, size - 1 - stock)
        shelf = stock + order
        left = np.maximum(shelf - np.arange(size), 0)
        np.add.at(transition[stock, action], left, demand)
        sold = np.arange(shelf + 1)
        gain[stock, action] = 0.08 * sold @ transition[stock, action, shelf - sold]
        cost[stock, action] = (4 + 2 * order) * (order > 0) + shelf
    return tabular_cmdp(
        "Inventory",
        transition=transition,
        reward=gain / gain.max(),
        costs=cost[None] / cost.max(),
        limits=[limit],
        cost_names=["spending"],
        horizon=horizon,
    )


def mars_rover(
    *, horizon: int = 30, limit: float = 0.3, rock_reward: float = 1.0
) -> TabularCMDP:
    """Drive over an 8x8 map from the top left to the bottom right, past rocks.

    Goal and rocks are absorbing: entering the goal earns 1, and each later step there
    1/H; rocks cost the same amounts. In the public code rocks also *earn* like the
    goal, which is what makes the constraint bind; `rock_reward=0` switches it off.
    """
    size, goal = 8, (7, 7)
    rocks = {(2, 3), (2, 6), (5, 1), (5, 2), (6, 1), (6, 4), (6, 6), (7, 3)}
    cells = [(row, column) for row in range(size) for column in range(size)]
    index = {cell: s for s, cell in enumerate(cells)}
    transition = np.zeros((len(cells), len(MOVES), len(cells)))
    entered = np.zeros((2, len(cells), len(MOVES)))  # goal, rocks
    for s, cell in enumerate(cells):
        if cell == goal or cell in rocks:
            transition[s, :, s] = 1
            entered[int(cell in rocks), s] = 1 / horizon
            continue
        for action, (move, probability) in _slipping_moves():
            following = (cell[0] + move[0], cell[1] + move[1])
            following = following if following in index else cell
            transition[s, action, index[following]] += probability
            entered[0, s, action] += probability * (following == goal)
            entered[1, s, action] += probability * (following in rocks)
    return tabular_cmdp(
        "MarsRover",
        transition=transition,
        reward=entered[0] + rock_reward * entered[1],
        costs=entered[1:],
        limits=[limit],
        cost_names=["rocks"],
        horizon=horizon,
    )


def box(*, horizon: int = 30, limit: float = 0.1) -> TabularCMDP:
    """Walk to the goal without pushing the box where it cannot be pulled back.

    Entering the goal earns 1, and each later step there 1/H (it is absorbing). Each
    step after which the box touches two walls or more costs 1/H, at the goal too. The
    agent pushes the box one cell; a blocked push or a wall leaves everything in place.
    States are pairs (agent, box) of the 11 free cells, coinciding ones included.
    """
    plan = ("######", "# A###", "# X  #", "##   #", "### G#", "######")
    place = {m: (r, c) for r, row in enumerate(plan) for c, m in enumerate(row)}
    free = [(r, c) for r, row in enumerate(plan) for c, m in enumerate(row) if m != "#"]
    index = {cell: i for i, cell in enumerate(free)}

    def shifted(cell: tuple[int, int], move: tuple[int, int]) -> tuple[int, int]:
        return cell[0] + move[0], cell[1] + move[1]

    def cornered(cell: tuple[int, int]) -> bool:
        return sum(shifted(cell, move) not in index for move in MOVES) >= 2

    def pushed(
        agent: tuple[int, int], crate: tuple[int, int], move: tuple[int, int]
    ) -> tuple[tuple[int, int], tuple[int, int]]:
        target = shifted(agent, move)
        after = shifted(crate, move) if target == crate else crate
        blocked = target not in index or after not in index
        return (agent, crate) if blocked else (target, after)

    def number(agent: tuple[int, int], crate: tuple[int, int]) -> int:
        return index[agent] * len(free) + index[crate]

    states = len(free) ** 2
    transition = np.zeros((states, len(MOVES), states))
    reward, cost = np.zeros((states, len(MOVES))), np.zeros((states, len(MOVES)))
    for agent in free:
        for crate in free:
            s = number(agent, crate)
            if agent == place["G"]:
                transition[s, :, s] = 1
                reward[s] = 1 / horizon
                cost[s] = cornered(crate) / horizon
                continue
            for action, (move, probability) in _slipping_moves():
                next_agent, next_crate = pushed(agent, crate, move)
                transition[s, action, number(next_agent, next_crate)] += probability
                reward[s, action] += probability * (next_agent == place["G"])
                cost[s, action] += probability * cornered(next_crate) / horizon
    return tabular_cmdp(
        "Box",
        transition=transition,
        reward=reward,
        costs=cost[None],
        initial=number(place["A"], place["X"]),
        limits=[limit],
        cost_names=["box"],
        horizon=horizon,
    )


def peak_hours(*, horizon: int = 12, limit: float = 3.0) -> TabularCMDP:
    """Charge a battery while power is clean, serve from it while power is dirty.

    States are the charge 0 .. 4. Waiting does nothing; charging adds one unit with
    probability .9; serving takes one unit and earns 1, or does nothing when empty.
    Charging emits 0.5 at first, 2 in the middle third of the horizon and 1 after it:
    the cost of the same state and action changes with the step, so only a policy that
    sees the step can charge ahead of the peak.
    """
    levels, success = 5, 0.9
    level = np.arange(levels)
    transition = np.zeros((levels, 3, levels))
    transition[level, 0, level] = 1
    transition[level, 1, np.minimum(level + 1, levels - 1)] += success
    transition[level, 1, level] += 1 - success
    transition[level, 2, np.maximum(level - 1, 0)] = 1
    reward = np.zeros((levels, 3))
    reward[1:, 2] = 1
    third = 3 * np.arange(horizon) // horizon
    emission = np.zeros((horizon, levels, 3))
    emission[:, :, 1] = np.array([0.5, 2.0, 1.0])[third][:, None]
    return tabular_cmdp(
        "PeakHours",
        transition=transition,
        reward=reward,
        costs=emission[None],
        limits=[limit],
        cost_names=["emission"],
        horizon=horizon,
    )


def random_cmdp(
    *,
    states: int = 6,
    actions: int = 3,
    horizon: int = 5,
    constraints: int = 1,
    successors: int | None = None,
    tightness: float = 0.5,
    time_varying: bool = False,
    reward_scale: float = 1.0,
    cost_scale: float = 1.0,
    seed: int = 0,
) -> TabularCMDP:
    """Draw a CMDP whose limits can be kept and, for tightness > 0, bind.

    successors: next states with positive probability per (s, a); None means all.
    tightness: 0 puts each limit at the cost of the unconstrained optimum, 1 at the
        smallest feasible cost, values between interpolate. With several constraints
        "smallest" is the policy with the smallest sum of costs, so that all limits can
        be kept at once.
    time_varying: draw transitions, rewards and costs anew for each step.
    reward_scale, cost_scale: rewards and costs are drawn between 0 and these.
    """
    successors = states if successors is None else successors
    if not 1 <= successors <= states:
        raise UserError(
            f"The number of successors must lie between 1 and {states}, "
            f"not {successors}."
        )
    if not 0 <= tightness <= 1:
        raise UserError(f"The tightness must lie between 0 and 1, not {tightness}.")
    if not (0 < reward_scale < np.inf and 0 < cost_scale < np.inf):
        raise UserError(
            "Scales of reward and costs must be positive and finite, not "
            f"{reward_scale:g} and {cost_scale:g}."
        )
    rng = np.random.default_rng(seed)
    steps = horizon if time_varying else 1
    cmdp = tabular_cmdp(
        f"Random{seed}",
        transition=tuple(
            _random_transition(rng, states, actions, successors) for _ in range(steps)
        ),
        reward=reward_scale * rng.random((steps, states, actions)),
        costs=cost_scale * rng.random((constraints, steps, states, actions)),
        initial=rng.dirichlet(np.ones(states)),
        limits=[np.inf] * constraints,
        horizon=horizon,
    )
    if not constraints:
        return cmdp
    best = backward_induction(cmdp)
    _, actions_of_safest, _ = best_response(cmdp, -cmdp.costs.sum(axis=0))
    safest = deterministic(actions_of_safest, actions)
    _, least = evaluate_exact(cmdp, safest)
    return cmdp.with_limits(*(best.costs + tightness * (least - best.costs)))


def _slipping_moves() -> list[tuple[int, tuple[tuple[int, int], float]]]:
    """Return (action, (move, probability)) for all actions and moves of a grid."""
    return [
        (action, (move, (1 - SLIP) * (action == taken) + SLIP / len(MOVES)))
        for action in range(len(MOVES))
        for taken, move in enumerate(MOVES)
    ]


def _random_transition(
    rng: np.random.Generator, states: int, actions: int, successors: int
) -> sparse.csr_array:
    rows = states * actions
    if successors == states:
        columns = np.tile(np.arange(states), (rows, 1))
    else:
        columns = np.array(
            [rng.choice(states, successors, replace=False) for _ in range(rows)]
        )
    weights = rng.dirichlet(np.ones(successors), rows)
    pointers = np.arange(rows + 1) * successors
    return sparse.csr_array(
        (weights.reshape(-1), columns.reshape(-1), pointers), shape=(rows, states)
    )


PROBLEMS: dict[str, Callable[..., TabularCMDP]] = {
    "FactoredRing": factored_ring,
    "MediaStreaming": media_streaming,
    "Inventory": inventory,
    "Box": box,
    "MarsRover": mars_rover,
    "PeakHours": peak_hours,
}
