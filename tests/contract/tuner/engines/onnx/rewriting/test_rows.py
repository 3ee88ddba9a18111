from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.tuner.engines.onnx.rewriting import rewritten

pytestmark = pytest.mark.engine

BLOCKS = """
def attention(network, x, length, heads, size, *, packed, biased):
    width = heads * size
    integers = lambda *values: network.weight(np.int64(values))
    def split(name):
        return network.add(
            "Transpose", network.add("Reshape", name, integers(1, length, heads, size)), perm=[0, 2, 1, 3]
        )
    if packed:
        name = network.add("Add", network.add("MatMul", x, network.random(width, 3 * width)), network.random(3 * width))
        name = network.add("Reshape", name, integers(1, length, 3, heads, size))
        name = network.add("Transpose", name, perm=[2, 0, 3, 1, 4])
        q, k, v = (network.add("Gather", name, network.weight(np.int64(place)), axis=0) for place in range(3))
    else:
        q, k, v = (split(network.add("MatMul", x, network.random(width, width))) for _ in range(3))
    scores = network.add("MatMul", q, network.add("Transpose", k, perm=[0, 1, 3, 2]))
    scores = network.add("Mul", scores, network.weight(np.float32(size ** -0.5)))
    if biased:
        scores = network.add("Add", scores, network.random(1, heads, length, length))
    shares = network.add("Softmax", scores, axis=-1)
    mixed = network.add("Transpose", network.add("MatMul", shares, v), perm=[0, 2, 1, 3])
    mixed = network.add("Reshape", mixed, integers(1, length, width))
    return network.add("Add", x, network.add("MatMul", mixed, network.random(width, width)))

def normalized(network, x, width):
    return network.add("LayerNormalization", x, network.random(width), network.random(width), axis=-1)

def layers(network, x, width):
    wide = network.add("Add", network.add("MatMul", x, network.random(width, 2 * width)), network.random(2 * width))
    wide = network.add("Mul", wide, network.add("Sigmoid", wide))
    return network.add("Add", x, network.add("MatMul", wide, network.random(2 * width, width)))
"""

RANDOM = (
    BLOCKS
    + """
told = []
for _ in range(24):
    pick = lambda *values: int(rng.choice(values))
    length, heads, size = pick(29, 37, 49, 50, 77, 197), pick(1, 3), pick(8, 16)
    width = heads * size
    network = Network([1, length, width])
    y = "x"
    for _ in range(pick(1, 2)):
        ways = {"packed": pick(0, 1), "biased": pick(0, 1)}
        y = attention(network, normalized(network, y, width), length, heads, size, **ways)
        y = layers(network, normalized(network, y, width), width)
    first = network.add("Gather", y, network.weight(np.int64(pick(0, -1))), axis=1)
    mean = network.add("ReduceMean", y, axes=[1], keepdims=0)
    cut = network.add("Slice", y, *(network.weight(np.int64([each])) for each in (1, 5, 1)))
    whole = network.add("Softmax", y, axis=1)
    outputs = [[y], [first], [mean, y], [cut, whole]][pick(0, 1, 2, 3)]
    told.append(told_of(network.model(*outputs)))
"""
)

BLOCK = (
    BLOCKS
    + """
told = []
for length in (197, 192):
    network = Network([1, length, 48])
    y = attention(network, "x", length, 3, 16, packed=0, biased=0)
    first = network.add("Gather", layers(network, y, 48), network.weight(np.int64(0)), axis=1)
    told.append(told_of(network.model(first)))
"""
)

SUMMED = """
told = []
for known in (0, 1):
    network = Network([1, 2, 37, 37])
    left = network.add("Softmax", "x", axis=-1) if known else "x"
    right = network.add("Transpose", network.add("MatMul", "x", network.random(37, 16)), perm=[0, 1, 3, 2])
    told.append(told_of(network.model(network.add("MatMul", right, left), network.add("MatMul", right, "x"))))
"""

MASKED = """
network = Network([1, 37, 16])
mask = np.zeros((37, 37), np.float32)
mask[5] = np.finfo(np.float32).min
scores = network.add("MatMul", "x", network.add("Transpose", "x", perm=[0, 2, 1]))
shares = network.add("Softmax", network.add("Add", scores, network.weight(mask)), axis=-1)
told = [told_of(network.model(network.add("MatMul", shares, "x")))]
"""


def test_padded_sequences_compute_the_same() -> None:
    networks = rewritten.told("rows", RANDOM)
    assert max(network["error"] for network in networks) < 1e-5
    assert all(network["count"] for network in networks)


def test_a_sequence_stays_padded_from_the_first_product_to_the_last() -> None:
    prime, whole = rewritten.told("rows", BLOCK)
    assert (prime["operators"].count("Pad"), prime["operators"].count("Slice")) == (1, 0)
    assert prime["error"] < 1e-5
    assert whole["count"] == 0


def test_sums_over_the_sequence_leave_padding_out() -> None:
    for network in rewritten.told("rows", SUMMED):
        assert network["count"]
        assert network["error"] < 1e-5


def test_padding_has_no_share_of_rows_that_are_masked_as_a_whole() -> None:
    [network] = rewritten.told("rows", MASKED)
    assert network["count"]
    assert network["error"] < 1e-5


QUANTIZED = (
    BLOCKS
    + """
from onnxruntime import quantization
from tuner.engines.onnx.rewriting import applying

network = Network([1, 197, 24])
y = attention(network, normalized(network, "x", 24), 197, 3, 8, packed=True, biased=True)
y = layers(network, normalized(network, y, 24), 24)

class Reader(quantization.CalibrationDataReader):
    def __init__(self):
        self.left = iter([{"x": rng.uniform(-1, 1, (1, 197, 24)).astype(np.float32)} for _ in range(2)])

    def get_next(self):
        return next(self.left, None)

paths = [f"{sys.argv[2]}/{name}.onnx" for name in ("float", "quantized", "rewritten")]
onnx.save(network.model(network.add("ReduceMean", y, axes=[1], keepdims=0)), paths[0])
quantization.quantize_static(*paths[:2], Reader(), per_channel=True)
answer = applying.rewrite(paths[1], 16, paths[2], {"rows": rewriting.apply})
found = onnx.shape_inference.infer_shapes(onnx.load(paths[2])).graph
sizes = {each.name: [size.dim_value for size in each.type.tensor_type.shape.dim] for each in found.value_info}
rows = [sizes[node.output[0]][-2] for node in found.node if node.op_type == "MatMul"]
told = [{**answer, "rows": rows}]
"""
)


def test_sequences_of_quantized_models_are_padded_from_the_first_product_on(tmp_path: Path) -> None:
    [told] = rewritten.told("rows", QUANTIZED, tmp_path)
    assert told["undone"] == {}
    assert set(told["rows"]) == {208}
