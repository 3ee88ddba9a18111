from __future__ import annotations

import pytest

from tests.support.tuner.engines.onnx.rewriting import rewritten

pytestmark = pytest.mark.engine

RANDOM = """
told = []
while len(told) < 80:
    pick = lambda *values: int(rng.choice(values))
    shape = [pick(1, 2), pick(1, 3), pick(9, 10), pick(5, 6), pick(4, 5)]
    network = Network(shape)
    features, kernel = pick(2, 4), [pick(1, 2, 3), pick(1, 3), pick(2, 3)]
    pads, dilations = [pick(0, 1) for _ in range(6)], [pick(1, 2), 1, 1]
    given = [network.random(features, shape[1], *kernel)] + [network.random(features)] * pick(0, 1)
    y = network.add("Conv", "x", *given, strides=[pick(1, 2), pick(1, 2), 1], pads=pads, dilations=dilations)
    statistics = [network.weight(rng.uniform(1, 2, features).astype(np.float32)) for _ in range(4)]
    y = network.add("Relu", network.add("BatchNormalization", y, *statistics))
    z = network.add("Conv", y, network.random(features, features, 3, 3, 3), pads=[1] * 6)
    y = network.add("PRelu", network.add("Add", z, y), network.random(features, 1, 1, 1))
    if pick(0, 1):
        y = network.add("InstanceNormalization", y, network.random(features), network.random(features), epsilon=1e-3)
    y = network.add("Mul", y, network.random(1))
    y = network.add("Mul", y, network.add("Sigmoid", network.add("GlobalAveragePool", y)))
    if pick(0, 1):
        scale = [pick(1, 2, 2), 2, 2]
        given = [network.random(features, 3, *scale)] + [network.random(3)] * pick(0, 1)
        z = network.add("ConvTranspose", z, *given, strides=scale)
        z = network.add("Concat", z, network.add("Neg", z), axis=pick(1, -4))
        y = network.add("Conv", z, network.random(features, 6, 1, 1, 1))
    if pick(0, 1):
        y = network.add("Conv", y, network.random(features, 1, pick(1, 3), 1, 1), group=features,
                        pads=[1, 0, 0, 1, 0, 0])
    z = network.add("MaxPool", y, kernel_shape=[pick(1, 2), 2, 1], strides=[pick(1, 2), 1, 1])
    told.append(told_of(network.model(*([network.add("GlobalAveragePool", z)] if pick(0, 1) else [z, y]))))
"""

LEFT = """
told = []
for operator, attributes in (("Conv", {"auto_pad": "SAME_UPPER"}), ("ConvTranspose", {}),
                             ("ConvTranspose", {"strides": [2, 2, 2], "pads": [1, 0, 0, 0, 0, 0]})):
    network = Network([1, 4, 3, 4, 4])
    told.append(told_of(network.model(network.add(operator, "x", network.random(4, 4, 2, 2, 2), **attributes))))
network = Network([2, 4, 5, 4, 4])
told.append(told_of(network.model(network.add("Conv", "x", network.random(4, 4, 1, 1, 1), strides=[2, 1, 1]))))
network = Network([1, 4, 4, 4])
told.append(told_of(network.model(network.add("Conv", "x", network.random(4, 4, 2, 2)))))
"""

BATCH = """
network = Network([4, 8, 20, 20])
y = network.add("Relu", network.add("Conv", "x", network.random(62, 8, 3, 3), network.random(62)))
y = network.add("Pad", y, network.weight(np.array([1, 0, 0, 0, 1, 0, 0, 0])))
bounds = [network.weight(np.array([each])) for each in (1, 6, 0, 2)]
y = network.add("Slice", y, *bounds)
told = [told_of(network.model(network.add("Conv", y, network.random(64, 62, 3, 3))))]
"""


def test_channels_stay_padded_through_planes_that_are_added_and_chosen() -> None:
    [network] = rewritten.told("aligned.padding", BATCH)
    assert network["error"] < 1e-5
    # Nothing cuts the padding in between.
    assert (network["count"], network["operators"]) == (1, ["Conv", "Relu", "Pad", "Slice", "Conv"])


def test_convolutions_of_planes_compute_what_those_of_volumes_did() -> None:
    networks = rewritten.told("volumes", RANDOM)
    assert max(network["error"] for network in networks) < 1e-5
    assert sum(network["count"] >= 2 for network in networks) > 40
    # From one convolution to the next, the form stays, but for groups of several planes.
    assert max(network["operators"].count("Transpose") for network in networks) <= 9


def test_overlapping_planes_of_transposed_ones_and_steps_in_a_batch_are_left() -> None:
    assert [network["count"] for network in rewritten.told("volumes", LEFT)] == [0] * 5
