"""A trained policy in NumPy alone: raw observations in, actions for `env.step` out.

    policy = ecop.player.load("policy.npz")
    action = policy.act(observation, h)

`docs/deploy.md` describes the file. Importing this module imports no JAX.
"""

from __future__ import annotations

import io
import json
import math
import zipfile
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, TypedDict

import numpy as np

from ecop import files
from ecop.errors import UserError
from ecop.files import Count, Name, Within
from ecop.simulators.acting import act_together, forgotten
from ecop.simulators.forms import ActionDocument, Forms, Leaf, from_json, to_json
from ecop.simulators.spaces import vector
from ecop.types import Box, HostPolicy, MultiDiscrete

FORMAT = 1  # of the file
MOST = 2**34  # bytes of a file
MOST_STEPS = 10**5


class About(TypedDict):
    """The JSON text inside the file."""

    format: Annotated[int, Within(FORMAT, FORMAT)]
    task: Name
    head: Literal["normal", "spread", "choice"]
    horizon: Annotated[int, Within(1, MOST_STEPS)]
    observation: list[Leaf] | None
    image: list[Count]  # height, width and channels, if there are filters
    action: ActionDocument


class Memory:
    """What a policy with a memory remembers of the episode under way."""

    def __init__(self) -> None:
        self.units: np.ndarray | None = None  # [1, U]
        self.step = 0  # that comes next

    def at(self, policy: HostPolicy, h: int) -> np.ndarray:
        """What step h begins with; step 0 begins an episode."""
        if h == 0 or self.units is None:
            self.units, self.step = forgotten(policy, 1), 0
        if policy.recurrent and h != self.step:
            raise UserError(
                f"The policy remembers its episode: step {self.step} comes next, or 0 "
                f"of another episode, not {h}; episodes at once need a player each "
                "(run.player(), ecop.player.load)."
            )
        return self.units


class Player(NamedTuple):
    """A policy that acts by itself."""

    task: str
    horizon: int
    policy: HostPolicy
    spread: np.ndarray  # [T, A], what scales the noise of a "normal" head
    forms: Forms
    memory: Memory

    def act(
        self, observation: Any, h: int, *, rng: np.random.Generator | None = None
    ) -> Any:
        """The action for `env.step` at step `h` (0 .. H-1) of an episode.

        The most likely one; one drawn from the policy if a generator is given. A
        policy with a memory (network="gru") plays one episode at a time, step by step.
        """
        if h not in range(self.horizon):
            raise UserError(f"The step must be 0 .. {self.horizon - 1}, not {h}.")
        leaves = self.forms.leaves or [self.flat]
        x = vector(leaves, observation)[None]
        if not np.isfinite(x).all():
            raise UserError("The observation holds NaN or infinity.")
        memory = self.memory.at(self.policy, h)
        actions = act_together(self.policy, x, h, self.noise(h, rng), memory)
        self.memory.step = h + 1
        return self.forms.action(actions)[0]

    @property
    def flat(self) -> Leaf:
        """An observation that is a vector already."""
        return Leaf(path=[], shape=[len(self.policy.mean)], sizes=None, start=[])

    def noise(self, h: int, rng: np.random.Generator | None) -> np.ndarray:
        """What is added to the network's output: nothing, or chance."""
        space = self.forms.action.space
        size = space.size if isinstance(space, Box) else space.n
        if rng is None:
            return np.zeros((1, size), np.float32)
        if not isinstance(space, Box):
            return rng.gumbel(size=(1, size)).astype(np.float32)
        drawn = rng.standard_normal((1, size), np.float32)
        return drawn * self.spread[h % len(self.spread)]


def to_bytes(player: Player) -> bytes:
    """The file, always the same bytes for the same policy."""
    policy = player.policy
    about = {
        "format": FORMAT,
        "task": player.task,
        "head": policy.head,
        "horizon": player.horizon,
        "observation": player.forms.leaves,
        "image": list(policy.image),
        "action": to_json(player.forms.action),
    }
    files.conform(about, About)
    arrays = {
        "about": np.frombuffer(json.dumps(about).encode(), np.uint8),
        "mean": policy.mean,
        "scale": policy.scale,
        "gate": policy.gate,
        "spread": player.spread,
    }
    for k, (weight, bias) in enumerate(zip(policy.weights, policy.biases, strict=True)):
        arrays |= {f"weight{k}": weight, f"bias{k}": bias}
    arrays |= {f"filter{k}": matrix for k, matrix in enumerate(policy.filters)}
    arrays |= {f"memory{k}": matrix for k, matrix in enumerate(policy.recurrent)}
    data = io.BytesIO()
    np.savez(data, **arrays)
    return data.getvalue()


