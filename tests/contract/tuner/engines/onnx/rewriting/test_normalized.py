from __future__ import annotations

import pytest

from tests.support.tuner.engines.onnx.rewriting import rewritten

pytestmark = pytest.mark.engine

GROUPED = """
def normalized(network, source, shape, groups, scale=None, bias=None):
    given = [network.random(groups) if each is None else network.weight(each) for each in (scale, bias)]
    if groups == shape[1] and rng.choice(2):
        return network.add("InstanceNormalization", source, *given, epsilon=1e-4)
    rows = network.add("Reshape", source, network.weight(np.int64([shape[0], groups, -1])))
    made = network.add("InstanceNormalization", rows, *given, epsilon=1e-4)
    return network.add("Reshape", made, network.weight(np.int64(shape)))
"""

RANDOM = """
told = []
for _ in range(40):
    pick = lambda *values: int(rng.choice(values))
    groups, size, batch, rank, opset = pick(1, 2, 4), pick(1, 2, 3), pick(1, 2), pick(1, 2, 3), pick(13, 17, 18)
    shape = [batch, groups * size, *(pick(1, 4, 7) for _ in range(rank))]
    network = Network(shape, opset=opset)
    source = network.add("Relu", "x") if pick(0, 1) else "x"
    y = normalized(network, source, shape, groups)
    ones = [1] * rank
    y = network.add("Add", network.add("Mul", y, network.random(shape[1], *ones)), network.random(shape[1], *ones))
    told.append(told_of(network.model(network.add("Sigmoid", y))))
"""

OTHERS = """
def of(shape, groups, made=None):
    network = Network(shape)
    rows = network.add("Reshape", "x", network.weight(np.int64([shape[0], groups, -1])))
    y = network.add("InstanceNormalization", rows, network.random(groups), network.random(groups))
    return told_of(network.model(network.add("Reshape", y, network.weight(np.int64(made or shape)))))

told = [of([1, 4, 3, 3], 6), of([2, 4, 3, 3], 2, [1, 8, 3, 3]), of([1, 6], 2)]
"""

LINES = """
told = []
for groups, opset in ((1, 17), (1, 18), (2, 17)):
    network = Network([1, 8, 64], opset=opset)
    y = network.add("Conv", "x", network.random(8, 8, 3), network.random(8), pads=[1, 1])
    y = normalized(network, y, [1, 8, 64], groups)
    y = network.add("Conv", y, network.random(8, 8, 3), network.random(8), pads=[1, 1])
    model = network.model(y)
    assert importlib.import_module("tuner.engines.onnx.rewriting.normalized").apply(model, 16) == 1
    told.append(told_of(model))
"""


def test_normalizations_compute_the_same_without_reshaping_what_they_normalize() -> None:
    networks = rewritten.told("normalized", GROUPED + RANDOM)
    assert all(network["count"] == 1 for network in networks)
    assert all("InstanceNormalization" not in network["operators"] for network in networks)
    assert max(network["error"] for network in networks) < 1e-5


def test_rows_that_are_no_groups_of_channels_stay() -> None:
    assert [network["count"] for network in rewritten.told("normalized", GROUPED + OTHERS)] == [0] * 3


def test_normalized_lines_stay_in_their_form() -> None:
    """The only reshapes are those of the input and the output, and of one number for each group or channel."""
    networks = rewritten.told("lines", GROUPED + LINES)
    assert max(network["error"] for network in networks) < 1e-5
    assert [network["count"] for network in networks] == [2, 2, 2]
    assert [network["operators"].count("Reshape") for network in networks[:2]] == [2, 2]


OTHER_MEANS = """
told = []
for opset, axes, keepdims in ((18, None, 1), (18, [1], 1), (18, [-1], 0), (17, None, 1), (17, [-1], 1)):
    network = Network([1, 8, 64], opset=opset)
    y = network.add("Conv", "x", network.random(8, 8, 3), network.random(8), pads=[1, 1])
    listed = {} if axes is None or opset > 17 else {"axes": axes}
    given = [network.weight(np.int64(axes)) if axes else ""] if opset > 17 else []
    mean = network.add("ReduceMean", y, *given, keepdims=keepdims, **listed)
    outputs = [network.add("Mul", y, mean)] if keepdims else [y, mean]
    told.append(told_of(network.model(*outputs)))
"""


def test_other_means_of_lines_compute_the_same() -> None:
    """Of everything, of channels alone, without the axis that was averaged, and of the line."""
    networks = rewritten.told("lines", OTHER_MEANS)
    assert [network["count"] for network in networks] == [1] * 5
    assert max(network["error"] for network in networks) < 1e-5
