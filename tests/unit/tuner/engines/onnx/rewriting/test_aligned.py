"""Padding computes the same, flows as far as it can, and is made only where it pays."""

from __future__ import annotations

import pytest

from tests.support.tuner.engines.onnx.rewriting import rewritten
from tuner.engines.onnx.rewriting.aligned import worth

_RANDOM = """
from tuner.engines.onnx.rewriting.aligned.flow import Flow
if FORCED:
    Flow.losing = lambda self: frozenset()
ODD = [13, 15, 24, 29, 30, 40, 45, 60, 16]
UNARY = ["Relu", "Sigmoid", "Tanh", "HardSwish", "Abs", "Exp", "Softplus", "Elu", "Neg", "Erf", "HardSigmoid"]

class Drawn(Network):
    sizes = {}

    def random(self, *shape):
        # Values keep their size from layer to layer, or rounding would grow.
        return self.weight((rng.normal(0, 1, shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32))

    def named(self, shape, operator, *inputs, **attributes):
        name = self.add(operator, *inputs, **attributes)
        self.sizes[name] = list(shape)
        return name

    def convolve(self, x, made=None, kernel=None, group=1):
        batch, read, height, width = self.sizes[x]
        made, kernel = made or pick(*ODD), kernel or pick(1, 3)
        bias = [self.random(made)] if pick(0, 1) else []
        weight = self.random(made, read // group, kernel, kernel)
        pads = [kernel // 2] * 4
        return self.named([batch, made, height, width], "Conv", x, weight, *bias, pads=pads, group=group)

    def constants(self, x, operator):
        batch, channels, height, width = self.sizes[x]
        image = [channels, height, width]
        shape = [[], [1, channels, 1, 1], [channels, 1, 1], image, [height, 1], [1]][pick(*range(6))]
        values = self.weight(rng.uniform(0.5, 2, shape).astype(np.float32))
        operands = [x, values] if operator in ("Div", "PRelu") or pick(0, 1) else [values, x]
        return self.named(self.sizes[x], operator, *operands)

    def step(self, x):
        shape = batch, channels, height, width = self.sizes[x]
        kind = pick(*range(19))
        if kind < 3:
            return self.convolve(x)
        if kind == 3:
            times = pick(1, 1, 2)
            return self.convolve(x, made=channels * times, group=channels)
        if kind == 4:
            return self.named(shape, UNARY[pick(*range(len(UNARY)))], x)
        if kind in (5, 6):
            return self.constants(x, ["Add", "Mul", "Div", "Sub", "Max", "PRelu"][pick(*range(6))])
        if kind == 7:
            return self.named(shape, ["Add", "Mul", "Sum"][pick(0, 1, 2)], x, self.convolve(x, made=channels))
        if kind == 8:
            gate = self.named([batch, channels, 1, 1], "GlobalAveragePool", x)
            gate = self.named([batch, 15, 1, 1], "Relu", self.convolve(gate, made=15, kernel=1))
            gate = self.named([batch, channels, 1, 1], "HardSigmoid", self.convolve(gate, made=channels, kernel=1))
            return self.named(shape, "Mul", x, gate)
        if kind == 9:
            parts = [self.convolve(x), x, self.convolve(x)][: pick(2, 3)]
            total = sum(self.sizes[part][1] for part in parts)
            return self.named([batch, total, height, width], "Concat", *parts, axis=pick(1, -3))
        if kind == 10:
            name = ["MaxPool", "AveragePool"][pick(0, 1)]
            counted = {"count_include_pad": pick(0, 1)} if name == "AveragePool" else {}
            return self.named(shape, name, x, kernel_shape=[3, 3], pads=[1] * 4, **counted)
        if kind == 11:
            scales = self.weight(np.float32([1, 1, 2, 2]))
            if height > 16:
                return x
            return self.named([batch, channels, 2 * height, 2 * width], "Resize", x, "", scales, mode="linear")
        if kind == 12:
            pads, value = self.weight(np.int64([0, 0, 1, 0, 0, 0, 0, 1])), self.weight(np.float32(pick(0, 1)))
            return self.named([batch, channels, height + 1, width + 1], "Pad", x, pads, value)
        if kind == 13:
            axis = pick(1, 2)
            bounds = [self.weight(np.int64([value])) for value in (0, -1, axis)]
            shape[axis] -= 1
            return self.named(shape, "Slice", x, *bounds)
        if kind == 14:
            norms = [self.weight(rng.uniform(0.5, 2, channels).astype(np.float32)) for _ in range(4)]
            return self.named(shape, "BatchNormalization", x, *norms)
        if kind == 15:
            weight = self.random(channels, 30, 2, 2)
            if height > 16:
                return x
            return self.named([batch, 30, 2 * height, 2 * width], "ConvTranspose", x, weight, strides=[2, 2])
        if kind == 16:
            return self.named(shape, "Softmax", x, axis=1)
        if kind == 17:
            positive = self.named(shape, "Add", self.named(shape, "Sigmoid", x), self.weight(np.float32(0.5)))
            return self.named(shape, ["Reciprocal", "Log", "Sqrt"][pick(0, 1, 2)], positive)
        return self.named([batch, width, height, channels], "Transpose", x, perm=[0, 3, 2, 1])

    def end(self, x):
        batch, channels, height, width = self.sizes[x]
        kind = pick(*range(4))
        if kind == 0:
            return x
        axes = self.weight(np.int64([2, 3]))
        pooled = self.add("ReduceMean", x, axes=[2, 3], keepdims=0) if kind == 1 else self.add("GlobalMaxPool", x)
        if kind > 1:
            shape = self.weight(np.int64([batch, channels]))
            pooled = self.add("Flatten", pooled) if kind == 2 else self.add("Reshape", pooled, shape)
        weights, bias = self.random(pick(30, 100, 7), channels), []
        dense = self.add("Gemm", pooled, weights, transB=1)
        return self.add("Softmax", self.add("Add", dense, self.weight(np.float32([0.5]))))

told = []
pick = lambda *values: int(rng.choice(values))
for _ in range(50):
    network = Drawn([pick(1, 2), 3, 7, 6])
    network.sizes = {"x": list(network.shape)}
    tensors = [network.convolve("x")]
    for _ in range(pick(2, 4, 7)):
        tensors.append(network.step(tensors[-1]))
    outputs = [network.end(tensors[-1]), *([tensors[1]] if pick(0, 1) else [])]
    told.append(told_of(network.model(*dict.fromkeys(outputs))))
"""

