"""A policy as an ONNX graph; what it computes is said in `simulators/acting.py`.

inputs   observation [N, O] float32, a vector per row; step [N] int64, 0 .. H-1
outputs  action, for `env.step`, the most likely one; beside it what chance needs: mean
         and std [N, A] of a Box before clipping and scaling, or logits [N, n]

A memory of U units is another input, memory [N, U] float32, 0 at step 0, and another
output, remembered [N, U], the memory of the next step.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ecop.errors import UserError
from ecop.player import Player
from ecop.simulators.acting import CLIP
from ecop.simulators.spaces import Chosen, Combined, Scaled

OPSET, IR = 17, 8  # what runtimes of 2022 and later read
MOST = 2**31 - 2**20  # bytes that a file can hold


def to_onnx(player: Player) -> bytes:
    """The file."""
    try:
        import onnx
    except ImportError:
        raise UserError(
            "ONNX needs its package: pip install 'ecop[onnx]'; or export to .npz."
        ) from None
    policy = player.policy
    encoder = (*policy.filters, *policy.recurrent)
    layers = (*policy.weights, *policy.biases, policy.gate, player.spread)
    arrays = (*encoder, *layers)
    if sum(array.nbytes for array in arrays) > MOST:
        raise UserError(
            "The policy is larger than the 2 GiB that an ONNX file can hold; export to "
            ".npz."
        )
    graph = Graph(onnx)
    x, memory = encoded(graph, player)
    outputs = network(graph, player, x)
    action = graph.add("Identity", act(graph, player.forms.action, outputs[0]))
    named = {"action": action} | dict(zip(names(player), outputs, strict=True))
    return graph.finished(named | memory, player)


def names(player: Player) -> tuple[str, ...]:
    """Of the outputs beside the action."""
    return ("logits",) if player.policy.head == "choice" else ("mean", "std")


class Graph:
    """Nodes and constants so far; values are known by their names."""

    def __init__(self, onnx: Any) -> None:
        self.onnx = onnx
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def add(self, kind: str, *inputs: Any, **attributes: Any) -> str:
        """The output of a new node; inputs that are arrays become constants."""
        given = [x if isinstance(x, str) else self.constant(x) for x in inputs]
        name = f"{kind.lower()}{len(self.nodes)}"
        make = self.onnx.helper.make_node
        self.nodes.append(make(kind, given, [name], **attributes))
        return name

    def constant(self, value: np.ndarray) -> str:
        """A constant."""
        name = f"constant{len(self.constants)}"
        made = self.onnx.numpy_helper.from_array(np.asarray(value), name)
        self.constants.append(made)
        return name

    def cast(self, x: str, dtype: Any) -> str:
        """Another type."""
        to = self.onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        return self.add("Cast", x, to=to)

    def at_step(self, array: np.ndarray) -> Any:
        """Rows of the steps, or the one row that all steps share."""
        return array if len(array) == 1 else self.add("Gather", array, "step")

    def finished(self, outputs: dict[str, str], player: Player) -> bytes:
        """The file of the whole graph."""
        helper, kinds = self.onnx.helper, self.onnx.TensorProto
        for name, value in outputs.items():
            self.nodes.append(helper.make_node("Identity", [value], [name]))
        info = helper.make_tensor_value_info
        size = len(player.policy.mean)
        inputs = [
            info("observation", kinds.FLOAT, ["N", size]),
            info("step", kinds.INT64, ["N"]),
        ]
        if player.policy.recurrent:
            inputs.append(info("memory", kinds.FLOAT, ["N", units(player)]))
        graph = helper.make_graph(
            self.nodes,
            "policy",
            inputs,
            [self.output(info, name, player) for name in outputs],
            self.constants,
        )
        opset = helper.make_opsetid("", OPSET)
        model = helper.make_model(graph, opset_imports=[opset], producer_name="ecop")
        model.ir_version = IR
        helper.set_model_props(
            model, {"task": player.task, "horizon": str(player.horizon)}
        )
        self.onnx.checker.check_model(model, full_check=True)
        return model.SerializeToString(deterministic=True)

    def output(self, info: Any, name: str, player: Player) -> Any:
        """What is known of an output."""
        action = player.forms.action
        kind, shape = np.dtype(np.float32), (player.policy.biases[-1].shape[1],)
        if name in ("mean", "std"):
            shape = (action.space.size,)  # pyright: ignore
        elif name == "remembered":
            shape = (units(player),)
        elif name == "action":
            part = {Scaled: "low", Combined: "start"}.get(type(action))
            like = getattr(action, part) if part else np.empty((), np.int64)
            kind, shape = like.dtype, like.shape
        to = self.onnx.helper.np_dtype_to_tensor_dtype(kind)
        return info(name, to, ["N", *shape])


def units(player: Player) -> int:
    """Of the memory."""
    return player.policy.recurrent[1].shape[1]


def encoded(graph: Graph, player: Player) -> tuple[str, dict[str, str]]:
    """What the layers see [N, I], and the memory that is left, if there is one."""
    policy = player.policy
    x = graph.add("Sub", "observation", policy.mean)
    x = graph.add("Mul", x, policy.scale)
    x = graph.add("Clip", x, -CLIP, CLIP)
    if policy.filters:
        x = graph.add("Reshape", x, np.array([-1, *policy.image]))
        x = graph.add("Transpose", x, perm=(0, 3, 1, 2))
        for (matrix,) in policy.filters:
            kernel = matrix[:-1].reshape(3, 3, -1, matrix.shape[1])
            weight = np.ascontiguousarray(kernel.transpose(3, 2, 0, 1))
            x = graph.add("Conv", x, weight, matrix[-1], strides=(2, 2), pads=[1] * 4)
            x = graph.add("Relu", x)
        x = graph.add("Transpose", x, perm=(0, 2, 3, 1))
        return graph.add("Reshape", x, np.array([-1, policy.weights[0].shape[1]])), {}
    if not policy.recurrent:
        return x, {}
    memory = remember(graph, x, *(matrix[0] for matrix in policy.recurrent))
    return graph.add("Concat", x, memory, axis=1), {"remembered": memory}


def remember(graph: Graph, x: str, inputs: np.ndarray, hidden: np.ndarray) -> str:
    """The memory after x (`simulators.acting.remember`)."""
    drive = zip(np.split(inputs, 3, axis=1), np.split(hidden, 3, axis=1), strict=True)
    keep, reset, new = ((w[:-1], w[-1], np.ascontiguousarray(u)) for w, u in drive)

    def driven(part: tuple[np.ndarray, ...], memory: str) -> str:
        weight, bias, hidden = part
        x_part = graph.add("Add", graph.add("MatMul", x, weight), bias)
        return graph.add("Add", x_part, graph.add("MatMul", memory, hidden))

    kept = graph.add("Sigmoid", driven(keep, "memory"))
    opened = graph.add("Sigmoid", driven(reset, "memory"))
    fresh = graph.add("Tanh", driven(new, graph.add("Mul", opened, "memory")))
    rest = graph.add("Mul", graph.add("Sub", np.float32(1.0), kept), fresh)
    return graph.add("Add", graph.add("Mul", kept, "memory"), rest)


def network(graph: Graph, player: Player, x: str) -> tuple[str, ...]:
    """Mean and std [N, A], or logits [N, n]."""
    policy = player.policy
    last = len(policy.weights) - 1
    x = graph.add("Unsqueeze", x, np.array([1]))  # [N, 1, O]: a matrix for each row
    for k, (weight, bias) in enumerate(zip(policy.weights, policy.biases, strict=True)):
        x = graph.add("MatMul", x, graph.at_step(weight))
        x = graph.add("Add", x, middle(graph, bias))
        if k < last:
            x = graph.add("Tanh", x)
        if k == 0 and policy.gate.size:
            x = graph.add("Mul", x, middle(graph, policy.gate))
    x = graph.add("Squeeze", x, np.array([1]))
    if policy.head == "choice":
        return (x,)
    if policy.head == "normal":
        zero = graph.add("Mul", x, np.float32(0.0))
        return x, graph.add("Add", zero, graph.at_step(player.spread))
    half = policy.biases[-1].shape[1] // 2
    mean, log_std = (
        graph.add("Slice", x, *(np.array([v]) for v in (start, start + half, 1)))
        for start in (0, half)
    )
    return mean, graph.add("Exp", log_std)


def middle(graph: Graph, array: np.ndarray) -> str:
    """Rows [T, J] of the steps as [N, 1, J]."""
    return graph.add("Unsqueeze", graph.at_step(array), np.array([1]))


def act(graph: Graph, form: Scaled | Chosen | Combined, x: str) -> str:
    """The most likely action as the environment wants it (`simulators/spaces.py`)."""
    if isinstance(form, Scaled):
        low = form.low.astype(np.float64)
        half = (form.high.astype(np.float64) - low) / 2.0
        shape = np.array([-1, *form.low.shape])
        x = graph.cast(x, np.float64)
        x = graph.add("Clip", x, np.float64(-1.0), np.float64(1.0))
        x = graph.add("Reshape", x, shape)
        x = graph.add("Mul", graph.add("Add", x, np.float64(1.0)), half)
        x = graph.add("Add", x, low)
        if np.issubdtype(form.low.dtype, np.integer):
            x = graph.add("Round", x)
        x = graph.add("Min", graph.add("Max", x, low), form.high.astype(np.float64))
        return graph.cast(x, form.low.dtype)
    if isinstance(form, Chosen):
        x = graph.add("ArgMax", x, axis=1, keepdims=0)
        return graph.add("Add", x, np.int64(form.start))
    ends = np.cumsum(form.sizes.reshape(-1))
    bounds = zip([0, *ends[:-1].tolist()], ends.tolist(), strict=True)
    parts = [
        graph.add(
            "ArgMax",
            graph.add("Slice", x, *(np.array([v]) for v in (start, end, 1))),
            axis=1,
        )
        for start, end in bounds
    ]
    x = graph.add("Concat", *parts, axis=1)
    x = graph.add("Add", x, form.start.reshape(-1).astype(np.int64))
    x = graph.add("Reshape", x, np.array([-1, *form.sizes.shape]))
    return graph.cast(x, form.start.dtype)
