from __future__ import annotations

import pytest

from tests.support.tuner.engines.onnx.rewriting import rewritten

pytestmark = pytest.mark.engine

RANDOM = """
told = []
for _ in range(40):
    pick = lambda *values: int(rng.choice(values))
    groups = pick(2, 3, 4)
    each = pick(4, 7, 8, 14, 15)
    channels = groups * each
    network = Network([pick(1, 2), channels, 6, 5])
    x, kernel, bias = "x", pick(1, 3), pick(0, 1)
    if pick(0, 1):
        x = network.add("Relu", x)
    more = lambda count: [network.random(count)] * bias
    y = network.add("Conv", x, network.random(channels, each, kernel, kernel), *more(channels), group=groups,
                    pads=[kernel // 2] * 4)
    y = network.add("Add", network.add("Relu", y), network.random(channels, 1, 1))
    shuffled = pick(0, 1)
    if shuffled:
        split = network.add("Reshape", y, network.weight(np.int64([-1, groups, each, 6, 5])))
        y = network.add("Transpose", split, perm=[0, 2, 1, 3, 4])
        y = network.add("Reshape", y, network.weight(np.int64([-1, channels, 6, 5])))
    y = network.add("Conv", y, network.random(channels, 1, 3, 3), *more(channels), group=channels, pads=[1] * 4)
    y = network.add("Conv", y, network.random(channels, each, 1, 1), *more(channels), group=groups)
    y = network.add("Sum", y, x)
    z = network.add("AveragePool", network.add("Sigmoid", y), kernel_shape=[2, 2])
    told.append(told_of(network.model(z, *[y] * pick(0, 1))))
"""

UNIT = """
network = Network([1, 28, 6, 6], opset=int(sys.argv[2]))
y = network.add("Relu", network.add("Conv", "x", network.random(28, 14, 1, 1), group=2))
y = network.add("Reshape", y, network.weight(np.int64([1, 2, 14, 6, 6])))
y = network.add("Transpose", y, perm=[0, 2, 1, 3, 4])
y = network.add("Reshape", y, network.weight(np.int64([1, 28, 6, 6])))
y = network.add("Conv", y, network.random(28, 1, 3, 3), group=28, pads=[1] * 4)
y = network.add("Conv", y, network.random(28, 14, 1, 1), group=2)
told = [told_of(network.model(network.add("Add", y, "x")))]
"""

DIVIDED = """
network = Network([1, 28, 6, 6])
y = network.add("Conv", "x", network.random(28, 14, 1, 1), group=2)
y = network.add("Div", y, network.weight(rng.uniform(1, 2, (28, 1, 1)).astype(np.float32)))
told = [told_of(network.model(network.add("Conv", y, network.random(28, 14, 1, 1), group=2)))]
"""

LEFT = """
told = []
for channels, each, groups in ((32, 8, 4), (10, 5, 2), (16, 16, 1), (6, 1, 6)):
    network = Network([1, channels, 5, 5])
    y = network.add("Conv", "x", network.random(channels, each, 1, 1), group=groups)
    told.append(told_of(network.model(y)))
"""


def test_padded_groups_compute_the_same() -> None:
    networks = rewritten.told("groups", RANDOM)
    assert max(network["error"] for network in networks) < 1e-5
    assert sum(network["count"] == 2 for network in networks) > 10


@pytest.mark.parametrize("opset", [9, 10, 17])
def test_groups_stay_padded_through_a_unit_of_a_shuffling_network(opset: int) -> None:
    [unit] = rewritten.told("groups", UNIT, opset)
    shuffle = ["Reshape", "Slice", "Reshape", "Reshape", "Transpose", "Reshape"]
    pad = ["Reshape", "Pad", "Reshape"]
    # The input is padded once, for the first convolution and the sum.
    assert unit["operators"] == [*pad, "Conv", "Relu", *shuffle, *pad, "Conv", "Conv", "Add", *shuffle[:3]]
    assert (unit["count"], unit["error"] < 1e-5) == (2, True)


def test_padding_is_divided_by_no_zeros() -> None:
    [network] = rewritten.told("groups", DIVIDED)
    assert (network["count"], network["error"] < 1e-5) == (2, True)


def test_groups_of_whole_vectors_or_too_few_channels_are_left() -> None:
    assert [network["count"] for network in rewritten.told("groups", LEFT)] == [0] * 4