_WHERE = """
def squeezed():
    network = Network([1, 64, 7, 7])
    y = network.add("Relu", network.add("Conv", "x", network.random(1000, 64, 1, 1), network.random(1000)))
    return network.model(network.add("Softmax", network.add("GlobalAveragePool", y), axis=1))

def gated():
    network = Network([1, 16, 14, 14])
    y = network.add("Conv", "x", network.random(88, 16, 1, 1))
    y = network.add("HardSwish", network.add("Conv", y, network.random(88, 1, 5, 5), group=88, pads=[2] * 4))
    gate = network.add("Conv", network.add("GlobalAveragePool", y), network.random(22, 88, 1, 1))
    gate = network.add("Conv", network.add("Relu", gate), network.random(88, 22, 1, 1))
    y = network.add("Mul", y, network.add("HardSigmoid", gate))
    return network.model(network.add("Conv", y, network.random(16, 88, 1, 1)))

def copied():
    network = Network([1, 4, 32, 32])
    return network.model(network.add("Conv", "x", network.random(15, 4, 1, 1)))

def unknown():
    network = Network([1, 16, 14, 14])
    y = network.add("Conv", "x", network.random(88, 16, 1, 1))
    return network.model(network.add("Reciprocal", network.add("Abs", y)))

def dense():
    network = Network([1, 40, 120])
    y = network.add("Add", network.add("MatMul", "x", network.random(120, 240)), network.random(240))
    y = network.add("Mul", y, network.add("Sigmoid", y))
    return network.model(network.add("MatMul", y, network.random(240, 1000)))

def counts(model):
    before = {tensor.name for tensor in model.graph.initializer}
    found = told_of(model)
    shapes = {t.name: list(t.dims) for t in model.graph.initializer if t.name not in before}
    weights = [name for node in model.graph.node if node.op_type in ("Conv", "MatMul") for name in node.input[1:2]]
    return {**found, "weights": [shapes.get(name) for name in weights]}

told = [counts(made()) for made in (squeezed, gated, copied, unknown, dense)]
"""


