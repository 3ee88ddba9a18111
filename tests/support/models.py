"""Tiny ONNX models."""

from __future__ import annotations

import math
import random
import struct
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from tests.support import wire
from tests.support.wire import Dimensions, Field, message, tensor

_FLOAT, _UINT8, _INT8, _INT64, _BOOL = 1, 2, 3, 7, 9
_FLOAT_ATTRIBUTE, _STRING_ATTRIBUTE = 1, 3
_ALL_FLOAT: Mapping[str, int] = MappingProxyType({})


def small_network(*, seed: int = 0) -> bytes:
    """Two convolutions, pooling and a dense layer: ``image`` [batch, 3, height, width] to ``scores`` [batch, 5]."""
    weights = random.Random(seed)  # noqa: S311 - weights, not secrets
    nodes = [
        _node("Conv", ["image", "w1", "b1"], ["c1"], pads=[1, 1, 1, 1], kernel_shape=[3, 3]),
        _node("Relu", ["c1"], ["r1"]),
        _node("MaxPool", ["r1"], ["p1"], kernel_shape=[2, 2], strides=[2, 2]),
        _node("Conv", ["p1", "w2", "b2"], ["c2"], kernel_shape=[1, 1]),
        _node("Relu", ["c2"], ["r2"]),
        _node("GlobalAveragePool", ["r2"], ["g"]),
        _node("Flatten", ["g"], ["f"], axis=1),
        _node("Gemm", ["f", "w3", "b3"], ["scores"], transB=1),
    ]
    shapes = {"w1": (8, 3, 3, 3), "b1": (8,), "w2": (16, 8, 1, 1), "b2": (16,), "w3": (5, 16), "b3": (5,)}
    tensors = [_floats(name, shape, weights) for name, shape in shapes.items()]
    return model(
        nodes, inputs={"image": ("batch", 3, "height", "width")}, outputs={"scores": ("batch", 5)}, tensors=tensors
    )


def dense_network(*, columns: int = 48) -> bytes:
    """Two dense layers, ``columns`` between them, for each of two: ``x`` [2, 8, 32] to ``y`` [2, 8, 16]."""
    weights = random.Random(0)  # noqa: S311 - weights, not secrets
    nodes = [
        _node("MatMul", ["x", "w1"], ["m1"]),
        _node("Add", ["m1", "b1"], ["a1"]),
        _node("Relu", ["a1"], ["r1"]),
        _node("MatMul", ["r1", "w2"], ["y"]),
    ]
    shapes = {"w1": (32, columns), "b1": (columns,), "w2": (columns, 16)}
    tensors = [_floats(name, shape, weights) for name, shape in shapes.items()]
    return model(nodes, inputs={"x": (2, 8, 32)}, outputs={"y": (2, 8, 16)}, tensors=tensors)