def load(file: str | Path) -> Player:
    """Read a policy that `run.export("policy.npz")` wrote."""
    file = Path(file)
    data = files.read_bytes(file, MOST)
    try:
        return _player(_arrays(data))
    except UserError as error:
        raise UserError(f"'{file}' is no policy: {error}.") from None


def _arrays(data: bytes) -> dict[str, np.ndarray]:
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as entries:
            if any(entry.compress_type for entry in entries.infolist()):
                raise UserError("it is compressed")
        with np.load(io.BytesIO(data)) as found:
            return {name: found[name] for name in found.files}
    except UserError:
        raise
    except Exception as error:  # a damaged archive is whatever its reader makes of it
        raise UserError(f"it cannot be read ({error!s:.80})") from None


def _player(arrays: dict[str, np.ndarray]) -> Player:
    def take(name: str, dimensions: int, kind: Any = np.float32) -> np.ndarray:
        array = arrays.pop(name, None)
        if array is None or array.ndim != dimensions or array.dtype != kind:
            raise UserError(f"{name} is missing, or no array as it should be")
        if not np.isfinite(array).all():
            raise UserError(f"{name} holds NaN or infinity")
        return array

    about = files.parse(take("about", 1, np.uint8).tobytes())
    files.conform(about, About)
    layers, filters, recurrent = (
        range(sum(name.startswith(kind) for name in arrays))
        for kind in ("weight", "filter", "memory")
    )
    forms = Forms(about["observation"], from_json(about["action"]))
    space = forms.action.space
    policy = HostPolicy(
        take("mean", 1),
        take("scale", 1),
        tuple(take(f"weight{k}", 3) for k in layers),
        tuple(take(f"bias{k}", 2) for k in layers),
        take("gate", 2),
        about["head"],
        tuple(about["image"]),
        tuple(take(f"filter{k}", 3) for k in filters),
        space.sizes if isinstance(space, MultiDiscrete) else (),
        tuple(take(f"memory{k}", 3) for k in recurrent),
    )
    spread = take("spread", 2)
    player = Player(about["task"], about["horizon"], policy, spread, forms, Memory())
    if arrays:
        raise UserError(f"it holds more than it should: {', '.join(sorted(arrays))}")
    _refuse_unfit(player)
    return player


def _refuse_unfit(player: Player) -> None:
    """Refuse arrays that do not fit together."""
    policy, space = player.policy, player.forms.action.space
    size = space.size if isinstance(space, Box) else space.n
    heads = ("normal", "spread") if isinstance(space, Box) else ("choice",)
    outputs = 2 * size if policy.head == "spread" else size
    inputs = (encoded(policy), *(w.shape[2] for w in policy.weights))
    steps = (1, player.horizon)
    seen = sum(
        math.prod(leaf["shape"]) if leaf["sizes"] is None else sum(leaf["sizes"])
        for leaf in player.forms.leaves or [player.flat]
    )
    arrays = (*policy.weights, *policy.biases, policy.gate, player.spread)
    fit = (
        policy.head in heads
        and len(policy.weights) > 0
        and len(policy.mean) == len(policy.scale) == seen
        and inputs[-1] == outputs
        and all(len(array) in steps for array in arrays)
        and tuple(w.shape[1] for w in policy.weights) == inputs[:-1]
        and tuple(b.shape[1] for b in policy.biases) == inputs[1:]
        and policy.gate.shape[1] in (0, inputs[1])
        and player.spread.shape[1] in (1, size)
    )
    if not fit:
        raise UserError("its arrays do not fit together")


def encoded(policy: HostPolicy) -> int:
    """Inputs of the first layer: what filters or a memory make of an observation.

    -1: they cannot
    """
    if policy.recurrent:
        return remembered(policy)
    if not (policy.filters or policy.image):
        return len(policy.mean)
    if len(policy.image) != 3 or math.prod(policy.image) != len(policy.mean):
        return -1
    height, width, channels = policy.image
    for matrix in policy.filters:
        if len(matrix) != 1 or matrix.shape[1] != 9 * channels + 1:
            return -1
        height, width, channels = -(-height // 2), -(-width // 2), matrix.shape[2]
    return height * width * channels


def remembered(policy: HostPolicy) -> int:
    """Inputs of the first layer: the observation and the memory; -1: no memory fits."""
    if len(policy.recurrent) != 2 or policy.filters or policy.image:
        return -1
    inputs, units = (matrix.shape for matrix in policy.recurrent)
    size = len(policy.mean)
    fit = inputs == (1, size + 1, 3 * units[1]) and units == (1, units[1], inputs[2])
    return size + units[1] if fit else -1
