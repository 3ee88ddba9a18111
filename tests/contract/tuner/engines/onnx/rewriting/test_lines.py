from __future__ import annotations

import pytest

from tests.support.tuner.engines.onnx.rewriting import rewritten

pytestmark = pytest.mark.engine

RANDOM = """
told = []
for _ in range(60):
    pick = lambda *values: int(rng.choice(values))
    groups, batch, length, kernel = pick(1, 1, 2), pick(1, 2), pick(5, 12, 37, 64), pick(1, 2, 5)
    channels, features = groups * pick(1, 3), groups * pick(1, 2, 4)
    rank, residual = pick(3, 4), pick(0, 1)
    network = Network([batch, channels, length] + [1] * (rank - 3))
    along = {"strides": pick(1, 1, 2, 3), "dilations": pick(1, 2)}
    wide = {name: [value] + [1] * (rank - 3) for name, value in along.items()}
    pads = [pick(0, 2, 4), 0, pick(0, 1, 4), 0] if rank == 4 else [pick(0, 2, 4), pick(0, 1, 4)]
    if length + sum(pads) < along["dilations"] * (kernel - 1) + 1:
        continue
    weights = network.random(features, channels // groups, kernel, *[1] * (rank - 3))
    y = network.add("Conv", "x", weights, network.random(features), pads=pads, group=groups, **wide)
    y = network.add("Add", y, network.random(1, features, *[1] * (rank - 2)))
    gate = network.add("Tanh", network.add("Mul", network.weight(np.float32(0.5)), y))
    y = network.add("Mul", y, gate)
    if residual:
        y = network.add("Relu", y)
        around = network.random(features, features, 3, *[1] * (rank - 3))
        pads = [1, 0, 1, 0] if rank == 4 else [1, 1]
        y = network.add("Add", y, network.add("Conv", y, around, pads=pads))
    outputs = {0: [y], 1: [network.add(["GlobalMaxPool", "GlobalAveragePool"][pick(0, 1)], y)]}[pick(0, 1)]
    outputs.append(gate)
    told.append(told_of(network.model(*outputs)))
"""

POOLED = """
told = []
for _ in range(60):
    pick = lambda *values: int(rng.choice(values))
    length, rank, kernel, is_high = pick(37, 64, 111), pick(3, 4), pick(1, 3, 4), pick(0, 1)
    along = lambda value, other: [value] if rank == 3 else [value, other] if is_high else [other, value]
    ends = lambda before, after: along(before, 0) + along(after, 0)
    network = Network([pick(1, 2), 3, *along(length, 1)])
    y = network.add("Conv", "x", network.random(4, 3, *along(2, 1)), network.random(4))
    kind = ["MaxPool", "AveragePool"][pick(0, 1)]
    window = {"kernel_shape": along(kernel, 1), "strides": along(pick(1, 2, 4), 1)}
    # Rounded up, the last window may begin after the line, where ONNX and ONNX Runtime differ.
    rounded = {"ceil_mode": 1, "strides": along(1, 1)}
    window |= rounded if pick(0, 0, 0, 1) else {"pads": ends(pick(0, kernel - 1), pick(0, 0, kernel - 1))}
    if kind == "AveragePool":
        window["count_include_pad"] = pick(0, 1)
    elif pick(0, 1):
        window["dilations"] = along(pick(1, 2), 1)
    pooled = network.add(kind, network.add("Relu", y), **window)
    zeros = ends(pick(0, 2), pick(0, 1))
    pads = [0, 0, *zeros[: rank - 2], 0, pick(0, 0, 0, 1), *zeros[rank - 2 :]]
    filling = [network.weight(np.float32(pick(0, 0, 0, 1)))][: pick(0, 1)]
    padded = network.add("Pad", pooled, network.weight(np.int64(pads)), *filling)
    y = network.add("Conv", padded, network.random(2, 4 + pads[rank + 1], *along(3, 1)))
    told.append(told_of(network.model(*[y, padded, pooled][: pick(1, 2, 3)])))
"""

CAUSAL = """
told = []
for mode in ("constant", "reflect", "edge"):
    network = Network([1, 3, 64])
    y = network.add("Conv", "x", network.random(4, 3, 5))
    y = network.add("MaxPool", network.add("Relu", y), kernel_shape=[4], strides=[4])
    for _ in range(2):
        y = network.add("Pad", y, network.weight(np.int64([0, 0, 2, 0, 0, 0])), mode=mode)
        y = network.add("Relu", network.add("Conv", y, network.random(4, 4, 3)))
    told.append(told_of(network.model(y)))
"""