def outlying_network() -> bytes:
    """Four dense layers, ``x`` [4, 16] to ``y`` [4, 16]; in front of ``MatMul_c``, one channel dwarfs the others."""
    weights = random.Random(0)  # noqa: S311 - weights, not secrets
    nodes = [
        _node("MatMul", ["x", "w1"], ["a"]),
        _node("Mul", ["a", "scales"], ["b"]),
        _node("MatMul", ["b", "w2"], ["c"]),
        _node("Relu", ["c"], ["r"]),
        _node("MatMul", ["r", "w3"], ["d"]),
        _node("MatMul", ["d", "w4"], ["y"]),
    ]
    scales = [1000.0] + 15 * [1.0]
    balanced = [weights.uniform(-0.5, 0.5) / scales[place // 16] for place in range(256)]
    tensors = [
        *(_floats(name, (16, 16), weights) for name in ("w1", "w3", "w4")),
        tensor("scales", (16,), _FLOAT, struct.pack("<16f", *scales)),
        tensor("w2", (16, 16), _FLOAT, struct.pack("<256f", *balanced)),
    ]
    return model(nodes, inputs={"x": (4, 16)}, outputs={"y": (4, 16)}, tensors=tensors)


def depthwise_network() -> bytes:
    """An expansion to 48 channels, a depthwise convolution, a projection to 24: ``image`` [1, 8, 10, 10] to ``y``."""
    weights = random.Random(0)  # noqa: S311 - weights, not secrets
    nodes = [
        _node("Conv", ["image", "w1", "b1"], ["c1"], kernel_shape=[1, 1]),
        _node("Clip", ["c1", "low", "high"], ["r1"]),
        _node("Conv", ["r1", "w2", "b2"], ["c2"], kernel_shape=[3, 3], pads=[1, 1, 1, 1], group=48),
        _node("Clip", ["c2", "low", "high"], ["r2"]),
        _node("Conv", ["r2", "w3"], ["y"], kernel_shape=[1, 1]),
    ]
    shapes = {"w1": (48, 8, 1, 1), "b1": (48,), "w2": (48, 1, 3, 3), "b2": (48,), "w3": (24, 48, 1, 1)}
    tensors = [_floats(name, shape, weights) for name, shape in shapes.items()]
    tensors += [tensor(name, (), _FLOAT, struct.pack("<f", value)) for name, value in (("low", 0), ("high", 6))]
    return model(nodes, inputs={"image": (1, 8, 10, 10)}, outputs={"y": (1, 24, 10, 10)}, tensors=tensors)


def normalized_network() -> bytes:
    """Convolutions, a layer norm and a softmax over 49 places: ``image`` [1, 3, 14, 14] to ``y`` [1, 49, 32]."""
    weights = random.Random(0)  # noqa: S311 - weights, not secrets
    nodes = [
        _node("Conv", ["image", "w"], ["c"], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
        _node("Conv", ["c", "w2"], ["c2"], kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        _node("Relu", ["c2"], ["r"]),
        _node("Reshape", ["r", "shape"], ["places"]),
        _node("Transpose", ["places"], ["t"], perm=[0, 2, 1]),
        _node("ReduceMean", ["t"], ["mean"], axes=[2], keepdims=1),
        _node("Sub", ["t", "mean"], ["d"]),
        _node("Mul", ["d", "d"], ["squares"]),
        _node("ReduceMean", ["squares"], ["variance"], axes=[2], keepdims=1),
        _node("Add", ["variance", "epsilon"], ["v"]),
        _node("Sqrt", ["v"], ["deviation"]),
        _node("Div", ["d", "deviation"], ["n"]),
        _node("Mul", ["n", "scale"], ["s"]),
        _node("Softmax", ["s"], ["y"], axis=1),
    ]
    tensors = [
        _floats("w", (32, 3, 3, 3), weights),
        _floats("w2", (32, 32, 3, 3), weights),
        _floats("scale", (32,), weights),
        tensor("epsilon", (), _FLOAT, struct.pack("<f", 1e-5)),
        tensor("shape", (3,), _INT64, struct.pack("<3q", 1, 32, 49)),
    ]
    return model(nodes, inputs={"image": (1, 3, 14, 14)}, outputs={"y": (1, 49, 32)}, tensors=tensors)


def odd_convolution() -> bytes:
    """A convolution whose 61 channels fill no vectors: ``x`` [1, 61, 33, 33] to ``y`` alike.

    TVM without records takes many times as long as ONNX Runtime.
    """
    weights = random.Random(0)  # noqa: S311 - weights, not secrets
    node = _node("Conv", ["x", "w"], ["y"], kernel_shape=[5, 5], pads=[2, 2, 2, 2])
    shape = (1, 61, 33, 33)
    return model([node], inputs={"x": shape}, outputs={"y": shape}, tensors=[_floats("w", (61, 61, 5, 5), weights)])


def unsupported_operators() -> bytes:
    """Two ``Det``, which ONNX Runtime runs and TVM's importer does not know: ``matrix`` [1, 4, 4] to ``sum`` [1]."""
    nodes = [
        _node("Det", ["matrix"], ["first"]),
        _node("Relu", ["matrix"], ["positive"]),
        _node("Det", ["positive"], ["second"]),
        _node("Add", ["first", "second"], ["sum"]),
    ]
    return model(nodes, inputs={"matrix": (1, 4, 4)}, outputs={"sum": (1,)}, opset=11)


def mismatched_channels() -> bytes:
    """A convolution of 3 channels with weights for 5: ``x`` [1, 3, 8, 8] to ``y`` [1, 4, 6, 6]."""
    weights = _floats("w", (4, 5, 3, 3), random.Random(0))  # noqa: S311 - weights, not secrets
    nodes = [_node("Conv", ["x", "w"], ["y"], kernel_shape=[3, 3])]
    return model(nodes, inputs={"x": (1, 3, 8, 8)}, outputs={"y": (1, 4, 6, 6)}, tensors=[weights])


def foreign_operators() -> bytes:
    """Two operators of somebody's own domain, which nobody here knows: ``x`` [4] to ``y`` [4]."""
    domain = message((7, "my.domain"))
    nodes = [_node("Twist", ["x"], ["t"]) + domain, _node("Twist", ["t"], ["y"]) + domain]
    return model(nodes, inputs={"x": (4,)}, outputs={"y": (4,)}) + _imported("my.domain")


def without_an_implementation() -> bytes:
    """An operator that ONNX Runtime has for GPUs only: ``x`` [1, 4, 8] to ``y`` [1, 4, 8]."""
    nodes = [_node("BiasAdd", ["x", "bias", "x"], ["y"]) + message((7, "com.microsoft"))]
    tensors = [_floats("bias", (8,), random.Random(0))]  # noqa: S311 - weights, not secrets
    whole = model(nodes, inputs={"x": (1, 4, 8)}, outputs={"y": (1, 4, 8)}, tensors=tensors)
    return whole + _imported("com.microsoft")


def scalar_bounds() -> bytes:
    """``x`` [4, 16] times its largest element, bounded by its mean and a constant: ``y`` [4, 16]."""
    nodes = [
        _node("ReduceMax", ["x"], ["most"], keepdims=0),
        _node("ReduceMean", ["x"], ["mean"], keepdims=0),
        _node("Max", ["most", "mean", "third"], ["upper"]),
        _node("Min", ["upper", "most"], ["bounded"]),
        _node("Sum", ["bounded", "mean", "third"], ["factor"]),
        _node("Mul", ["x", "factor"], ["y"]),
    ]
    third = tensor("third", (), _FLOAT, struct.pack("<f", 1 / 3))
    return model(nodes, inputs={"x": (4, 16)}, outputs={"y": (4, 16)}, tensors=[third])


def stacked_shifts() -> bytes:
    """A sum of ``x`` [1, 4, 12, 1] beside itself moved up and down, as harmonics are stacked: ``y`` [1, 3, 4, 9]."""
    nodes = [
        _node("Add", ["x", "third"], ["sum"]),
        _node("Slice", ["sum", "none", "nine", "axis"], ["start"]),
        _node("Pad", ["start", "before"], ["down"]),
        _node("Slice", ["sum", "three", "twelve", "axis"], ["end"]),
        _node("Pad", ["end", "behind"], ["up"]),
        _node("Concat", ["down", "sum", "up"], ["joined"], axis=3),
        _node("Slice", ["joined", "none", "nine", "axis"], ["cut"]),
        _node("Transpose", ["cut"], ["y"], perm=[0, 3, 1, 2]),
    ]
    numbers = {"none": [0], "three": [3], "nine": [9], "twelve": [12], "axis": [2]}
    numbers |= {"before": [0, 0, 3, 0, 0, 0, 0, 0], "behind": [0, 0, 0, 0, 0, 0, 3, 0]}
    tensors = [tensor("third", (), _FLOAT, struct.pack("<f", 1 / 3))]
    tensors += [
        tensor(name, (len(each),), _INT64, struct.pack(f"<{len(each)}q", *each)) for name, each in numbers.items()
    ]
    return model(nodes, inputs={"x": (1, 4, 12, 1)}, outputs={"y": (1, 3, 4, 9)}, tensors=tensors)


def plugin_operators(*, functions: bool = False) -> bytes:
    """The operators of the example plugin: ``x`` [6, 32] and ``w`` [32] to ``up`` [6] and ``down`` [6].

    With ``functions`` the model defines them itself, in operators of ONNX, so that ONNX Runtime can run it.
    """
    domain = message((7, "example.domain"))
    nodes = [
        _node("Wave", ["x", "w"], ["wave"], amplitude=3.0) + domain,
        _node("Relu", ["wave"], ["soft"]) + domain,
        _node("Halves", ["soft"], ["up", "down"]) + domain,
    ]
    amplitude = message((5, message((1, "value_float"), (21, "amplitude"), (20, _FLOAT_ATTRIBUTE))))
    wave = [
        _node("MatMul", ["x", "w"], ["m"]),
        _node("Sin", ["m"], ["s"]),
        _node("Constant", [], ["a"]) + amplitude,
        _node("Mul", ["a", "s"], ["y"]),
    ]
    relu = [
        _node("Tanh", ["x"], ["t"]),
        _node("Constant", [], ["h"], value_float=0.5),
        _node("Mul", ["t", "h"], ["y"]),
    ]
    halves = [_node("Relu", ["x"], ["up"]), _node("Neg", ["x"], ["n"]), _node("Relu", ["n"], ["down"])]
    bodies = [
        _function("Wave", ["x", "w"], ["y"], wave, attributes=["amplitude"]),
        _function("Relu", ["x"], ["y"], relu),
        _function("Halves", ["x"], ["up", "down"], halves),
    ]
    whole = model(nodes, inputs={"x": (6, 32), "w": (32,)}, outputs={"up": (6,), "down": (6,)})
    whole += _imported("example.domain")
    return whole + b"".join(bodies) if functions else whole


def block_size_of_the_caller() -> bytes:
    """``x`` [1, 4, 2, 2] to ``y`` [1, 1, 4, 4] by a function that is told its block size."""
    size = message((5, message((1, "blocksize"), (21, "size"), (20, wire.INT))))
    nodes = [_node("Blocks", ["x"], ["y"], size=2) + message((7, "example.domain"))]
    body = [_node("DepthToSpace", ["x"], ["y"]) + size]
    whole = model(nodes, inputs={"x": (1, 4, 2, 2)}, outputs={"y": (1, 1, 4, 4)}) + _imported("example.domain")
    return whole + _function("Blocks", ["x"], ["y"], body, attributes=["size"])


def _function(
    name: str, inputs: Sequence[str], outputs: Sequence[str], nodes: Sequence[bytes], attributes: Sequence[str] = ()
) -> bytes:
    """A function of the example plugin's domain, as a field of ``ModelProto``."""
    parts: list[Field] = [(1, name), *((4, each) for each in inputs), *((5, each) for each in outputs)]
    parts += [*((6, each) for each in attributes), *((7, node) for node in nodes)]
    return message((25, message(*parts, (9, message((2, 13))), (10, "example.domain"))))


def _imported(domain: str) -> bytes:
    """The first version of a domain's operators, as a field of ``ModelProto``."""
    return message((8, message((1, domain), (2, 1))))


def lstm() -> bytes:
    """A recurrent layer and a dense one: ``x`` [3, 1, 4] to ``y`` [3, 1, 5]."""
    weights = random.Random(0)  # noqa: S311 - weights, not secrets
    nodes = [
        _node("LSTM", ["x", "w", "r", "b"], ["states"], hidden_size=6),
        _node("Squeeze", ["states", "axes"], ["flat"]),
        _node("MatMul", ["flat", "dense"], ["y"]),
    ]
    shapes = {"w": (1, 24, 4), "r": (1, 24, 6), "b": (1, 48), "dense": (6, 5)}
    tensors = [_floats(name, shape, weights) for name, shape in shapes.items()]
    tensors.append(tensor("axes", (1,), _INT64, struct.pack("<q", 1)))
    return model(nodes, inputs={"x": (3, 1, 4)}, outputs={"y": (3, 1, 5)}, tensors=tensors)


def reversed_sequences() -> bytes:
    """A dense layer and an operator that relax lacks: ``x`` [3, 4] to ``y`` [3, 5]."""
    weights = random.Random(0)  # noqa: S311 - weights, not secrets
    nodes = [
        _node("MatMul", ["x", "dense"], ["hidden"]),
        _node("ReverseSequence", ["hidden", "lengths"], ["y"], batch_axis=0, time_axis=1),
    ]
    tensors = [_floats("dense", (4, 5), weights), tensor("lengths", (3,), _INT64, struct.pack("<3q", 5, 2, 3))]
    return model(nodes, inputs={"x": (3, 4)}, outputs={"y": (3, 5)}, tensors=tensors)


def quantized_convolution() -> bytes:
    """A convolution of bytes between two pairs: ``x`` [1, 4, 16, 16] to ``y`` [1, 8, 14, 14]."""
    weights = random.Random(0)  # noqa: S311 - weights, not secrets
    nodes = [
        _node("QuantizeLinear", ["x", "xs", "zero"], ["q"]),
        _node("QLinearConv", ["q", "xs", "zero", "w", "ws", "none", "ys", "zero"], ["c"], kernel_shape=[3, 3]),
        _node("DequantizeLinear", ["c", "ys", "zero"], ["y"]),
    ]
    scales = {"xs": 0.031, "ws": 0.0173, "ys": 0.29}
    tensors = [tensor(name, (), _FLOAT, struct.pack("<f", value)) for name, value in scales.items()]
    tensors += [tensor("zero", (), _UINT8, b"\x7b"), tensor("none", (), _INT8, b"\x00")]
    tensors.append(tensor("w", (8, 4, 3, 3), _INT8, weights.randbytes(8 * 4 * 3 * 3)))
    return model(nodes, inputs={"x": (1, 4, 16, 16)}, outputs={"y": (1, 8, 14, 14)}, tensors=tensors)


def quantized_batches() -> bytes:
    """A product of batches of bytes between two pairs: ``x`` [2, 8, 64] to ``y`` [2, 8, 48]."""
    weights = random.Random(0)  # noqa: S311 - weights, not secrets
    nodes = [
        _node("QuantizeLinear", ["x", "xs", "zero"], ["q"]),
        _node("QLinearMatMul", ["q", "xs", "zero", "w", "ws", "none", "ys", "zero"], ["m"]),
        _node("DequantizeLinear", ["m", "ys", "zero"], ["y"]),
    ]
    scales = {"xs": 0.031, "ws": 0.0173, "ys": 0.29}
    tensors = [tensor(name, (), _FLOAT, struct.pack("<f", value)) for name, value in scales.items()]
    tensors += [tensor("zero", (), _UINT8, b"\x7b"), tensor("none", (), _INT8, b"\x00")]
    tensors.append(tensor("w", (2, 64, 48), _INT8, weights.randbytes(2 * 64 * 48)))
    return model(nodes, inputs={"x": (2, 8, 64)}, outputs={"y": (2, 8, 48)}, tensors=tensors)


def dynamically_quantized() -> bytes:
    """A dense layer of bytes, whose input is quantized by its own range: ``x`` [4, 16] to ``y`` [4, 8]."""
    weights = random.Random(0)  # noqa: S311 - weights, not secrets
    nodes = [
        _node("DynamicQuantizeLinear", ["x"], ["q", "scale", "zero"]),
        _node("MatMulInteger", ["q", "w", "zero"], ["sum"]),
        _node("Cast", ["sum"], ["real"], to=_FLOAT),
        _node("Mul", ["real", "scale"], ["y"]),
    ]
    tensors = [tensor("w", (16, 8), _INT8, weights.randbytes(16 * 8))]
    return model(nodes, inputs={"x": (4, 16)}, outputs={"y": (4, 8)}, tensors=tensors)


def pooled_column() -> bytes:
    """A convolution over an image of one column, then its largest: ``x`` [1, 4, 8, 1] to ``y`` [1, 4, 1]."""
    weights = random.Random(0)  # noqa: S311 - weights, not secrets
    nodes = [
        _node("Conv", ["x", "w1"], ["image"], pads=[1, 0, 1, 0], kernel_shape=[3, 1]),
        _node("Squeeze", ["image", "axes"], ["column"]),
        _node("GlobalMaxPool", ["column"], ["y"]),
    ]
    tensors = [_floats("w1", (4, 4, 3, 1), weights), tensor("axes", (1,), _INT64, struct.pack("<q", 3))]
    return model(nodes, inputs={"x": (1, 4, 8, 1)}, outputs={"y": (1, 4, 1)}, tensors=tensors)


def wide_convolution() -> bytes:
    """A 3×3 convolution of so many filters that Ansor computes it by Winograd's: ``x`` [1, 8, 9, 9] to ``y`` alike."""
    weights = random.Random(0)  # noqa: S311 - weights, not secrets
    nodes = [
        _node("Conv", ["x", "w1", "b1"], ["c1"], pads=[1, 1, 1, 1], kernel_shape=[3, 3]),
        _node("Relu", ["c1"], ["r1"]),
        _node("Conv", ["r1", "w2"], ["y"], kernel_shape=[1, 1]),
    ]
    shapes = {"w1": (72, 8, 3, 3), "b1": (72,), "w2": (8, 72, 1, 1)}
    tensors = [_floats(name, shape, weights) for name, shape in shapes.items()]
    return model(nodes, inputs={"x": (1, 8, 9, 9)}, outputs={"y": (1, 8, 9, 9)}, tensors=tensors)


def ranked() -> bytes:
    """The six largest of each row of ``x`` [4, 40] and the two smallest of each column, with their places.

    Outputs are ``large`` and ``high`` [4, 6], ``small`` and ``low`` [2, 40].
    """
    counts = [tensor(name, (1,), _INT64, struct.pack("<q", count)) for name, count in (("six", 6), ("two", 2))]
    nodes = [
        _node("TopK", ["x", "six"], ["large", "high_"]),
        _node("TopK", ["x", "two"], ["small", "low_"], axis=0, largest=0),
        _node("Cast", ["high_"], ["high"], to=_FLOAT),
        _node("Cast", ["low_"], ["low"], to=_FLOAT),
    ]
    outputs = {"large": (4, 6), "high": (4, 6), "small": (2, 40), "low": (2, 40)}
    return model(nodes, inputs={"x": (4, 40)}, outputs=outputs, tensors=counts)


def best_columns() -> bytes:
    """The five largest of each row: ``x`` [batch, 40] to ``y`` [batch, 5] and ``places`` [batch, 5]."""
    nodes = [_node("TopK", ["x", "five"], ["y", "places"], axis=1)]
    outputs: dict[str, Dimensions] = {"y": ("batch", 5), "places": ("batch", 5)}
    tensors = [tensor("five", (1,), _INT64, struct.pack("<q", 5))]
    return model(nodes, inputs={"x": ("batch", 40)}, outputs=outputs, tensors=tensors, kinds={"places": _INT64})


def masked() -> bytes:
    """Truth values as an input, a constant, an output and in between.

    ``flags`` (bool) and ``x`` [4, 40] become ``kept`` (bool), where ``flags``, every other column and the softmax of
    ``x`` beyond 1/40 agree, and ``y``, that softmax where ``kept``, else 0.
    """
    tensors = [
        tensor("share", (1,), _FLOAT, struct.pack("<f", 1 / 40)),
        tensor("zero", (1,), _FLOAT, struct.pack("<f", 0)),
        tensor("columns", (40,), _BOOL, bytes([1, 0]) * 20),
    ]
    nodes = [
        _node("Softmax", ["x"], ["shares"], axis=1),
        _node("Greater", ["shares", "share"], ["high"]),
        _node("And", ["flags", "columns"], ["wanted"]),
        _node("And", ["wanted", "high"], ["kept"]),
        _node("Where", ["kept", "shares", "zero"], ["y"]),
    ]
    shapes = {"flags": (4, 40), "x": (4, 40)}
    kinds = {"flags": _BOOL, "kept": _BOOL}
    return model(nodes, inputs=shapes, outputs={"kept": (4, 40), "y": (4, 40)}, tensors=tensors, kinds=kinds)


def masked_sentences() -> bytes:
    """Attention over ``ids`` [batch, sequence], whose padding has 0 in ``mask``, as a model of sentences has it.

    ``tokens`` [batch, sequence, 12] is what each attends to, ``sentences`` [batch, 12] their sum without the padding.
    """
    weights = random.Random(0)  # noqa: S311 - weights, not secrets
    nodes = [
        _node("Gather", ["table", "ids"], ["words"]),
        _node("MatMul", ["words", "w"], ["queries"]),
        _node("Transpose", ["words"], ["keys"], perm=[0, 2, 1]),
        _node("MatMul", ["queries", "keys"], ["products"]),
        _node("Unsqueeze", ["mask", "first"], ["row"]),
        _node("Sub", ["one", "row"], ["padding"]),
        _node("Mul", ["padding", "large"], ["penalty"]),
        _node("Sub", ["products", "penalty"], ["scores"]),
        _node("Softmax", ["scores"], ["shares"], axis=2),
        _node("MatMul", ["shares", "words"], ["tokens"]),
        _node("Unsqueeze", ["mask", "second"], ["column"]),
        _node("Mul", ["tokens", "column"], ["kept"]),
        _node("ReduceSum", ["kept", "first"], ["sentences"], keepdims=0),
    ]
    axes = {"first": 1, "second": 2}
    numbers = {"one": 1.0, "large": 1e4}
    tensors = [
        *(_floats(name, shape, weights) for name, shape in {"table": (40, 12), "w": (12, 12)}.items()),
        *(tensor(name, (1,), _INT64, struct.pack("<q", axis)) for name, axis in axes.items()),
        *(tensor(name, (1,), _FLOAT, struct.pack("<f", number)) for name, number in numbers.items()),
    ]
    inputs: dict[str, Dimensions] = {"ids": ("batch", "sequence"), "mask": ("batch", "sequence")}
    outputs: dict[str, Dimensions] = {"tokens": ("batch", "sequence", 12), "sentences": ("batch", 12)}
    return model(nodes, inputs=inputs, outputs=outputs, tensors=tensors, kinds={"ids": _INT64})


def nonzero_places() -> bytes:
    """The places of what is not 0 in ``x`` [8]: ``places`` [1, n], as many as there are."""
    nodes = [_node("NonZero", ["x"], ["found"]), _node("Cast", ["found"], ["places"], to=_FLOAT)]
    return model(nodes, inputs={"x": (8,)}, outputs={"places": (1, "n")})


def nonzero_of_types() -> bytes:
    """The places of what is not 0 in ``x`` [3, 4], rounded, as numbers of each type that ONNX Runtime selects by.

    0 is -0 of the real ones.
    """
    types = {"real": _FLOAT, "long": _INT64, "truth": _BOOL}
    nodes = [_node("Add", ["x", "x"], ["twice"]), _node("Floor", ["twice"], ["whole"]), _node("Neg", ["whole"], ["y"])]
    for name, kind in types.items():
        nodes += [_node("Cast", ["y"], [name], to=kind), _node("NonZero", [name], [f"places_{name}"])]
    outputs = {f"places_{name}": (2, f"n_{name}") for name in types}
    return model(nodes, inputs={"x": (3, 4)}, outputs=outputs, kinds=dict.fromkeys(outputs, _INT64))


def selected_again() -> bytes:
    """What exceeds 0.25 in ``x`` [16]: ``y`` [n], its multiples ``all`` [3 n], and of it what exceeds 0.6: ``z`` [m].

    ``first`` are the first two of these.
    """
    nodes = [
        _node("Greater", ["x", "low"], ["some"]),
        _node("Compress", ["x", "some"], ["y"], axis=0),
        _node("Greater", ["y", "high"], ["few"]),
        _node("Compress", ["y", "few"], ["z"], axis=0),
        _node("Slice", ["z", "zero", "two"], ["first"]),
        _node("Unsqueeze", ["y", "one"], ["column"]),
        _node("Mul", ["column", "row"], ["grid"]),
        _node("Reshape", ["grid", "flat"], ["all"]),
    ]
    integers = {"zero": 0, "one": 1, "two": 2, "flat": -1}
    tensors = [
        tensor("low", (), _FLOAT, struct.pack("<f", 0.25)),
        tensor("high", (), _FLOAT, struct.pack("<f", 0.6)),
        tensor("row", (1, 3), _FLOAT, struct.pack("<3f", 1, 2, 3)),
        *(tensor(name, (1,), _INT64, struct.pack("<q", value)) for name, value in integers.items()),
    ]
    outputs = {"y": ("n",), "z": ("m",), "first": ("k",), "all": ("l",)}
    return model(nodes, inputs={"x": (16,)}, outputs=outputs, tensors=tensors)


def places_up_to_a_sum() -> bytes:
    """The first places of what is not 0 in ``x`` [8], up to the sum of that: ``front`` [1, n]."""
    nodes = [
        _node("NonZero", ["x"], ["places"]),
        _node("ReduceSum", ["x"], ["sum"], keepdims=1),
        _node("Cast", ["sum"], ["end"], to=_INT64),
        _node("Slice", ["places", "zero", "end", "one"], ["front"]),
    ]
    tensors = [tensor(name, (1,), _INT64, struct.pack("<q", value)) for name, value in {"zero": 0, "one": 1}.items()]
    outputs = {"front": (1, "n")}
    return model(nodes, inputs={"x": (8,)}, outputs=outputs, tensors=tensors, kinds={"front": _INT64})


def nonzero_of_scalar() -> bytes:
    """The places of what is not 0 in the sum of ``x`` [8]: ``places`` [r, n]."""
    nodes = [_node("ReduceSum", ["x"], ["sum"], keepdims=0), _node("NonZero", ["sum"], ["places"])]
    return model(nodes, inputs={"x": (8,)}, outputs={"places": ("r", "n")}, kinds={"places": _INT64})


def different_values() -> bytes:
    """The different values of ``x`` [8], in order: ``y`` [n]."""
    return model([_node("Unique", ["x"], ["y"], sorted=1)], inputs={"x": (8,)}, outputs={"y": ("n",)})


def suppressed(
    batches: int = 1,
    classes: int = 1,
    most: int = 8,
    overlap: float = 0.4,
    least: float | None = 0.2,
    centered: int = 1,
    count: int = 20,
) -> bytes:
    """Boxes that remain of ``boxes`` [batches, count, 4] by ``scores`` [batches, classes, count].

    Outputs: ``chosen`` [n, 3] and the boxes themselves, ``kept`` [n, 4], as many as there are.
    """
    tensors = [
        tensor("most", (1,), _INT64, struct.pack("<q", most)),
        tensor("overlap", (1,), _FLOAT, struct.pack("<f", overlap)),
        tensor("least", (1,), _FLOAT, struct.pack("<f", least or 0.0)),
        tensor("columns", (2,), _INT64, struct.pack("<2q", 0, 2)),
    ]
    limits = ["most", "overlap", *(["least"] if least is not None else [])]
    nodes = [
        _node("NonMaxSuppression", ["boxes", "scores", *limits], ["chosen"], center_point_box=centered),
        _node("Gather", ["chosen", "columns"], ["places"], axis=1),
        _node("GatherND", ["boxes", "places"], ["kept"]),
    ]
    inputs = {"boxes": (batches, count, 4), "scores": (batches, classes, count)}
    outputs = {"chosen": ("n", 3), "kept": ("n", 4)}
    return model(nodes, inputs=inputs, outputs=outputs, tensors=tensors, kinds={"chosen": _INT64})


def counted_by_values() -> bytes:
    """The largest of ``x`` [8], as many as are not 0 but at most five: ``y`` [n]. Relax cannot import it."""
    constants = {"one": 1, "five": 5}
    nodes = [
        _node("NonZero", ["x"], ["found"]),
        _node("Size", ["found"], ["all"]),
        _node("Reshape", ["all", "one"], ["count"]),
        _node("Concat", ["count", "five"], ["counts"], axis=0),
        _node("ReduceMin", ["counts"], ["least"], keepdims=1),
        _node("TopK", ["x", "least"], ["y", "places"]),
    ]
    tensors = [tensor(name, (1,), _INT64, struct.pack("<q", value)) for name, value in constants.items()]
    return model(nodes, inputs={"x": (8,)}, outputs={"y": ("n",)}, tensors=tensors)


def reduce_mean_18() -> bytes:
    """``ReduceMean`` with its axes as an input, as opset 18 writes it: ``x`` [1, 4, 6, 6] to ``mean`` [1, 4]."""
    axes = tensor("axes", (2,), _INT64, struct.pack("<2q", 2, 3))
    nodes = [_node("Relu", ["x"], ["y"]), _node("ReduceMean", ["y", "axes"], ["mean"], keepdims=0)]
    return model(nodes, inputs={"x": (1, 4, 6, 6)}, outputs={"mean": (1, 4)}, tensors=[axes], opset=18)


def lower_bounds() -> bytes:
    """``Clip`` with one constant bound, as ``torch.clamp(min=…)`` has: ``x`` [1, 4, 6, 6] to ``low``, ``high``."""
    bounds = [tensor(name, (), _FLOAT, struct.pack("<f", 0.5)) for name in ("least", "most")]
    nodes = [_node("Clip", ["x", "least"], ["low"]), _node("Clip", ["x", "", "most"], ["high"])]
    return model(nodes, inputs={"x": (1, 4, 6, 6)}, outputs={"low": (1, 4, 6, 6), "high": (1, 4, 6, 6)}, tensors=bounds)


STACKS = (
    ((2, 3, 4), (4, 5), (2, 3, 5)),
    ((3, 4), (2, 4, 5), (2, 3, 5)),
    ((2, 1, 3, 4), (1, 6, 4, 5), (2, 6, 3, 5)),
    ((5, 2, 3, 4), (2, 4, 5), (5, 2, 3, 5)),
    ((7, 3, 4), (4,), (7, 3)),
)
"""Shapes of two operands of ``MatMul`` and of their product."""


def products_of_stacks() -> bytes:
    """A ``MatMul`` for each of ``STACKS``: ``a0`` and ``b0`` to ``y0``, …"""
    places = range(len(STACKS))
    return model(
        [_node("MatMul", [f"a{each}", f"b{each}"], [f"y{each}"]) for each in places],
        inputs={f"{side}{each}": STACKS[each][index] for each in places for index, side in enumerate("ab")},
        outputs={f"y{each}": STACKS[each][2] for each in places},
    )


def unchanged() -> bytes:
    """An ``Identity``: ``x`` [1, 4] to ``y`` [1, 4]."""
    return model([_node("Identity", ["x"], ["y"])], inputs={"x": (1, 4)}, outputs={"y": (1, 4)})


def crossed_bounds() -> bytes:
    """``Clip`` whose lower bound is above the upper one, which counts: ``x`` [1, 4, 6, 6] to ``mean`` [1, 4, 1, 1]."""
    bounds = [tensor(name, (), _FLOAT, struct.pack("<f", bound)) for name, bound in (("least", 0.7), ("most", 0.3))]
    nodes = [_node("Clip", ["x", "least", "most"], ["y"]), _node("GlobalAveragePool", ["y"], ["mean"])]
    return model(nodes, inputs={"x": (1, 4, 6, 6)}, outputs={"mean": (1, 4, 1, 1)}, tensors=bounds)


def grid_samples(*, opset: int, rank: int, modes: Sequence[str]) -> bytes:
    """``GridSample`` in every mode, beyond every kind of border: ``x`` and ``grid``, in [0, 1), to ``y0``, …

    ``x`` is [1, 2, 5, 6], and a grid of 4×3 pixels; of rank 5 it is [1, 2, 4, 5, 6], and 2×4×3.
    """
    spans = [tensor(name, (1,), _FLOAT, struct.pack("<f", value)) for name, value in (("span", 5.0), ("shift", 2.5))]
    nodes = [_node("Mul", ["grid", "span"], ["wide"]), _node("Sub", ["wide", "shift"], ["points"])]
    ways = [(mode, edge) for mode in modes for edge in ("zeros", "border", "reflection")]
    for place, (mode, edge) in enumerate(ways):
        # Opset 16 and opset 20 have the corners aligned in the opposite half of the ways.
        named = {"mode": mode, "padding_mode": edge, "align_corners": (place + opset // 20) % 2}
        nodes.append(_node("GridSample", ["x", "points"], [f"y{place}"], **named))
    image, points = ((5, 6), (4, 3)) if rank == 4 else ((4, 5, 6), (2, 4, 3))
    return model(
        nodes,
        inputs={"x": (1, 2, *image), "grid": (1, *points, rank - 2)},
        outputs={f"y{place}": (1, 2, *points) for place in range(len(ways))},
        tensors=spans,
        opset=opset,
    )


def without_numbers(*others: str) -> bytes:
    """``x`` [1, 8], 0 to 1, to ``y``, of which every element is NaN, and to ``others``, which are ``x``."""
    nodes = [
        _node("Neg", ["x"], ["n"]),
        _node("Log", ["n"], ["y"]),
        *(_node("Relu", ["x"], [name]) for name in others),
    ]
    return model(nodes, inputs={"x": (1, 8)}, outputs=dict.fromkeys(["y", *others], (1, 8)))


def memory_hog() -> bytes:
    """A constant of 40 GB, written in 191 bytes: ``x`` [1] to ``y`` [1]."""
    size = tensor("size", (1,), _INT64, struct.pack("<q", 10**10))
    nodes = [
        _node("ConstantOfShape", ["size"], ["big"]),
        _node("ReduceMax", ["big"], ["most"], keepdims=0),
        _node("Add", ["x", "most"], ["y"]),
    ]
    return model(nodes, inputs={"x": (1,)}, outputs={"y": (1,)}, tensors=[size], opset=11)


def large_constant(size: int) -> bytes:
    """Some hundred bytes with a constant of ``size`` by ``size`` floats: ``x`` [1, 1] to ``y`` [1, 1]."""
    nodes = [
        _node("Expand", ["one", "shape"], ["constant"]),
        _node("Mul", ["constant", "x"], ["product"]),
        _node("ReduceSum", ["product"], ["y"], keepdims=1),
    ]
    tensors = [
        tensor("one", (1, 1), _FLOAT, struct.pack("<f", 1.0)),
        tensor("shape", (2,), _INT64, struct.pack("<2q", size, size)),
    ]
    return model(nodes, inputs={"x": (1, 1)}, outputs={"y": (1, 1)}, tensors=tensors)


def truncated() -> bytes:
    """The first half of ``small_network``."""
    whole = small_network()
    return whole[: len(whole) // 2]


def model(
    nodes: Sequence[bytes],
    *,
    inputs: Mapping[str, Dimensions],
    outputs: Mapping[str, Dimensions],
    tensors: Sequence[bytes] = (),
    opset: int = 13,
    kinds: Mapping[str, int] = _ALL_FLOAT,
) -> bytes:
    """A whole ``ModelProto``; inputs and outputs are float32, unless ``kinds`` has their name."""
    ends = (
        [wire.end(name, shape, kinds.get(name, _FLOAT)) for name, shape in each.items()] for each in (inputs, outputs)
    )
    return wire.model(wire.graph(nodes, *ends, tensors), opset=opset)


def _node(
    operator: str, inputs: Sequence[str], outputs: Sequence[str], **attributes: int | str | Sequence[int]
) -> bytes:
    ends: list[Field] = [*((1, name) for name in inputs), *((2, name) for name in outputs)]
    described = [_attribute(name, value) for name, value in attributes.items()]
    return message(*ends, (3, f"{operator}_{outputs[0]}"), (4, operator), *((5, each) for each in described))


def _attribute(name: str, value: float | str | Sequence[int]) -> bytes:
    if isinstance(value, float):
        number = wire.varint(2 << 3 | 5) + struct.pack("<f", value)
        return message((1, name)) + number + message((20, _FLOAT_ATTRIBUTE))
    if isinstance(value, str):
        return message((1, name), (4, value), (20, _STRING_ATTRIBUTE))
    return wire.integer(name, value) if isinstance(value, int) else wire.integers(name, value)


def _floats(name: str, shape: Sequence[int], source: random.Random) -> bytes:
    count = math.prod(shape)
    return tensor(name, shape, _FLOAT, struct.pack(f"<{count}f", *(source.uniform(-0.5, 0.5) for _ in range(count))))
