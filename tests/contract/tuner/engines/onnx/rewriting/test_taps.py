from __future__ import annotations

import pytest

from tests.support.tuner.engines.onnx.rewriting import rewritten

pytestmark = pytest.mark.engine

RANDOM = """
told = []
while len(told) < 120:
    pick = lambda *values: int(rng.choice(values))
    rank = pick(1, 2, 2)
    sizes = [pick(1, 2, 3, 5) for _ in range(rank)]
    kernel, dilations = [pick(1, 3, 5) for _ in sizes], [pick(1, 2, 4) for _ in sizes]
    pads = [pick(0, 1, 2, 4, 8) for _ in range(2 * rank)]
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations)]
    if any(size + pads[at] + pads[at + rank] < reach[at] for at, size in enumerate(sizes)):
        continue
    network = Network([1, 4, *sizes])
    group = pick(1, 4)
    y = network.add("Conv", "x", network.random(4, 4 // group, *kernel), network.random(4), group=group,
                    strides=[pick(1, 2, 3) for _ in sizes], dilations=dilations, pads=pads)
    z = network.add("Conv", y, network.random(4, 4, *kernel), dilations=dilations, pads=[d * (k - 1) // 2 for k, d in
                    zip(kernel, dilations)] * 2)
    told.append(told_of(network.model(network.add("Relu", z), network.add("Neg", y))))
"""

ATROUS = """
network = Network([1, 4, 8, 8])
rates = [network.add("Conv", "x", network.random(4, 4, 3, 3), dilations=[rate] * 2, pads=[rate] * 4) for rate in (4, 8)]
model = network.model(*rates)
told = [told_of(model)]
told[0]["kernels"] = [list(tensor.dims) for tensor in model.graph.initializer]
"""

APART = """
from tuner.engines.onnx.rewriting import taps
taps._FEWEST_PRODUCTS = 1
told = []
while len(told) < 60:
    pick = lambda *values: int(rng.choice(values))
    sizes, kernel, dilations = ([pick(*values) for _ in range(2)] for values in ((6, 7, 8), (2, 3), (3, 4, 5)))
    ends = [
        (pick(rate - 1, rate), pick(rate - 1, rate)) if taps == 3 else [(rate, 0), (0, rate), (rate, 1)][pick(0, 1, 2)]
        for taps, rate in zip(kernel, dilations)
    ]
    pads = [each[0] for each in ends] + [each[1] for each in ends]
    network = Network([pick(1, 2), 4, *sizes])
    given = [network.random(6, 4, *kernel)] + [network.random(6)] * pick(0, 1)
    y = network.add("Conv", network.add("Neg", "x"), *given, dilations=dilations, pads=pads)
    told.append(told_of(network.model(network.add("Relu", y))))
"""

WORTH = """
told = []
for channels, rate in ((128, 12), (128, 4), (16, 12)):
    network = Network([1, channels, 16, 16])
    weights = network.random(channels, channels, 3, 3)
    told.append(told_of(network.model(network.add("Conv", "x", weights, dilations=[rate] * 2, pads=[rate] * 4))))
"""


def test_weights_that_meet_padding_at_most_positions_are_convolutions_of_what_they_meet() -> None:
    networks = rewritten.told("taps", APART)
    assert max(network["error"] for network in networks) < 1e-5
    assert sum(network["operators"].count("Conv") > 1 for network in networks) > 20


def test_large_convolutions_alone_are_taken_apart() -> None:
    wide, dense, small = rewritten.told("taps", WORTH)
    assert wide["error"] < 1e-5
    assert [network["operators"].count("Conv") for network in (wide, dense, small)] == [9, 1, 1]


def test_convolutions_without_weights_that_meet_padding_alone_compute_the_same() -> None:
    networks = rewritten.told("taps", RANDOM)
    assert max(network["error"] for network in networks) < 1e-5
    assert sum(network["count"] for network in networks) > 30


def test_of_a_kernel_wider_than_the_image_its_middle_is_left() -> None:
    [network] = rewritten.told("taps", ATROUS)
    assert network["error"] < 1e-5
    assert sorted(network["kernels"]) == [[4, 4, 1, 1], [4, 4, 3, 3]]
