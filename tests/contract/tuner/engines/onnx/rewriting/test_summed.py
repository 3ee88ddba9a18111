from __future__ import annotations

import pytest

from tests.support.tuner.engines.onnx.rewriting import rewritten

pytestmark = pytest.mark.engine

TERMS = """
def normalized(network, source):
    variance = network.weight(rng.uniform(0.5, 2, 8).astype(np.float32))
    return network.add("BatchNormalization", source, *(network.random(8) for _ in range(3)), variance, epsilon=1e-3)

def convolved(network, source, group, kernel, **how):
    how = {"pads": [size // 2 for size in kernel] * 2, **how}
    return network.add("Conv", source, network.random(8, 8 // group, *kernel), network.random(8), group=group, **how)
"""

RANDOM = """
pick = lambda *values: values[int(rng.integers(len(values)))]

def term(network, source, rank, stride):
    kind = pick("convolved", "convolved", "normalized", "itself") if stride == 1 else "convolved"
    if kind == "itself":
        return source
    if kind == "normalized":
        return normalized(network, source)
    kernel, dilations = [pick(1, 3, 5) for _ in range(rank)], [pick(1, 1, 2) for _ in range(rank)]
    reach = [(size - 1) * dilation for size, dilation in zip(kernel, dilations)]
    before = [size // 2 + pick(0, 0, 0, 1) * (size > 0) for size in reach]
    pads = before + [size - own for size, own in zip(reach, before)]
    return convolved(network, source, pick(1, 1, 2, 8), kernel, strides=[stride] * rank, dilations=dilations, pads=pads)

told = []
for _ in range(120):
    rank, stride = pick(1, 2, 2, 3), pick(1, 1, 2)
    network = Network([1, 8, *(pick(4, 5, 7) for _ in range(rank))])
    source = network.add("Relu", "x")
    total, outputs = term(network, source, rank, stride), set()
    for _ in range(pick(1, 2, 4)):
        other = term(network, pick(source, source, source, "x"), rank, stride)
        total = network.add(pick("Add", "Sub"), *pick((total, other), (other, total)))
        if pick(0, 0, 1):
            factors = network.random(*pick((8, *[1] * rank), (1, 8, *[1] * rank), (1,), ()))
            total = network.add("Mul", *pick((total, factors), (factors, total)))
        if pick(0, 0, 0, 1):
            outputs.add(pick(total, other))
    told.append(told_of(network.model(network.add("Relu", total), *sorted(outputs - {source, "x"}))))
"""

LAYERS = """
def layer(*terms):
    network = Network([1, 8, 9, 9])
    source = network.add("Relu", "x")
    total, *others = [term(network, source) for term in terms]
    for other in others:
        total = network.add("Add", total, other)
    return told_of(network.model(network.add("Relu", total)))

conv = lambda group, *kernel, **how: lambda network, source: convolved(network, source, group, kernel, **how)
itself = lambda network, source: source
wide = {"dilations": [2, 2], "pads": [2, 2, 2, 2]}
told = [
    layer(conv(1, 1, 1), conv(1, 3, 3), normalized, itself),
    layer(conv(8, 1, 1), conv(8, 3, 3), conv(8, 3, 3), normalized),
    layer(conv(1, 3, 3, **wide), conv(1, 1, 1)),
    layer(conv(1, 3, 3), conv(8, 3, 3)),
    layer(conv(1, 1, 1), conv(8, 3, 3)),
    layer(conv(1, 1, 3), conv(1, 3, 1)),
    layer(conv(1, 3, 3, **wide), conv(1, 3, 3)),
    layer(normalized, itself),
]
"""


def test_sums_of_convolutions_of_one_tensor_compute_the_same() -> None:
    networks = rewritten.told("summed", TERMS + RANDOM)
    assert max(network["error"] for network in networks) < 1e-5
    assert sum(network["count"] for network in networks) > 40


def test_only_what_costs_no_more_taps_is_joined() -> None:
    networks = rewritten.told("summed", TERMS + LAYERS)
    assert [network["count"] for network in networks] == [3, 3, 1, 1, 0, 0, 0, 0]
    assert all(network["operators"] == ["Relu", "Conv", "Relu"] for network in networks[:4])
    assert max(network["error"] for network in networks) < 1e-5
