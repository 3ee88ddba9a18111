from __future__ import annotations

import pytest

from tests.support.tuner.engines.onnx.rewriting import rewritten

pytestmark = pytest.mark.engine

RANDOM = """
told = []
while len(told) < 80:
    pick = lambda *values: int(rng.choice(values))
    strides, kernel = [pick(1, 2, 3), pick(1, 2)], [pick(1, 2, 3, 4), pick(2, 3)]
    pads, more = [pick(0, 1), pick(0, 1), pick(0, 1), pick(0, 1)], [pick(0, stride - 1) for stride in strides]
    shape = [pick(1, 2), pick(1, 3), pick(3, 6), pick(4, 5)]
    network = Network(shape)
    features = pick(1, 4)
    inputs = [network.random(shape[1], features, *kernel)] + [network.random(features)] * pick(0, 1)
    y = network.add("ConvTranspose", "x", *inputs, strides=strides, pads=pads, output_padding=more)
    y = network.add("Add", y, network.random(features, 1, 1))
    statistics = [network.weight(rng.uniform(1, 2, features).astype(np.float32)) for _ in range(4)]
    y = network.add("Relu", network.add("BatchNormalization", y, *statistics))
    y = network.add("Mul", y, network.add("Sigmoid", y))
    z = network.add("ConvTranspose", y, network.random(features, pick(1, 2), 2, 2), strides=[2, 2])
    outputs = [network.add("Sigmoid", z)] + [y] * pick(0, 1)
    told.append(told_of(network.model(*outputs)))
"""

LINES = """
told = []
for stride, kernel, pads, more in ((4, 8, [2, 2], 0), (2, 3, [1, 1], 1), (2, 4, [1, 1], 0), (1, 3, [0, 0], 0)):
    network = Network([1, 3, 12])
    y = network.add("ConvTranspose", "x", network.random(3, 5, kernel), network.random(5), strides=[stride], pads=pads,
                    output_padding=[more])
    y = network.add("ConvTranspose", y, network.random(5, 2, 3))
    told.append(told_of(network.model(network.add("Relu", y))))
"""

HEAD = """
told = []
for features in (4, 64):
    network = Network([1, 3, 5, 5])
    y = network.add("ConvTranspose", "x", network.random(3, 8, 2, 2), network.random(8), strides=[2, 2])
    y = network.add("Relu", y)
    y = network.add("ConvTranspose", y, network.random(8, features, 2, 2), strides=[2, 2])
    told.append(told_of(network.model(network.add("Sigmoid", y))))
"""

CUT = """
told = []
for length in (1, 6):
    network = Network([1, 3, length, length])
    y = network.add("ConvTranspose", "x", network.random(3, 5, 4, 4), strides=[2, 2], pads=[1, 1, 1, 1])
    told.append(told_of(network.model(network.add("Relu", y))))
"""

LEFT = """
told = []
for attributes in ({"group": 2}, {"dilations": [2, 2]}, {"auto_pad": "SAME_UPPER"}, {"output_shape": [8, 8]},
                   {"kernel": 1, "strides": [3, 3]}, {"kernel": 2, "strides": [5, 5]}):
    network = Network([1, 4, 4, 4])
    kernel = attributes.pop("kernel", 2)
    weights = network.random(4, 2, kernel, kernel)
    told.append(told_of(network.model(network.add("ConvTranspose", "x", weights, **{"strides": [2, 2], **attributes}))))
"""


def test_convolutions_compute_what_transposed_ones_did() -> None:
    networks = rewritten.told("transposed", RANDOM)
    assert max(network["error"] for network in networks) < 1e-5
    assert sum(network["count"] == 2 for network in networks) > 15


def test_those_along_a_line_are_replaced_too() -> None:
    networks = rewritten.told("transposed", LINES)
    assert max(network["error"] for network in networks) < 1e-5
    assert [network["count"] for network in networks] == [2, 2, 2, 2]
    assert all("ConvTranspose" not in network["operators"] for network in networks)


def test_a_chain_goes_from_depth_to_space_once_where_that_is_cheap() -> None:
    thin, thick = rewritten.told("transposed", HEAD)
    assert thin["operators"] == ["Conv", "Relu", "Conv", "Sigmoid", "DepthToSpace"]
    assert thick["operators"] == ["Conv", "Relu", "DepthToSpace", "Conv", "Sigmoid", "DepthToSpace"]
    assert max(thin["error"], thick["error"]) < 1e-5


def test_padding_is_cut_off_afterwards_where_that_takes_fewer_products() -> None:
    """Four positions of four taps each are more than one position of nine."""
    small, large = rewritten.told("transposed", CUT)
    assert small["operators"] == ["Conv", "Relu", "DepthToSpace"]
    assert large["operators"] == ["Conv", "Relu", "DepthToSpace", "Slice"]
    assert max(small["error"], large["error"]) < 1e-5


def test_what_is_no_plain_transposed_convolution_or_mostly_zeros_is_left() -> None:
    assert [network["count"] for network in rewritten.told("transposed", LEFT)] == [0] * 6
