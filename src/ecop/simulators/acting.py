"""Policies in NumPy: who acts in a host task, in this process and in workers. No JAX.

    x      = clip((observation - mean) * scale, +-10)
    x      = max(0, convolution of x), filter by filter, if it is an image
    x      = [x, memory], the memory being that after x, if there is one
    x      = tanh(x @ weight + bias), layer by layer, the last one linear; the first
             one times the gate, if there is one
    normal   action = x + noise, the noise being scaled already
    spread   action = mean + exp(log_std) * noise, with x = [mean, log_std]
    choice   action = argmax(x + noise), of each part where there are several choices
    script   action = noise: no policy, the actions are given

The time is in the bias and the gate of the first layer, which have a row per step: a
policy is sent with all that can be computed once and for all (`rollout.exporter`).

An action has the same bits in any company and in any process: each row has a product of
its own, all else is entry by entry, and no product is large enough for OpenBLAS to
share it among threads, which would change the order of its sums.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ecop.types import HostPolicy, Spec

CLIP = np.float32(10.0)  # learning.normaliser's
ALONE = 9000  # entries of a matrix; from 9,216 on OpenBLAS uses threads


def product(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Rows [N, 1, I] times [I, J], or [N, I, J] with a matrix for each."""
    inputs, outputs = weight.shape[-2:]
    if inputs * outputs <= ALONE:
        return np.matmul(x, weight)
    width = max(ALONE // inputs, 1)
    parts = [weight[..., j : j + width] for j in range(0, outputs, width)]
    return np.concatenate([np.matmul(x, part) for part in parts], axis=-1)


def convolve(x: np.ndarray, matrix: np.ndarray) -> np.ndarray:
    """A 3 x 3 convolution of images [N, Y, X, I] with stride 2, then max(0, .).

    matrix: [9 I + 1, J], or [N, 9 I + 1, J] with one for each
    """
    _, height, width, _ = x.shape
    x = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    window = [(i, j) for i in range(3) for j in range(3)]
    parts = [x[:, i : i + height : 2, j : j + width : 2] for i, j in window]
    patches = np.concatenate(parts, axis=-1)
    weight, bias = matrix[..., :-1, :], matrix[..., -1, :]
    if matrix.ndim == 3:
        weight, bias = weight[:, None, None], bias[:, None, None]
    x = product(patches[..., None, :], weight)[..., 0, :]
    x += bias
    return np.maximum(x, np.float32(0.0), out=x)


def remember(
    memory: np.ndarray, x: np.ndarray, inputs: np.ndarray, units: np.ndarray
) -> None:
    """Change the memories [N, U] of episodes to what they are after they saw x [N, I].

    keep, reset = sigmoid(x inputs + memory units)
    new         = tanh(x inputs + (reset memory) units)
    memory      = keep memory + (1 - keep) new

    inputs: [I + 1, 3 U], the bias last; units: [U, 3 U]; [keep, reset, new] side by
        side, or [N, ...] with matrices for each
    """
    both = 2 * memory.shape[1]
    drive = product(x[:, None], inputs[..., :-1, :])[:, 0] + inputs[..., -1, :]
    gates = drive[:, :both] + product(memory[:, None], units[..., :both])[:, 0]
    gates = np.tanh(gates * np.float32(0.5)) * np.float32(0.5) + np.float32(0.5)
    keep, reset = np.split(gates, 2, axis=1)
    open_ = np.ascontiguousarray(reset * memory)[:, None]
    new = np.tanh(drive[:, both:] + product(open_, units[..., both:])[:, 0])
    memory[:] = keep * memory + (np.float32(1.0) - keep) * new


def forgotten(policy: HostPolicy, count: int) -> np.ndarray:
    """Memories [N, U] of episodes that begin; U = 0: the policy has none."""
    units = len(policy.recurrent[1][0]) if policy.recurrent else 0
    return np.zeros((count, units), np.float32)


def act(
    head: str,
    choices: tuple[int, ...],
    image: tuple[int, ...],
    filters: Sequence[np.ndarray],
    recurrent: Sequence[np.ndarray],
    mean: np.ndarray,
    scale: np.ndarray,
    layers: Sequence[tuple[np.ndarray, np.ndarray]],
    gate: np.ndarray,
    observation: np.ndarray,
    noise: np.ndarray,
    memory: np.ndarray,
) -> np.ndarray:
    """Actions [N, A] for observations [N, O] and noise [N, ...].

    Choices are int32, [N, D] of several and [N] of one. Parameters belong to all rows,
    or have a leading axis N. The memory [N, U] is changed in its place.
    """
    if head == "script":
        return noise.copy()
    x = observation - mean
    x *= scale
    np.maximum(x, -CLIP, out=x)
    np.minimum(x, CLIP, out=x)
    if filters:
        x = x.reshape(-1, *image)
        for matrix in filters:
            x = convolve(x, matrix)
        x = x.reshape(len(x), -1)
    if recurrent:
        remember(memory, x, *recurrent)
        x = np.concatenate([x, memory], axis=1)
    x = x[:, None, :]
    for k, (weight, bias) in enumerate(layers, start=1):
        x = product(x, weight)
        x += bias
        if k < len(layers):
            np.tanh(x, out=x)
        if k == 1 and gate.size:
            x *= gate
    x = x[:, 0]
    if head == "choice":
        x = x + noise
        if not choices:
            return x.argmax(axis=1).astype(np.int32)
        parts = np.split(x, np.cumsum(choices)[:-1], axis=1)
        return np.stack([part.argmax(axis=1) for part in parts], axis=1).astype(
            np.int32
        )
    if head == "spread":
        middle, log_std = np.split(x, 2, axis=1)
        return middle + np.exp(np.ascontiguousarray(log_std)) * noise
    return x + noise


def script(spec: Spec) -> HostPolicy:
    """No policy: the noise of a part is its actions, [H, A] or [H] int."""
    none = np.zeros(spec.observation_size, np.float32)
    return HostPolicy(none, none, (), (), np.ones((1, 0), np.float32), "script")


def act_together(
    policy: HostPolicy,
    observation: np.ndarray,
    h: int,
    noise: np.ndarray,
    memory: np.ndarray | None = None,
) -> np.ndarray:
    """Actions of N episodes of one policy, all at step h.

    memory: [N, U] of the steps before, changed in its place; None: there were none
    """
    if memory is None:
        memory = forgotten(policy, len(observation))
    pairs = zip(policy.weights, policy.biases)
    layers = [(w[h % len(w)], b[h % len(b)]) for w, b in pairs]
    gate = policy.gate[h % len(policy.gate)]
    filters, recurrent = (
        [matrix[0] for matrix in part] for part in (policy.filters, policy.recurrent)
    )
    seen = policy.mean, policy.scale, layers, gate, observation, noise, memory
    return act(policy.head, policy.choices, policy.image, filters, recurrent, *seen)


class Company:
    """Episodes under way, each with a policy and a step of its own: rows 0 .. n - 1.

    Every array of a policy has a row per episode here, so that one call gives all
    actions; what differs from step to step is copied at each step, the rest once. The
    company also writes down what each episode saw and did.
    """

    def __init__(self, size: int, policy: HostPolicy, noise: np.ndarray) -> None:
        self.horizon = len(noise)
        self.head = policy.head
        self.observation = np.zeros((size, len(policy.mean)), np.float32)
        self._noise = np.zeros((size, *noise.shape[1:]), noise.dtype)
        self._mean = np.zeros_like(self.observation)
        self._scale = np.zeros_like(self.observation)
        self.choices, self.image = policy.choices, policy.image
        self._memory = forgotten(policy, size)
        self._filters = len(policy.filters)
        self._recurrent = len(policy.recurrent)
        arrays = self._arrays(policy)
        self._rows = [np.zeros((size, *a.shape[1:]), np.float32) for a in arrays]
        # By row: (where to, what from) of all that differs from step to step.
        self._moving: list[list[tuple[np.ndarray, np.ndarray]]] = [[]] * size
        self._start = [0] * size  # when the episode of a row began
        self._now = 0
        self._views: tuple[int, Any] = (0, None)
        # What was seen and done, by time; when it is full, the oldest part goes.
        self._length = self.horizon + min(self.horizon, 256)
        self._seen = np.zeros((self._length, *self.observation.shape), np.float32)
        self._done: np.ndarray | None = None

    def join(self, i: int, policy: HostPolicy, noise: np.ndarray) -> None:
        """Row i is an episode of this policy, with this noise [H, ...], from now on."""
        self._mean[i], self._scale[i] = policy.mean, policy.scale
        self._memory[i] = 0.0
        self._start[i] = self._now
        self._moving[i] = [(self._noise, noise)]
        for row, array in zip(self._rows, self._arrays(policy)):
            if len(array) == 1:
                row[i] = array[0]
            else:
                self._moving[i].append((row, array))

    def move(self, i: int, j: int) -> None:
        """The episode of row j goes on in row i."""
        alike = self.observation, self._mean, self._scale, self._memory
        for array in (*alike, *self._rows):
            array[i] = array[j]
        self._moving[i], self._start[i] = self._moving[j], self._start[j]
        for array in (self._seen, self._done):
            if array is not None:
                array[self._start[i] : self._now, i] = array[
                    self._start[j] : self._now, j
                ]

    def record(self, i: int) -> tuple[np.ndarray, np.ndarray]:
        """Observations [L, O] and actions [L, ...] of row i since it joined."""
        assert self._done is not None
        steps = slice(self._start[i], self._now)
        return self._seen[steps, i].copy(), self._done[steps, i].copy()

    def act(self, count: int) -> np.ndarray:
        """Actions of the first rows, as many as there are, each at its own step."""
        if self._now == self._length:
            self._forget()
        now = self._now
        for i in range(count):
            h = now - self._start[i]
            for row, array in self._moving[i]:
                row[i] = array[h]
        if self._views[0] != count:
            self._views = count, self._first(count)
        actions = act(self.head, self.choices, self.image, *self._views[1])
        if self._done is None:
            shape = self._length, len(self.observation), *actions.shape[1:]
            self._done = np.zeros(shape, actions.dtype)
        self._seen[now, :count] = self.observation[:count]
        self._done[now, :count] = actions
        self._now = now + 1
        return actions

    def _first(self, n: int) -> tuple[Any, ...]:
        filters = [row[:n] for row in self._rows[: self._filters]]
        rows = self._rows[self._filters :]
        recurrent = [row[:n] for row in rows[: self._recurrent]]
        rows = rows[self._recurrent :]
        half = len(rows) // 2
        weights = (row[:n] for row in rows[:half])
        *biases, gate = (row[:n, None] for row in rows[half:])
        layers = list(zip(weights, biases))
        seen = self._mean[:n], self._scale[:n], layers, gate
        rest = self.observation[:n], self._noise[:n], self._memory[:n]
        return filters, recurrent, *seen, *rest

    @staticmethod
    def _arrays(policy: HostPolicy) -> tuple[np.ndarray, ...]:
        encoder = *policy.filters, *policy.recurrent
        return *encoder, *policy.weights, *policy.biases, policy.gate

    def _forget(self) -> None:
        gone = self._length - self.horizon
        for array in (self._seen, self._done):
            if array is not None:
                array[: self.horizon] = array[gone:].copy()
        self._start = [start - gone for start in self._start]
        self._now -= gone
