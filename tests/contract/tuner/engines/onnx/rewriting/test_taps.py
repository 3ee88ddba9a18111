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


def test_convolutions_without_weights_that_meet_padding_alone_compute_the_same() -> None:
    networks = rewritten.told("taps", RANDOM)
    assert max(network["error"] for network in networks) < 1e-5
    assert sum(network["count"] for network in networks) > 30


def test_of_a_kernel_wider_than_the_image_its_middle_is_left() -> None:
    [network] = rewritten.told("taps", ATROUS)
    assert network["error"] < 1e-5
    assert sorted(network["kernels"]) == [[4, 4, 1, 1], [4, 4, 3, 3]]