LAYER = """
network = Network([1, 4, 64, 1])
y = network.add("Conv", "x", network.random(8, 4, 5, 1))
squeezed = network.add("Squeeze", y, network.weight(np.int64([3])))
y = network.add("Mul", squeezed, network.add("Sigmoid", squeezed))
y = network.add("GlobalMaxPool", y)
told = [told_of(network.model(y))]
"""

REDUCED = """
told = []
for axes in ([-1], [1, 2], [2], [1]):
    for operator in ("ReduceMax", "ReduceMean", "ReduceMin", "ReduceSum"):
        for keepdims in (0, 1):
            network = Network([2, 3, 40])
            y = network.add("Relu", network.add("Conv", "x", network.random(16, 3, 1)))
            inputs, attributes = [y], {"axes": axes}
            if operator == "ReduceSum":
                inputs, attributes = [y, network.weight(np.int64(axes))], {}
            y = network.add(operator, *inputs, keepdims=keepdims, **attributes)
            told.append(told_of(network.model(network.add("Neg", y))))
"""

LEFT = """
told = []
for shape, kernel in [((1, 3, 8, 8), (3, 3)), ((1, 3, 1, 32), (1, 1)), ((1, 3, 1, 1), (1, 1)), ((1, 3, 8, 1), (8, 1))]:
    network = Network(list(shape))
    told.append(told_of(network.model(network.add("Conv", "x", network.random(4, 3, *kernel)))))
reversed = Network([1, 3, 32])
y = reversed.add("Conv", "x", reversed.random(4, 3, 1))
bounds = [reversed.weight(np.int64([value])) for value in (-1, -99, 2, -1)]
told.append(told_of(reversed.model(reversed.add("Slice", y, *bounds))))
times = Network([1, 2, 38])
y = times.add("Conv", "x", times.random(4, 2, 2))
told.append(told_of(times.model(times.add("Mul", y, times.random(37)))))
"""


def test_turned_lines_compute_the_same() -> None:
    networks = rewritten.told("lines", RANDOM)
    assert max(network["error"] for network in networks) < 1e-5
    assert len(networks) > 40
    assert sum(network["count"] > 0 for network in networks) > 40


def test_reductions_of_lines_compute_the_same() -> None:
    """Only those over channels alone are computed of the line as it was."""
    networks = rewritten.told("lines", REDUCED)
    assert max(network["error"] for network in networks) < 1e-5
    turned = [network["operators"].index("Reshape", 1) for network in networks]
    reduced = [
        next(place for place, name in enumerate(network["operators"]) if name.startswith("Reduce"))
        for network in networks
    ]
    assert [back > place for back, place in zip(turned, reduced, strict=True)] == [True] * 24 + [False] * 8


def test_pools_and_zeros_between_lines_compute_the_same() -> None:
    networks = rewritten.told("lines", POOLED)
    assert max(network["error"] for network in networks) < 1e-5
    assert sum(network["count"] == 2 for network in networks) > 40
    between = ["".join(network["operators"]).split("Conv")[1] for network in networks]
    assert sum("Reshape" not in operators for operators in between) > 10, "no layout changes between the convolutions"


def test_zeros_before_a_line_are_the_padding_of_its_convolution() -> None:
    zeros, *others = rewritten.told("lines", CAUSAL)
    assert zeros["operators"] == ["Reshape", "Conv", "Relu", "MaxPool", "Conv", "Relu", "Conv", "Relu", "Reshape"]
    for network in others:
        layers = [*["Pad", "Conv", "Relu"] * 2, "Reshape"]
        assert network["operators"] == ["Reshape", "Conv", "Relu", "MaxPool", *layers]
    assert all((network["count"], network["error"] < 1e-6) == (3, True) for network in (zeros, *others))


def test_a_line_stays_one_up_to_its_pool() -> None:
    [network] = rewritten.told("lines", LAYER)
    # 60 outputs have good divisors.
    assert network["operators"] == ["Reshape", "Conv", "Sigmoid", "Mul", "GlobalMaxPool", "Reshape"]
    assert (network["count"], network["error"] < 1e-6) == (1, True)


def test_what_is_no_line_is_left_and_what_follows_one_is_kept() -> None:
    *left, backwards, times = rewritten.told("lines", LEFT)
    assert [network["count"] for network in left] == [0, 0, 0, 0]
    # The slice turns the line around, so it is given the tensor as it was.
    assert backwards["operators"] == ["Reshape", "Conv", "Reshape", "Slice"]
    assert backwards["error"] < 1e-6
    # A factor for every column fits no padded line.
    assert times["operators"] == ["Reshape", "Conv", "Slice", "Reshape", "Mul"]
    assert times["error"] < 1e-6
