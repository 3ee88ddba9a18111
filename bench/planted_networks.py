"""Small networks of several kinds, for verification to be tried on; requires onnx."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

_OPSET, _IR_VERSION = 17, 8


class _Graph:
    """Collects nodes; every method that adds one returns the name of its result."""

    def __init__(self, seed: int) -> None:
        self._generator = np.random.default_rng(seed)
        self.nodes: list[Any] = []
        self.tensors: list[Any] = []

    def weight(self, *shape: int, scale: float | None = None) -> str:
        size = math.prod(shape[1:]) if len(shape) > 1 else 100
        values = self._generator.standard_normal(shape) * (scale if scale is not None else math.sqrt(2 / size))
        return self.constant(values.astype(np.float32))

    def constant(self, values: Any) -> str:
        name = f"w{len(self.tensors)}"
        self.tensors.append(numpy_helper.from_array(np.asarray(values), name))
        return name

    def number(self, value: float) -> str:
        return self.constant(np.float32(value))

    def add(self, operator: str, *inputs: str, results: int = 1, **attributes: Any) -> Any:
        names = [f"n{len(self.nodes)}_{place}" for place in range(results)]
        self.nodes.append(helper.make_node(operator, list(inputs), names, **attributes))
        return names[0] if results == 1 else names

    def conv(self, x: str, channels: int, count: int, size: int = 3, stride: int = 1) -> str:
        pad = size // 2
        weights, bias = self.weight(count, channels, size, size), self.weight(count, scale=0.1)
        return self.add("Conv", x, weights, bias, kernel_shape=[size] * 2, pads=[pad] * 4, strides=[stride] * 2)

    def relu_conv(self, x: str, channels: int, count: int, stride: int = 1) -> str:
        return self.add("Relu", self.conv(x, channels, count, stride=stride))

    def model(self, inputs: dict[str, tuple[str, Sequence[int]]], outputs: dict[str, tuple[str, int]]) -> Any:
        """``inputs``: dtype and shape by name. ``outputs``: result and rank by name."""
        for name, (result, _) in outputs.items():
            self.nodes.append(helper.make_node("Identity", [result], [name]))
        values = [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), shape)
            for name, (dtype, shape) in inputs.items()
        ]
        results = [
            helper.make_tensor_value_info(name, TensorProto.UNDEFINED, [None] * rank)
            for name, (_, rank) in outputs.items()
        ]
        graph = helper.make_graph(self.nodes, "planted", values, results, self.tensors)
        imports = [helper.make_opsetid("", _OPSET)]
        made = helper.make_model(graph, opset_imports=imports, ir_version=_IR_VERSION)
        return onnx.shape_inference.infer_shapes(made)


def classifier() -> Any:
    """Convolutions with batch normalization and a residual, two images: a map [2, 8, 8, 8] and scores [2, 10]."""
    net = _Graph(0)
    first = net.conv("x", 3, 16)
    scale, bias, mean = (net.weight(16, scale=0.3) for _ in range(3))
    variance = net.constant(np.random.default_rng(1).uniform(0.01, 1, 16).astype(np.float32))
    normal = net.add("Relu", net.add("BatchNormalization", first, scale, bias, mean, variance, epsilon=1e-5))
    halved = net.relu_conv(normal, 16, 32, stride=2)
    pooled = net.add("MaxPool", halved, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    last = net.add("Add", pooled, net.relu_conv(pooled, 32, 32))
    scores = net.add("Gemm", net.add("Flatten", net.add("GlobalAveragePool", last)), net.weight(32, 10), net.weight(10))
    outputs = {"map": (net.conv(last, 32, 8, size=1), 4), "scores": (net.add("Softmax", scores, axis=1), 2)}
    return net.model({"x": ("float32", (2, 3, 32, 32))}, outputs)


def transformer() -> Any:
    """One block with attention, layer normalization and GELU: [1, 24, 64] to the same shape."""
    net, width = _Graph(2), 64

    def normalized(x: str) -> str:
        centered = net.add("Sub", x, net.add("ReduceMean", x, axes=[-1]))
        variance = net.add("ReduceMean", net.add("Mul", centered, centered), axes=[-1])
        root = net.add("Sqrt", net.add("Add", variance, net.number(1e-5)))
        return net.add("Mul", net.add("Div", centered, root), net.weight(width, scale=1.0))

    def dense(x: str, rows: int, columns: int) -> str:
        return net.add("Add", net.add("MatMul", x, net.weight(rows, columns)), net.weight(columns, scale=0.1))

    norm = normalized("x")
    query, key, value = (dense(norm, width, width) for _ in range(3))
    scores = net.add("MatMul", query, net.add("Transpose", key, perm=[0, 2, 1]))
    weights = net.add("Softmax", net.add("Mul", scores, net.number(1 / 8)), axis=-1)
    attended = net.add("Add", "x", dense(net.add("MatMul", weights, value), width, width))
    hidden = dense(normalized(attended), width, 2 * width)
    erf = net.add("Erf", net.add("Mul", hidden, net.number(1 / math.sqrt(2))))
    gelu = net.add("Mul", net.add("Mul", hidden, net.number(0.5)), net.add("Add", erf, net.number(1.0)))
    return net.model({"x": ("float32", (1, 24, width))}, {"y": (net.add("Add", attended, dense(gelu, 128, width)), 3)})


def detector() -> Any:
    """Boxes in pixels beside scores below 1, [1, 64, 9]: small values share an output with large ones."""
    net = _Graph(3)
    body = net.relu_conv(net.relu_conv("x", 3, 16, stride=2), 16, 32, stride=2)
    body = net.relu_conv(body, 32, 32, stride=2)
    boxes = net.add("Reshape", net.conv(body, 32, 4, size=1), net.constant(np.array([1, 4, 64])))
    grid = np.stack(np.meshgrid(np.arange(8), np.arange(8)) * 2).reshape(1, 4, 64).astype(np.float32)
    boxes = net.add("Mul", net.add("Add", boxes, net.constant(grid)), net.number(80.0))
    logits = net.add("Add", net.conv(body, 32, 5, size=1), net.number(-4.0))
    scores = net.add("Reshape", net.add("Sigmoid", logits), net.constant(np.array([1, 5, 64])))
    both = net.add("Transpose", net.add("Concat", boxes, scores, axis=1), perm=[0, 2, 1])
    return net.model({"x": ("float32", (1, 3, 64, 64))}, {"y": (both, 3)})


def lines() -> Any:
    """As a line detector: small scores of which only local maxima are kept, [1, 1, 48, 48], and offsets."""
    net = _Graph(4)
    body = net.relu_conv(net.relu_conv("x", 3, 16, stride=2), 16, 16)
    sizes = net.constant(np.array([1, 5, 48, 48]))
    attributes = {"mode": "linear", "coordinate_transformation_mode": "half_pixel"}
    wide = net.add("Resize", net.conv(body, 16, 5), "", "", sizes, **attributes)
    logits, offsets = net.add("Split", wide, net.constant(np.array([1, 4])), results=2, axis=1)
    heat = net.add("Sigmoid", net.add("Add", logits, net.number(-5.0)))
    most = net.add("MaxPool", heat, kernel_shape=[3, 3], strides=[1, 1], pads=[1, 1, 1, 1])
    kept = net.add("Cast", net.add("Equal", heat, most), to=TensorProto.FLOAT)
    outputs = {"scores": (net.add("Mul", heat, kept), 4), "offsets": (net.add("Mul", offsets, net.number(40.0)), 4)}
    return net.model({"x": ("float32", (1, 3, 48, 48))}, outputs)


def variance() -> Any:
    """A badly conditioned variance, the mean of squares less the square of the mean: [16, 256] to [16]."""
    net = _Graph(5)
    moved = net.add("Add", "x", net.number(100.5))
    squares = net.add("ReduceMean", net.add("Mul", moved, moved), axes=[1], keepdims=0)
    mean = net.add("ReduceMean", moved, axes=[1], keepdims=0)
    outputs = {"y": (net.add("Sub", squares, net.add("Mul", mean, mean)), 1)}
    return net.model({"x": ("float32", (16, 256))}, outputs)


def difference() -> Any:
    """A badly conditioned difference of two nearly equal dense layers: [16, 256] to [16, 32]."""
    net = _Graph(6)
    weights = np.random.default_rng(6).standard_normal((256, 32)).astype(np.float32)
    nearly = (weights + 1e-4 * np.random.default_rng(7).standard_normal((256, 32))).astype(np.float32)
    both = [net.add("MatMul", "x", net.constant(each)) for each in (weights, nearly)]
    return net.model({"x": ("float32", (16, 256))}, {"y": (net.add("Sub", *both), 2)})


def recurrent() -> Any:
    """A GRU over 12 steps: [12, 1, 16] to [12, 1, 1, 32]."""
    net = _Graph(8)
    weights = [net.weight(1, 96, 16, scale=0.3), net.weight(1, 96, 32, scale=0.3), net.weight(1, 192, scale=0.3)]
    states = net.add("GRU", "x", *weights, hidden_size=32, results=2)
    return net.model({"x": ("float32", (12, 1, 16))}, {"y": (states[0], 4)})


def top_k() -> Any:
    """The 20 best of 200 scores with their indices and boxes: [1, 64] to [20], [20] and [20, 4]."""
    net = _Graph(9)
    hidden = net.add("Relu", net.add("Gemm", "x", net.weight(64, 128), net.weight(128)))
    scores = net.add("Sigmoid", net.add("Gemm", hidden, net.weight(128, 200), net.weight(200)))
    boxes = net.add("Gemm", hidden, net.weight(128, 800), net.weight(800))
    flat = net.add("Reshape", scores, net.constant(np.array([200])))
    best, places = net.add("TopK", flat, net.constant(np.array([20])), results=2)
    rows = net.add("Reshape", net.add("Mul", boxes, net.number(50.0)), net.constant(np.array([200, 4])))
    outputs = {"scores": (best, 1), "places": (places, 1), "boxes": (net.add("Gather", rows, places), 2)}
    return net.model({"x": ("float32", (1, 64))}, outputs)


def segmentation() -> Any:
    """The class of each pixel: [1, 3, 48, 48] to [1, 1, 48, 48], integers."""
    net = _Graph(10)
    logits = net.conv(net.relu_conv(net.relu_conv("x", 3, 16), 16, 16), 16, 6)
    return net.model({"x": ("float32", (1, 3, 48, 48))}, {"labels": (net.add("ArgMax", logits, axis=1), 4)})


def suppression() -> Any:
    """Boxes that remain after non-maximum suppression: [1, 64] to [n, 3] and [n, 4]."""
    net = _Graph(11)
    hidden = net.add("Relu", net.add("Gemm", "x", net.weight(64, 96), net.weight(96)))
    scores = net.add("Sigmoid", net.add("Gemm", hidden, net.weight(96, 120), net.weight(120)))
    corners = net.add("Reshape", net.add("Gemm", hidden, net.weight(96, 240)), net.constant(np.array([120, 2])))
    boxes = net.add("Concat", corners, net.add("Add", corners, net.number(1.5)), axis=1)
    batch = net.add("Unsqueeze", boxes, net.constant(np.array([0])))
    flat = net.add("Reshape", scores, net.constant(np.array([1, 1, 120])))
    limits = [net.constant(np.array([30])), net.constant(np.float32([0.4])), net.constant(np.float32([0.2]))]
    chosen = net.add("NonMaxSuppression", batch, flat, *limits)
    places = net.add("Gather", chosen, net.constant(np.int64(2)), axis=1)
    outputs = {"chosen": (chosen, 2), "boxes": (net.add("Gather", boxes, places), 2)}
    return net.model({"x": ("float32", (1, 64))}, outputs)


def tokens() -> Any:
    """Embedded ids through two dense layers: [1, 32], integers, to [1, 32, 24]."""
    net = _Graph(12)
    embedded = net.add("Gather", net.weight(100, 32, scale=1.0), "ids")
    hidden = net.add("Tanh", net.add("Add", net.add("MatMul", embedded, net.weight(32, 48)), net.weight(48)))
    return net.model({"ids": ("int64", (1, 32))}, {"y": (net.add("MatMul", hidden, net.weight(48, 24)), 3)})


NETWORKS = {
    make.__name__: make
    for make in (
        classifier, transformer, detector, lines, variance, difference, recurrent, top_k, segmentation, suppression,
        tokens,
    )
}  # fmt: skip