@pytest.mark.engine
@pytest.mark.parametrize("forced", [False, True])
def test_padded_networks_compute_the_same(forced: bool) -> None:
    networks = rewritten.told("aligned.padding", f"FORCED = {forced}\n{_RANDOM}")
    assert [network for network in networks if network["error"] > 1e-5] == []
    assert sum(network["count"] > 0 for network in networks) > (40 if forced else 15)


@pytest.mark.engine
def test_padding_flows_to_where_it_costs_nothing() -> None:
    squeezed, gated, copied, unknown, dense = rewritten.told("aligned.padding", _WHERE)
    assert squeezed["operators"] == ["Conv", "Relu", "GlobalAveragePool", "Slice", "Softmax"]
    assert squeezed["weights"] == [[1008, 64, 1, 1]]
    assert "Slice" not in gated["operators"]
    assert gated["weights"] == [[96, 16, 1, 1], [96, 1, 5, 5], [22, 96, 1, 1], [96, 22, 1, 1], [16, 96, 1, 1]]
    assert (copied["count"], copied["operators"]) == (0, ["Conv"])
    # 1/0 is nothing that weights of zero could hide.
    assert unknown["operators"] in (["Conv", "Abs", "Reciprocal"], ["Conv", "Abs", "Slice", "Reciprocal"])
    assert dense["operators"] == ["MatMul", "Add", "Sigmoid", "Mul", "MatMul", "Slice"]
    assert dense["weights"] == [[120, 256], [256, 1024]]
    assert max(network["error"] for network in (squeezed, gated, copied, unknown, dense)) < 1e-5


@pytest.mark.parametrize(
    ("channels", "lanes", "whole"),
    [
        (1000, 16, 1008), (200, 16, 208), (88, 16, 96), (104, 16, 112), (120, 16, 128), (40, 16, 48), (136, 16, 144),
        (64, 16, None), (24, 16, None), (34, 16, None), (1, 16, None), (1000, 8, None), (60, 8, 64), (18, 4, 20),
    ],
)  # fmt: skip
def test_channels_become_whole_vectors_where_little_is_added(channels: int, lanes: int, whole: int | None) -> None:
    assert worth.padded(channels, lanes) == whole


def test_what_padding_saves_is_what_blocks_lose() -> None:
    assert worth.speed(64, 16) == 1
    assert worth.speed(1000, 16) < worth.speed(104, 16) < worth.speed(120, 16) < worth.speed(136, 16) < 1
    assert worth.made(1e6, 1000, 1008, 16) > 0.5e6
    assert worth.made(1e6, 136, 144, 16) < 0 < worth.made_depthwise(1e6, 120, 128, 16)
    assert worth.read(1e6, 100, 110) == pytest.approx(-1e5)


@pytest.mark.parametrize(
    ("columns", "whole"), [(6625, 6656), (240, 256), (120, 128), (1000, 1024), (384, None), (16, None), (40, None)]
)
def test_columns_of_dense_layers_fill_two_vectors(columns: int, whole: int | None) -> None:
    assert worth.padded_columns(columns, 16) == whole
