"""Tiny networks of the operators that this engine is there for."""

from __future__ import annotations

import math
import random
import struct
from collections.abc import Sequence
from typing import Any

from tests.support import models
from tests.support.models import _floats, _node
from tests.support.wire import tensor

_FLOAT, _UINT8, _INT8, _INT32, _INT64, _BFLOAT16 = 1, 2, 3, 6, 7, 16


def grid_sample(opset: int) -> bytes:
    """``image`` [1, 2, 6, 6] sampled at ``grid`` [1, 4, 4, 2], as an operator of opset 16 or 20."""
    nodes = [_node("GridSample", ["image", "grid"], ["s"]), _node("Relu", ["s"], ["sampled"])]
    inputs = {"image": (1, 2, 6, 6), "grid": (1, 4, 4, 2)}
    return models.model(nodes, inputs=inputs, outputs={"sampled": (1, 2, 4, 4)}, opset=opset)


def warped_convolution(opset: int) -> bytes:
    """A convolution whose result is sampled at ``grid``, as ``grid_sample`` does."""
    weights = random.Random(0)  # noqa: S311 - weights, not secrets
    nodes = [_node("Conv", ["image", "w"], ["c"], kernel_shape=[3, 3], pads=[1, 1, 1, 1])]
    nodes += [_node("GridSample", ["c", "grid"], ["s"]), _node("Relu", ["s"], ["sampled"])]
    inputs = {"image": (1, 2, 6, 6), "grid": (1, 4, 4, 2)}
    tensors = [_floats("w", (4, 2, 3, 3), weights)]
    return models.model(nodes, inputs=inputs, outputs={"sampled": (1, 4, 4, 4)}, tensors=tensors, opset=opset)


def attention(*, size: int = 16, length: int = 8) -> bytes:
    """One head of attention with its residual and layer norm: ``tokens`` [1, length, size] to ``mixed``, likewise."""
    weights = random.Random(0)  # noqa: S311 - weights, not secrets
    nodes = [_node("MatMul", ["tokens", f"w{name}"], [name]) for name in "qkv"]
    nodes += [
        _node("Transpose", ["k"], ["kt"], perm=[0, 2, 1]),
        _node("MatMul", ["q", "kt"], ["scores"]),
        _node("Softmax", ["scores"], ["shares"], axis=2),
        _node("MatMul", ["shares", "v"], ["context"]),
        _node("Add", ["context", "tokens"], ["sum"]),
        _node("LayerNormalization", ["sum", "scale", "shift"], ["mixed"], axis=2),
    ]
    tensors = [_floats(f"w{name}", (size, size), weights) for name in "qkv"]
    tensors += [_floats(name, (size,), weights) for name in ("scale", "shift")]
    shape = (1, length, size)
    return models.model(nodes, inputs={"tokens": shape}, outputs={"mixed": shape}, tensors=tensors, opset=18)


def long_attention() -> bytes:
    """Attention of ``q`` [1, 2, 512, 12], ``k`` and ``l`` [1, 2, 12, 2048], ``mask`` [1, 1, 1, 2048] and ``v``
    [1, 2, 2048, 24]; the first result is of rows of scores, the second one of columns."""
    nodes = [_node("MatMul", ["q", "k"], ["scores"]), _node("Mul", ["scores", "scale"], ["scaled"])]
    nodes += [_node("Add", ["scaled", "mask"], ["masked"]), _node("Softmax", ["masked"], ["shares"], axis=3)]
    nodes += [_node("MatMul", ["shares", "v"], ["mixed"]), _node("MatMul", ["q", "l"], ["again"])]
    nodes += [_node("Softmax", ["again"], ["turned"], axis=2), _node("MatMul", ["turned", "v"], ["crossed"])]
    keys = (1, 2, 12, 2048)
    inputs = {"q": (1, 2, 512, 12), "k": keys, "l": keys, "mask": (1, 1, 1, 2048), "v": (1, 2, 2048, 24)}
    outputs = {"mixed": (1, 2, 512, 24), "crossed": (1, 2, 512, 24)}
    tensors = [tensor("scale", (), 1, struct.pack("<f", 0.3))]
    return models.model(nodes, inputs=inputs, outputs=outputs, tensors=tensors, opset=17)


def activations() -> bytes:
    """What compilers call libm for: ``x`` [1, 12, 48] to a sum of activations, powers and softmax, likewise."""
    unary = ("Sigmoid", "Tanh", "Erf", "Exp", "Gelu", "Softmax", "LogSoftmax", "Softplus", "Sin", "Cos")
    nodes = [_node(name, ["x"], [name]) for name in unary]
    nodes += [_node("Gelu", ["x"], ["bent"], approximate="tanh"), _node("Div", ["x", "divisor"], ["part"])]
    nodes += [_node("Mul", ["x", "Sigmoid"], ["swish"]), _node("Pow", ["Exp", "exponent"], ["root"])]
    nodes += [_node("Pow", ["x", "square"], ["squared"]), _node("LayerNormalization", ["x", "scale"], ["normal"])]
    terms = ("Tanh", "Erf", "Gelu", "Softmax", "bent", "part", "swish", "root", "squared", "normal", *unary[6:])
    nodes.append(_node("Sum", list(terms), ["y"]))
    numbers = {"divisor": 1.7, "exponent": -0.5, "square": 2.0}
    tensors = [tensor(name, (), 1, struct.pack("<f", number)) for name, number in numbers.items()]
    tensors.append(_floats("scale", (48,), random.Random(0)))  # noqa: S311 - weights, not secrets
    return models.model(nodes, inputs={"x": (1, 12, 48)}, outputs={"y": (1, 12, 48)}, tensors=tensors, opset=20)


def rounding() -> bytes:
    """``x`` [4, 48] to ``y`` alike, and nothing else."""
    return models.model([_node("Round", ["x"], ["y"])], inputs={"x": (4, 48)}, outputs={"y": (4, 48)})


def rows(columns: int) -> bytes:
    """Operators along the last axis of ``x`` [2, 40, columns], and along the last two."""
    axes = {"last": [-1], "both": [1, 2]}
    nodes = [
        _node("Softmax", ["x"], ["shares"], axis=2),
        _node("Transpose", ["shares"], ["turned"], perm=[0, 2, 1]),
        _node("LayerNormalization", ["x", "scale"], ["normal"], axis=2),
        _node("ReduceMean", ["x", "last"], ["mean"], keepdims=0),
        _node("ReduceMax", ["x", "last"], ["most"], keepdims=1),
        _node("ReduceSum", ["x", "both"], ["planes"], keepdims=0),
    ]
    tensors = [tensor(name, (len(each),), _INT64, struct.pack(f"<{len(each)}q", *each)) for name, each in axes.items()]
    tensors.append(_floats("scale", (columns,), random.Random(0)))  # noqa: S311 - weights, not secrets
    whole = (2, 40, columns)
    outputs = {
        "shares": whole, "turned": (2, columns, 40), "normal": whole, "mean": (2, 40), "most": (2, 40, 1),
        "planes": (2,),
    }  # fmt: skip
    return models.model(nodes, inputs={"x": whole}, outputs=outputs, tensors=tensors, opset=18)


def instances() -> bytes:
    """Means and normalization along axes that no vector divides: of ``x`` [2, 6, 5, 5], and of ``line`` [2, 6, 37]."""
    axes = tensor("axes", (2,), _INT64, struct.pack("<2q", 2, 3))
    nodes = [
        _node("InstanceNormalization", ["x", "scale", "bias"], ["images"]),
        _node("InstanceNormalization", ["line", "scale", "bias"], ["lines"]),
        _node("ReduceMean", ["x", "axes"], ["means"], keepdims=0),
        _node("ReduceSum", ["x", "axes"], ["sums"], keepdims=1),
        _node("ReduceMax", ["x", "axes"], ["most"], keepdims=0),
        _node("GlobalAveragePool", ["x"], ["pooled"]),
    ]
    weights = random.Random(0)  # noqa: S311 - weights, not secrets
    tensors = [axes, _floats("scale", (6,), weights), _floats("bias", (6,), weights)]
    image, line = (2, 6, 5, 5), (2, 6, 37)
    outputs = {
        "images": image, "lines": line, "means": (2, 6), "sums": (2, 6, 1, 1), "most": (2, 6), "pooled": (2, 6, 1, 1),
    }  # fmt: skip
    return models.model(nodes, inputs={"x": image, "line": line}, outputs=outputs, tensors=tensors, opset=18)


def transposes() -> bytes:
    """Transpositions of ``x`` [3, 48, 37, 40], whose sizes tiles divide or not, also with a size of 1 removed."""
    shape, flat = (3, 48, 37, 40), tensor("flat", (2,), _INT64, struct.pack("<2q", 40, 3 * 48 * 37))
    orders = {"last": (0, 1, 3, 2), "channels": (0, 2, 3, 1), "batch": (3, 1, 2, 0), "none": (0, 2, 1, 3)}
    nodes = [_node("Relu", ["x"], ["r"])]
    for name, order in orders.items():
        nodes += [_node("Transpose", ["x"], [f"{name}_t"], perm=list(order)), _node("Neg", [f"{name}_t"], [name])]
    nodes += [_node("Transpose", ["r"], ["turned"], perm=[3, 0, 1, 2]), _node("Reshape", ["turned", "flat"], ["lines"])]
    outputs = {name: tuple(shape[axis] for axis in order) for name, order in orders.items()}
    outputs["lines"] = (40, 3 * 48 * 37)
    return models.model(nodes, inputs={"x": shape}, outputs=outputs, tensors=[flat], opset=13)


def line_of_a_batch() -> bytes:
    """``x`` [2, 16, 1, 40] to ``y`` [2, 8, 1, 39]: a convolution between whose loops is one of a single step."""
    weights = random.Random(0)  # noqa: S311 - weights, not secrets
    nodes = [_node("Conv", ["x", "w", "b"], ["y"], kernel_shape=[1, 4], pads=[0, 1, 0, 1])]
    tensors = [_floats("w", (8, 16, 1, 4), weights), _floats("b", (8,), weights)]
    return models.model(nodes, inputs={"x": (2, 16, 1, 40)}, outputs={"y": (2, 8, 1, 39)}, tensors=tensors)


def concatenations() -> bytes:
    """Along every axis of ``x`` [2, 300, 96] and ``y`` [2, 300, 30]: of few parts and many, between other operators.

    Of ``z`` [7], many are joined.
    """
    parts = [f"part{place}" for place in range(20)]
    nodes = [
        _node("Neg", ["y"], ["minus"]),
        _node("Concat", ["x", "minus", "y"], ["columns"], axis=2),
        _node("Relu", ["columns"], ["last"]),
        _node("Concat", ["x", "x"], ["middle"], axis=-2),
        _node("Concat", ["y", "minus"], ["first"], axis=0),
        _node("Concat", ["x", "x"], ["stacked"], axis=0),
        _node("Transpose", ["first"], ["turned"], perm=[2, 0, 1]),
        _node("Split", ["x", "sizes"], parts, axis=1),
        _node("Concat", [*reversed(parts), "x"], ["many"], axis=-2),
        _node("Concat", parts[:10], ["low"], axis=1),
        _node("Concat", parts[10:], ["high"], axis=1),
        _node("Concat", ["high", "low"], ["nested"], axis=1),
        _node("Cast", ["y"], ["integers"], to=_INT64),
        _node("Concat", ["integers"] * 17, ["whole"], axis=0),
        _node("Cast", ["whole"], ["counts"], to=1),
        _node("Concat", ["z"] * 17, ["line"], axis=0),
    ]
    tensors = [tensor("sizes", (20,), _INT64, struct.pack("<20q", *(1, 29) * 10))]
    outputs = {"last": (2, 300, 156), "middle": (2, 600, 96), "turned": (30, 4, 300), "many": (2, 600, 96)}
    outputs |= {"stacked": (4, 300, 96), "nested": (2, 300, 96), "counts": (34, 300, 30), "line": (119,)}
    inputs = {"x": (2, 300, 96), "y": (2, 300, 30), "z": (7,)}
    return models.model(nodes, inputs=inputs, outputs=outputs, tensors=tensors, opset=18)


def matmul(*, rows: int = 16, inner: int = 32, columns: int = 16) -> bytes:
    """One operator and no weights: ``a`` [rows, inner] times ``b`` [inner, columns]."""
    nodes = [_node("MatMul", ["a", "b"], ["product"])]
    inputs = {"a": (rows, inner), "b": (inner, columns)}
    return models.model(nodes, inputs=inputs, outputs={"product": (rows, columns)})


def dense(*, rows: int = 16, inner: int = 64, columns: int = 192) -> bytes:
    """``x`` [rows, inner] times constant weights [inner, columns]."""
    weights = random.Random(0)  # noqa: S311 - weights, not secrets
    tensors = [_floats("w", (inner, columns), weights)]
    inputs, outputs = {"x": (rows, inner)}, {"y": (rows, columns)}
    return models.model([_node("MatMul", ["x", "w"], ["y"])], inputs=inputs, outputs=outputs, tensors=tensors)


def sliced_by_attributes() -> bytes:
    """``x`` [4, 6] without its first row and its last two columns, in an operator set whose slices have no inputs."""
    nodes = [_node("Slice", ["x"], ["part"], starts=[1, 0], ends=[4, 4]), _node("Relu", ["part"], ["y"])]
    return models.model(nodes, inputs={"x": (4, 6)}, outputs={"y": (3, 4)}, opset=9)


def clipped_by_attributes() -> bytes:
    """``x`` [4, 6] between two bounds, and below one, in an operator set whose bounds are attributes."""
    nodes = [_node("Clip", ["x"], ["y"], min=0.25, max=0.5), _node("Clip", ["x"], ["least"], max=0.5)]
    return models.model(nodes, inputs={"x": (4, 6)}, outputs={"y": (4, 6), "least": (4, 6)}, opset=9)


def padded_by_attributes() -> bytes:
    """Zeros, another number, and what is at the border, around ``x`` [1, 2, 4, 5], in operator set 9."""
    modes: list[dict[str, Any]] = [{}, {"value": 0.5}, {"mode": "edge"}]
    nodes = [
        _node("Pad", ["x"], [f"y{place}"], pads=[0, 1, 0, 2, 0, 0, 3, 1], **mode) for place, mode in enumerate(modes)
    ]
    outputs = {f"y{place}": (1, 3, 7, 8) for place in range(len(modes))}
    return models.model(nodes, inputs={"x": (1, 2, 4, 5)}, outputs=outputs, opset=9)


def wide_depthwise() -> bytes:
    """A padded depthwise convolution of more than a cache holds: ``x`` [3, 48, 56, 56] to ``y`` [3, 48, 28, 28]."""
    weights = random.Random(0)  # noqa: S311 - weights, not secrets
    nodes = [_node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1], strides=[2, 2], kernel_shape=[3, 3], group=48)]
    inputs, outputs = {"x": (3, 48, 56, 56)}, {"y": (3, 48, 28, 28)}
    return models.model(nodes, inputs=inputs, outputs=outputs, tensors=[_floats("w", (48, 1, 3, 3), weights)])


def grouped_convolution() -> bytes:
    """Four groups of 24 channels from 6: ``x`` [1, 24, 8, 8] to ``y`` [1, 96, 8, 8]."""
    weights = random.Random(0)  # noqa: S311 - weights, not secrets
    nodes = [_node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1], kernel_shape=[3, 3], group=4)]
    inputs, outputs = {"x": (1, 24, 8, 8)}, {"y": (1, 96, 8, 8)}
    return models.model(nodes, inputs=inputs, outputs=outputs, tensors=[_floats("w", (96, 6, 3, 3), weights)])


def wide_groups() -> bytes:
    """Two groups of 96 channels, as products of pixels: ``x`` [1, 192, 14, 14] to ``y`` [1, 192, 14, 14]."""
    weights = random.Random(0)  # noqa: S311 - weights, not secrets
    nodes = [_node("Conv", ["x", "w"], ["y"], kernel_shape=[1, 1], group=2)]
    inputs, outputs = {"x": (1, 192, 14, 14)}, {"y": (1, 192, 14, 14)}
    return models.model(nodes, inputs=inputs, outputs=outputs, tensors=[_floats("w", (192, 96, 1, 1), weights)])


def convolution() -> bytes:
    """One operator and no weights: ``x`` [1, 8, 8, 8], ``w`` [16, 8, 3, 3]."""
    nodes = [_node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1], kernel_shape=[3, 3])]
    inputs = {"x": (1, 8, 8, 8), "w": (16, 8, 3, 3)}
    return models.model(nodes, inputs=inputs, outputs={"y": (1, 16, 8, 8)})


def thin_convolution() -> bytes:
    """Over time, as images of one column: ``x`` [1, 4, 32, 1], ``w`` [8, 4, 5, 1]."""
    nodes = [_node("Conv", ["x", "w"], ["y"], kernel_shape=[5, 1])]
    inputs = {"x": (1, 4, 32, 1), "w": (8, 4, 5, 1)}
    return models.model(nodes, inputs=inputs, outputs={"y": (1, 8, 28, 1)})


def beside_a_convolution(operator: str, operands: Sequence[str]) -> bytes:
    """An operator on tensors in two layouts, ``x`` [1, 4, 5, 5] and ``c``, its convolution."""
    weights = random.Random(0)  # noqa: S311 - weights, not secrets
    nodes = [_node("Conv", ["x", "w"], ["c"], kernel_shape=[1, 1]), _node(operator, operands, ["y"])]
    tensors = [_floats("w", (4, 4, 1, 1), weights)]
    shape = (1, 4, 5, 5)
    return models.model(nodes, inputs={"x": shape}, outputs={"y": shape}, tensors=tensors)


def transposed_convolution() -> bytes:
    """Upsampling behind a convolution: ``x`` [1, 3, 4, 4] to ``y`` [1, 2, 8, 8]."""
    weights = random.Random(0)  # noqa: S311 - weights, not secrets
    nodes = [
        _node("Conv", ["x", "w1"], ["c"], kernel_shape=[1, 1]),
        _node("ConvTranspose", ["c", "w2"], ["y"], kernel_shape=[2, 2], strides=[2, 2]),
    ]
    tensors = [_floats("w1", (4, 3, 1, 1), weights), _floats("w2", (4, 2, 2, 2), weights)]
    return models.model(nodes, inputs={"x": (1, 3, 4, 4)}, outputs={"y": (1, 2, 8, 8)}, tensors=tensors)


def wide_integers() -> bytes:
    """Shapes computed with 64-bit constants, folded by nobody before: ``x`` [2, 12] to ``y`` [2, 3, 4]."""
    shape = tensor("shape", (3,), _INT64, struct.pack("<3q", 2, 3, 4))
    nodes = [_node("Relu", ["x"], ["r"]), _node("Reshape", ["r", "shape"], ["y"])]
    return models.model(nodes, inputs={"x": (2, 12)}, outputs={"y": (2, 3, 4)}, tensors=[shape])


def filterable_convolutions() -> bytes:
    """``x`` [1, 32, 21, 18] to ``y`` [1, 32, 11, 9]: two convolutions that can be filtered, and four that cannot.

    Behind the first two are a SiLU, and a sum with an earlier result. The last one has two taps down and three across.
    """
    weights = random.Random(0)  # noqa: S311 - weights, not secrets
    padded = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
    nodes = [
        _node("Conv", ["x", "w", "b"], ["first"], **padded),
        _node("Sigmoid", ["first"], ["gate"]),
        _node("Mul", ["first", "gate"], ["gated"]),
        _node("Conv", ["gated", "v"], ["second"], **padded),
        _node("Add", ["second", "gated"], ["sum"]),
        _node("Relu", ["sum"], ["bent"]),
        _node("Conv", ["bent", "strided"], ["halved"], strides=[2, 2], **padded),
        _node("Conv", ["halved", "wide"], ["seen"], kernel_shape=[3, 3], pads=[2, 2, 2, 2], dilations=[2, 2]),
        _node("Conv", ["seen", "parted"], ["apart"], group=8, **padded),
        _node("Conv", ["apart", "uneven"], ["y"], kernel_shape=[2, 3], pads=[1, 1, 0, 1]),
    ]
    shapes = {"w": (48, 32), "v": (48, 48), "strided": (32, 48), "wide": (32, 32), "parted": (32, 4)}
    tensors = [_floats(name, (*shape, 3, 3), weights) for name, shape in shapes.items()]
    tensors += [_floats("b", (48,), weights), _floats("uneven", (32, 32, 2, 3), weights)]
    return models.model(nodes, inputs={"x": (1, 32, 21, 18)}, outputs={"y": (1, 32, 11, 9)}, tensors=tensors)


def filterable_groups() -> bytes:
    """A convolution of four groups that can be filtered: ``x`` [1, 96, 28, 28] to ``y``, likewise."""
    weights = random.Random(0)  # noqa: S311 - weights, not secrets
    nodes = [_node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1], kernel_shape=[3, 3], group=4)]
    shape = (1, 96, 28, 28)
    return models.model(
        nodes, inputs={"x": shape}, outputs={"y": shape}, tensors=[_floats("w", (96, 24, 3, 3), weights)]
    )


def bottlenecks() -> bytes:
    """``x`` [2, 3, 61, 53] to seven results: eight depthwise convolutions, each behind another convolution.

    The first five can be computed with that one; they differ in size, steps, padding and activations. For the others it
    reads many channels, or an addition or the caller reads its result, too.
    """
    weights = random.Random(0)  # noqa: S311 - weights, not secrets
    pointwise, tensors = {"kernel_shape": [1, 1]}, []

    def activated(kind: str, name: str) -> list[bytes]:
        if kind == "Swish":
            gate = [_node("Sigmoid", [f"{name}_c"], [f"{name}_s"])]
            return [*gate, _node("Mul", [f"{name}_c", f"{name}_s"], [name])]
        if kind == "Clip":
            return [_node("Clip", [f"{name}_c", "zero", "six"], [name])]
        return [_node(kind, [f"{name}_c"], [name])]

    def convolved(given: str, name: str, shape: tuple[int, ...], kind: str, **attributes: Any) -> list[bytes]:
        tensors.extend([_floats(f"{name}_w", shape, weights), _floats(f"{name}_b", shape[:1], weights)])
        made = _node("Conv", [given, f"{name}_w", f"{name}_b"], [f"{name}_c"], **attributes)
        return [made, *activated(kind, name)]

    def depthwise(given: str, name: str, size: int, kind: str, taps: int = 3, **attributes: Any) -> list[bytes]:
        shape = {"kernel_shape": [taps, taps], "group": size}
        return convolved(given, name, (size, 1, taps, taps), kind, **shape, **attributes)

    nodes = [
        *convolved("x", "a", (32, 3, 3, 3), "Swish", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
        *depthwise("a", "b", 32, "Swish", pads=[1, 1, 1, 1]),
        *convolved("b", "c", (8, 32, 1, 1), "Relu", **pointwise),
        *convolved("c", "d", (48, 8, 1, 1), "Clip", **pointwise),
        *depthwise("d", "e", 48, "Clip", strides=[2, 2], pads=[0, 0, 1, 1]),
        *convolved("c", "f", (64, 8, 1, 1), "HardSwish", **pointwise),
        *depthwise("f", "g", 64, "LeakyRelu", taps=5, pads=[2, 2, 2, 2]),
        *convolved("c", "h", (80, 8, 1, 1), "Tanh", **pointwise),
        *depthwise("h", "i", 80, "Relu"),
        *convolved("c", "j", (16, 8, 1, 1), "Relu", **pointwise),
        *depthwise("j", "k", 16, "Relu", taps=5, strides=[2, 2], pads=[3, 1, 0, 2]),
        *convolved("g", "l", (32, 64, 3, 3), "Relu", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
        *depthwise("l", "m", 32, "Relu", pads=[1, 1, 1, 1]),
        *convolved("c", "n", (32, 8, 1, 1), "Relu", **pointwise),
        *depthwise("n", "o", 32, "Relu", pads=[1, 1, 1, 1]),
        _node("Add", ["n", "o"], ["twice"]),
        *convolved("c", "p", (16, 8, 1, 1), "Relu", **pointwise),
        *depthwise("p", "q", 16, "Relu", pads=[1, 1, 1, 1]),
    ]
    tensors += [tensor(name, (), 1, struct.pack("<f", number)) for name, number in {"zero": 0.0, "six": 6.0}.items()]
    outputs = {
        "e": (2, 48, 15, 13), "i": (2, 80, 29, 25), "k": (2, 16, 15, 13), "m": (2, 32, 16, 14),
        "twice": (2, 32, 31, 27), "p": (2, 16, 31, 27), "q": (2, 16, 31, 27),
    }  # fmt: skip
    return models.model(nodes, inputs={"x": (2, 3, 61, 53)}, outputs=outputs, tensors=tensors, opset=18)


def image_convolutions() -> bytes:
    """``x`` [2, 3, 29, 26] and ``y`` [2, 5, 12, 12] to six results: a convolution for each.

    The first three read few channels; the others have groups, dilation, or five channels.
    """
    weights, tensors, nodes = random.Random(0), [], []  # noqa: S311 - weights, not secrets

    def convolved(given: str, name: str, shape: tuple[int, int, int, int], **attributes: Any) -> None:
        tensors.append(_floats(f"{name}_w", shape, weights))
        nodes.append(_node("Conv", [given, f"{name}_w"], [f"{name}_c"], kernel_shape=list(shape[2:]), **attributes))
        nodes.append(_node("Relu", [f"{name}_c"], [name]))

    convolved("x", "stem", (16, 3, 3, 3), strides=[2, 2], pads=[0, 1, 2, 0])
    convolved("x", "patches", (48, 3, 4, 4), strides=[4, 4])
    convolved("x", "wide", (32, 3, 7, 5), strides=[1, 2], pads=[3, 2, 3, 2])
    convolved("x", "grouped", (12, 1, 3, 3), group=3)
    convolved("x", "spread", (16, 3, 3, 3), dilations=[2, 2])
    convolved("y", "deep", (16, 5, 3, 3), pads=[1, 1, 1, 1])
    outputs = {
        "stem": (2, 16, 15, 13), "patches": (2, 48, 7, 6), "wide": (2, 32, 29, 13), "grouped": (2, 12, 27, 24),
        "spread": (2, 16, 25, 22), "deep": (2, 16, 12, 12),
    }  # fmt: skip
    inputs = {"x": (2, 3, 29, 26), "y": (2, 5, 12, 12)}
    return models.model(nodes, inputs=inputs, outputs=outputs, tensors=tensors)


def shuffled_channels(*, rows: int = 10) -> bytes:
    """Channels rearranged in several spellings between convolutions of ``x`` [2, 12, rows, 9]; and of ``x`` itself.

    ``scrambled`` has pixels in another order instead.
    """
    weights = random.Random(0)  # noqa: S311 - weights, not secrets
    whole, image = [2, 80, rows, 9], [2, 12, rows, 9]
    nodes = [
        _node("Conv", ["x", "a", "a_bias"], ["first"], kernel_shape=[1, 1]),
        _node("Relu", ["first"], ["bent"]),
        *_shuffled("bent", "shuffled", 5),
        _node("Conv", ["shuffled", "b"], ["deep"], kernel_shape=[3, 3], pads=[1, 1, 1, 1], group=80),
        _node("Conv", ["deep", "c", "c_bias"], ["parted"], kernel_shape=[1, 1], group=2),
        _node("Relu", ["parted"], ["positive"]),
        *_shuffled("positive", "mixed", 4),
        _node("Slice", ["mixed", "0", "40", "1"], ["low"]),
        _node("Slice", ["mixed", "40", "80", "1"], ["high"]),
        _node("Conv", ["high", "d"], ["other"], kernel_shape=[1, 1]),
        _node("Concat", ["low", "other"], ["joined"], axis=1),
        _node("Gather", ["joined", "chosen"], ["some"], axis=1),
        _node("Pad", ["some", "more"], ["padded"]),
        _node("Conv", ["padded", "e"], ["y"], kernel_shape=[1, 1]),
        *_shuffled("x", "turned", 5),
        _node("Transpose", ["x"], ["across"], perm=[0, 1, 3, 2]),
        _node("Reshape", ["across", "scrambled_shape"], ["scrambled"]),
    ]
    shapes = {"a": (80, 12, 1, 1), "b": (80, 1, 3, 3), "c": (80, 40, 1, 1), "d": (24, 40, 1, 1), "e": (16, 64, 1, 1)}
    tensors = [_floats(name, shape, weights) for name, shape in (shapes | {"a_bias": (80,), "c_bias": (80,)}).items()]
    numbers = {
        "bent_parts": [2, 5, 16, rows, 9], "bent_whole": whole,
        "positive_parts": [2, 2, 40, rows * 9], "positive_whole": whole,
        "x_parts": [2, 3, 4, rows, 9], "x_whole": image, "scrambled_shape": image, "0": [0], "1": [1], "40": [40],
        "80": [80], "chosen": [*range(29, -1, -1), *range(-30, 0)], "more": [0, 1, 0, 0, 0, 3, 0, 0],
    }  # fmt: skip
    tensors += [
        tensor(name, (len(each),), _INT64, struct.pack(f"<{len(each)}q", *each)) for name, each in numbers.items()
    ]
    outputs = {"y": (2, 16, rows, 9), "turned": tuple(image), "scrambled": tuple(image)}
    return models.model(nodes, inputs={"x": tuple(image)}, outputs=outputs, tensors=tensors)


def shifted() -> bytes:
    """``x`` [1, 16, 8, 8], padded by negative widths, which cut a column, a row and a channel: ``y`` [1, 24].

    What is around its image is reflected, repeated or zeros. Its last axes are squeezed, counted from the end, behind
    channels that are rearranged, and multiplied by a constant of three axes.
    """
    weights = random.Random(0)  # noqa: S311 - weights, not secrets
    numbers = {
        "shift": [0, 0, -1, 0, 0, 0, 1, 0], "crop": [0, -1, 0, 2, 0, 0, 0, -1], "last": [-2, -1],
        "deep_parts": [1, 4, 6, 8, 9], "deep_whole": [1, 24, 8, 9], "reflected": [0, 0, 2, 1, 0, 0, 3, 0],
        "repeated": [0, 0, 0, 2, 0, 0, 1, 1], "zeros": [0, 0, 1, 0, 0, 0, 0, 2],
    }  # fmt: skip
    nodes = [
        _node("Conv", ["x", "a"], ["first"], kernel_shape=[1, 1]),
        _node("Pad", ["first", "shift"], ["moved"]),
        _node("Relu", ["moved"], ["positive"]),
        _node("Pad", ["positive", "crop"], ["less"]),
        _node("Conv", ["less", "b"], ["deep"], kernel_shape=[1, 1]),
        *_shuffled("deep", "mixed", 5),
        _node("Relu", ["mixed"], ["bent"]),
        _node("Pad", ["bent", "reflected"], ["wider"], mode="reflect"),
        _node("Conv", ["wider", "c"], ["filtered"], kernel_shape=[3, 3]),
        _node("Pad", ["filtered", "repeated"], ["wide"], mode="edge"),
        _node("Pad", ["wide", "zeros"], ["widest"]),
        _node("Mul", ["widest", "factor"], ["scaled"]),
        _node("Relu", ["scaled"], ["last_bent"]),
        _node("GlobalAveragePool", ["last_bent"], ["means"]),
        _node("Squeeze", ["means", "last"], ["y"]),
    ]
    tensors = [_floats("a", (16, 16, 1, 1), weights), _floats("b", (24, 15, 1, 1), weights)]
    tensors += [_floats("c", (24, 24, 3, 3), weights), _floats("factor", (24, 1, 1), weights)]
    tensors += [
        tensor(name, (len(each),), _INT64, struct.pack(f"<{len(each)}q", *each)) for name, each in numbers.items()
    ]
    return models.model(nodes, inputs={"x": (1, 16, 8, 8)}, outputs={"y": (1, 24)}, tensors=tensors)


def padded_image() -> bytes:
    """``x`` [1, 32, 32, 12], an image with its channels last, padded at each edge for two convolutions: ``y``."""
    weights = random.Random(0)  # noqa: S311 - weights, not secrets
    numbers = [0, 0, 2, 1, 0, 0, 1, 2]
    nodes = [
        _node("Transpose", ["x"], ["planes"], perm=[0, 3, 1, 2]),
        _node("Pad", ["planes", "around"], ["padded"]),
        _node("Conv", ["padded", "a"], ["first"], kernel_shape=[3, 3]),
        _node("Conv", ["padded", "b"], ["second"], kernel_shape=[3, 3]),
        _node("Sub", ["first", "second"], ["y"]),
    ]
    tensors = [_floats(name, (16, 12, 3, 3), weights) for name in "ab"]
    tensors.append(tensor("around", (8,), _INT64, struct.pack("<8q", *numbers)))
    return models.model(nodes, inputs={"x": (1, 32, 32, 12)}, outputs={"y": (1, 16, 33, 33)}, tensors=tensors)


def _shuffled(given: str, name: str, rank: int) -> list[bytes]:
    """Nodes that swap the axes of groups and of their channels."""
    axes = [0, 2, 1, *range(3, rank)]
    return [
        _node("Reshape", [given, f"{given}_parts"], [f"{name}_parts"]),
        _node("Transpose", [f"{name}_parts"], [f"{name}_turned"], perm=axes),
        _node("Reshape", [f"{name}_turned", f"{given}_whole"], [name]),
    ]


def planes() -> bytes:
    """Planes of ``x`` [6, 8, 10, 9] beside those around them, as kernels of volumes read them, between convolutions.

    ``y`` joins pixels that were channels with ``z`` [6, 5, 20, 18]; of ``stepped``, every second plane is computed;
    slices of ``rows`` are no planes.
    """
    weights = random.Random(0)  # noqa: S311 - weights, not secrets
    nodes = [
        _node("Conv", ["x", "a", "a_bias"], ["first"], kernel_shape=[1, 1]),
        _node("Relu", ["first"], ["bent"]),
        _node("Pad", ["bent", "around"], ["between"]),
        *_joined("between", "taps", ("0 6", "1 7", "2 8"), "one"),
        _node("Conv", ["taps", "b"], ["deep"], kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        *_joined("bent", "pairs", ("0 5", "1 6"), "two"),
        _node("Conv", ["pairs", "c"], ["stepped"], kernel_shape=[1, 1]),
        _node("Reshape", ["deep", "parts"], ["apart"]),
        _node("Transpose", ["apart"], ["crossed"], perm=[0, 3, 4, 1, 5, 2]),
        _node("Reshape", ["crossed", "image"], ["pixels"]),
        _node("Conv", ["z", "d"], ["beside"], kernel_shape=[1, 1]),
        _node("Concat", ["pixels", "beside"], ["both"], axis=1),
        _node("Pad", ["both", "around"], ["both_between"]),
        *_joined("both_between", "both_taps", ("2 8", "0 6"), "one"),
        _node("Conv", ["both_taps", "e"], ["y"], kernel_shape=[1, 1]),
        _node("Slice", ["bent", "0", "9", "rows_axis"], ["upper"]),
        _node("Slice", ["bent", "1", "10", "rows_axis"], ["lower"]),
        _node("Concat", ["upper", "lower"], ["rows"], axis=1),
    ]
    shapes = {"a": (16, 8, 1, 1), "b": (12, 48, 3, 3), "c": (8, 32, 1, 1), "d": (4, 5, 1, 1), "e": (8, 14, 1, 1)}
    tensors = [_floats(name, shape, weights) for name, shape in (shapes | {"a_bias": (16,)}).items()]
    numbers = {
        "around": [1, 0, 0, 0, 1, 0, 0, 0], "parts": [6, 2, 2, 3, 10, 9], "image": [6, 3, 20, 18], "axis": [0],
        "rows_axis": [2], "one": [1], "two": [2], **{str(place): [place] for place in range(11)},
    }  # fmt: skip
    tensors += [
        tensor(name, (len(each),), _INT64, struct.pack(f"<{len(each)}q", *each)) for name, each in numbers.items()
    ]
    outputs = {"y": (6, 8, 20, 18), "stepped": (3, 8, 10, 9), "rows": (6, 32, 9, 9)}
    inputs = {"x": (6, 8, 10, 9), "z": (6, 5, 20, 18)}
    return models.model(nodes, inputs=inputs, outputs=outputs, tensors=tensors)


def _joined(given: str, name: str, bounds: Sequence[str], step: str) -> list[bytes]:
    """Nodes that join slices of a batch along the channels."""
    slices = [
        _node("Slice", [given, *each.split(), "axis", step], [f"{name}_{place}"]) for place, each in enumerate(bounds)
    ]
    return [*slices, _node("Concat", [f"{name}_{place}" for place in range(len(bounds))], [name], axis=1)]


def prime_rows() -> bytes:
    """Products whose rows no tile divides: convolutions of ``x`` [2, 16, 31, 37], and of ``z`` [2, 43, 24]."""
    weights = random.Random(0)  # noqa: S311 - weights, not secrets
    nodes = [
        _node("Conv", ["x", "a", "bias"], ["first"], kernel_shape=[1, 1]),
        _node("Relu", ["first"], ["bent"]),
        _node("Conv", ["bent", "b"], ["grouped"], kernel_shape=[3, 3], pads=[1, 1, 1, 1], group=2),
        _node("Add", ["grouped", "bent"], ["sum"]),
        _node("Conv", ["sum", "c"], ["y"], kernel_shape=[1, 5], pads=[0, 2, 0, 2]),
        _node("MatMul", ["z", "d"], ["product"]),
        _node("Sigmoid", ["product"], ["shares"]),
    ]
    shapes = {"a": (64, 16, 1, 1), "bias": (64,), "b": (64, 32, 3, 3), "c": (22, 64, 1, 5), "d": (24, 48)}
    tensors = [_floats(name, shape, weights) for name, shape in shapes.items()]
    inputs = {"x": (2, 16, 31, 37), "z": (2, 43, 24)}
    return models.model(nodes, inputs=inputs, outputs={"y": (2, 22, 31, 37), "shares": (2, 43, 48)}, tensors=tensors)


def odd_columns() -> bytes:
    """Products whose columns no vector divides, of convolutions, dense layers and tensors: ``x`` [1, 24, 31, 30] to
    three results.

    Some are grouped. Behind them are a SiLU, a sum with an earlier result, and nothing.
    """
    weights = random.Random(0)  # noqa: S311 - weights, not secrets
    padded = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
    nodes = [
        _node("Conv", ["x", "a", "bias"], ["first"], kernel_shape=[1, 1]),
        _node("Sigmoid", ["first"], ["gate"]),
        _node("Mul", ["first", "gate"], ["gated"]),
        _node("Conv", ["gated", "b"], ["halved"], strides=[2, 2], **padded),
        _node("Conv", ["halved", "c"], ["square"], **padded),
        _node("Add", ["square", "halved"], ["sum"]),
        _node("Conv", ["sum", "d"], ["wide"], kernel_shape=[1, 1]),
        _node("Relu", ["wide"], ["spread"]),
        _node("Conv", ["spread", "h"], ["parted"], kernel_shape=[1, 1], group=9),
        _node("Relu", ["parted"], ["bent"]),
        _node("Reshape", ["bent", "rows"], ["lines"]),
        _node("Transpose", ["lines"], ["tokens"], perm=[0, 2, 1]),
        _node("MatMul", ["tokens", "e"], ["product"]),
        _node("MatMul", ["lines", "product"], ["crossed"]),
        _node("GlobalAveragePool", ["bent"], ["means"]),
        _node("Flatten", ["means"], ["flat"]),
        _node("Gemm", ["flat", "f", "g"], ["classes"], transB=1),
    ]
    shapes = {"a": (38, 24, 1, 1), "b": (50, 38, 3, 3), "c": (50, 50, 3, 3), "d": (360, 50, 1, 1), "h": (360, 40, 1, 1)}
    shapes |= {"bias": (38,), "e": (360, 77), "f": (90, 360), "g": (90,)}
    tensors = [_floats(name, shape, weights) for name, shape in shapes.items()]
    tensors.append(tensor("rows", (3,), _INT64, struct.pack("<3q", 1, 360, 240)))
    outputs = {"product": (1, 240, 77), "crossed": (1, 360, 77), "classes": (1, 90)}
    return models.model(nodes, inputs={"x": (1, 24, 31, 30)}, outputs=outputs, tensors=tensors)


def between_convolutions() -> bytes:
    """Activations between convolutions of ``x`` [1, 8, 12, 12] to ``y``, likewise, a product and a sum.

    Their first operands come from no convolution, but are constant, and ``z`` [1, 8, 144].
    """
    weights = random.Random(0)  # noqa: S311 - weights, not secrets
    padded = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
    nodes = [
        _node("Conv", ["x", "a"], ["first"], **padded),
        _node("LeakyRelu", ["first"], ["leaky"], alpha=0.1),
        _node("Conv", ["leaky", "b"], ["second"], **padded),
        _node("HardSigmoid", ["second"], ["gate"]),
        _node("Mul", ["second", "gate"], ["gated"]),
        _node("Softplus", ["gated"], ["soft"]),
        _node("Mul", ["scale", "soft"], ["scaled"]),
        _node("Conv", ["scaled", "c"], ["third"], **padded),
        _node("Reshape", ["z", "image"], ["plain"]),
        _node("Add", ["plain", "third"], ["sum"]),
        _node("Relu", ["sum"], ["bent"]),
        _node("Conv", ["bent", "d"], ["y"], **padded),
    ]
    tensors = [_floats(name, (8, 8, 3, 3), weights) for name in "abcd"]
    tensors.append(_floats("scale", (1, 8, 1, 1), weights))
    tensors.append(tensor("image", (4,), _INT64, struct.pack("<4q", 1, 8, 12, 12)))
    shape = (1, 8, 12, 12)
    return models.model(nodes, inputs={"x": shape, "z": (1, 8, 144)}, outputs={"y": shape}, tensors=tensors)


def narrow_products(*, is_rounded: bool = False) -> bytes:
    """Products of ``image`` [1, 3, 14, 13] and ``rows`` [2, 18, 34], of which seven fit bfloat16. All but the first
    convolution are outputs.

    ``is_rounded``: their operands are rounded to bfloat16 and back. ``marked`` must stay in float32, ``thin`` has too
    few columns for a vector, and ``depthwise`` has groups but reads the same rounded image as the others.
    """
    source = random.Random(0)  # noqa: S311 - weights, not secrets
    wide = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
    strided = {"kernel_shape": [3, 3], "pads": [0, 1, 2, 0], "strides": [2, 2]}
    dilated = {"kernel_shape": [3, 2], "pads": [2, 1, 2, 1], "dilations": [2, 2]}
    convolutions: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
        "pointwise": ((40, 32, 1, 1), (1, 40, 14, 13), {"kernel_shape": [1, 1]}),
        "strided": ((24, 32, 3, 3), (1, 24, 7, 6), strided),
        "dilated": ((48, 32, 3, 2), (1, 48, 14, 13), dilated),
        "depthwise": ((32, 1, 3, 3), (1, 32, 14, 13), {**wide, "group": 32}),
    }
    products = {
        "dense": ("rows", 34, 24),
        "odd_depth": ("odd", 33, 48),
        "marked": ("kept", 34, 24),
        "thin": ("rows", 34, 7),
    }
    nodes = [
        _node("Slice", ["rows", "begin", "end", "axis"], ["odd"]),
        _node("Cast", ["rows"], ["kept"], to=_FLOAT),
        _node("Transpose", ["rows"], ["turned"], perm=[0, 2, 1]),
        _node("Slice", ["turned", "begin", "most", "axis"], ["part"]),
        _node("Concat", ["part", "part"], ["columns"], axis=2),
    ]
    numbers = {"begin": 0, "end": 33, "most": 16, "axis": 2}
    tensors = [tensor(name, (1,), _INT64, struct.pack("<q", number)) for name, number in numbers.items()]
    tensors += [_floats("first", (32, 3, 3, 3), source)]
    tensors += [_floats(f"{name}_w", shape, source) for name, (shape, _, _) in convolutions.items()]
    tensors += [_floats(f"{name}_w", (depth, columns), source) for name, (_, depth, columns) in products.items()]

    def rounded(name: str) -> str:
        if is_rounded and f"{name}_long" not in made:
            made.add(f"{name}_long")
            nodes.append(_node("Cast", [name], [f"{name}_short"], to=_BFLOAT16))
            nodes.append(_node("Cast", [f"{name}_short"], [f"{name}_long"], to=_FLOAT))
        return f"{name}_long" if is_rounded else name

    made: set[str] = set()
    nodes.append(_node("Conv", [rounded("image"), rounded("first")], ["features"], **wide))
    for name, (_, _, how) in convolutions.items():
        weights = f"{name}_w" if name == "depthwise" else rounded(f"{name}_w")
        nodes.append(_node("Conv", [rounded("features"), weights], [name], **how))
    for name, (data, _, _) in products.items():
        operands = [data, f"{name}_w"]
        nodes.append(_node("MatMul", operands if name in ("marked", "thin") else list(map(rounded, operands)), [name]))
    nodes.append(_node("MatMul", [rounded("rows"), rounded("columns")], ["batches"]))
    outputs = {name: shape for name, (_, shape, _) in convolutions.items()}
    outputs |= {name: (2, 18, columns) for name, (_, _, columns) in products.items()}
    inputs = {"image": (1, 3, 14, 13), "rows": (2, 18, 34)}
    return models.model(nodes, inputs=inputs, outputs={**outputs, "batches": (2, 18, 32)}, tensors=tensors, opset=17)


def stacked_convolutions() -> bytes:
    """Three convolutions of ``image`` [1, 32, 9, 9] alike in all but their weights, each with ReLU behind it."""
    source = random.Random(0)  # noqa: S311 - weights, not secrets
    nodes, tensors, data = [], [], "image"
    for name in ("first", "second", "y"):
        nodes.append(_node("Conv", [data, f"{name}_w"], [f"{name}_c"], kernel_shape=[3, 3], pads=[1, 1, 1, 1]))
        nodes.append(_node("Relu", [f"{name}_c"], [name]))
        tensors.append(_floats(f"{name}_w", (32, 32, 3, 3), source))
        data = name
    shape = (1, 32, 9, 9)
    return models.model(nodes, inputs={"image": shape}, outputs={"y": shape}, tensors=tensors)


def quantized_operators(*, is_signed: bool) -> bytes:
    """Three convolutions of bytes, the first with borders and a pool behind it, the second depthwise, to bytes that are
    not negative: ``image`` [1, 3, 13, 13] in float32 to ``y`` [1, 32, 4, 4]."""
    source = random.Random(0)  # noqa: S311 - weights, not secrets
    kind, letter, zero, least = (_INT8, "b", -7, -128) if is_signed else (_UINT8, "B", 121, 0)
    scales = {"image": (0.03, zero), "first": (0.05, zero), "apart": (0.05, least), "second": (0.2, zero)}
    tensors = [tensor(f"{name}_scale", (), _FLOAT, struct.pack("<f", scale)) for name, (scale, _) in scales.items()]
    tensors += [tensor(f"{name}_zero", (), kind, struct.pack(letter, each)) for name, (_, each) in scales.items()]
    nodes = [_node("QuantizeLinear", ["image", "image_scale", "image_zero"], ["bytes"])]

    def convolution(data: str, before: str, shape: tuple[int, ...], result: str, **how: Any) -> None:
        tensors.append(tensor(f"{result}_w", shape, _INT8, source.randbytes(math.prod(shape))))
        own = [source.uniform(0.001, 0.002) for _ in range(shape[0])]
        tensors.append(tensor(f"{result}_scales", shape[:1], _FLOAT, struct.pack(f"<{len(own)}f", *own)))
        tensors.append(tensor(f"{result}_zeros", shape[:1], _INT8, bytes(shape[0])))
        biases = [source.randint(-999, 999) for _ in own]
        tensors.append(tensor(f"{result}_b", shape[:1], _INT32, struct.pack(f"<{len(own)}i", *biases)))
        weights = [f"{result}_w", f"{result}_scales", f"{result}_zeros"]
        own_scale, given_scale = ([f"{name}_scale", f"{name}_zero"] for name in (result, before))
        given = [data, *given_scale, *weights, *own_scale, f"{result}_b"]
        nodes.append(_node("QLinearConv", given, [result], kernel_shape=list(shape[2:]), **how))

    convolution("bytes", "image", (16, 3, 3, 3), "first", pads=[1, 1, 1, 1])
    nodes.append(_node("MaxPool", ["first"], ["largest"], kernel_shape=[2, 2], strides=[2, 2]))
    convolution("largest", "first", (16, 1, 3, 3), "apart", pads=[1, 1, 1, 1], group=16)
    convolution("apart", "apart", (32, 16, 3, 3), "second")
    nodes.append(_node("DequantizeLinear", ["second", "second_scale", "second_zero"], ["y"]))
    return models.model(
        nodes, inputs={"image": (1, 3, 13, 13)}, outputs={"y": (1, 32, 4, 4)}, tensors=tensors, opset=17
    )


def signed_bytes() -> bytes:
    """A quantized model (QDQ) as users upload them: ``image`` [1, 5, 9, 9] in signed bytes, two convolutions, of which
    one has groups, and a dense layer with transposed weights; all have biases in 32 bits. To ``y`` [1, 24].
    """
    source = random.Random(0)  # noqa: S311 - weights, not secrets
    nodes: list[Any] = []
    tensors = [tensor("zero", (), _INT8, struct.pack("b", -7))]
    scale = 0.03

    def constant(name: str, shape: tuple[int, ...], kind: int, scales: list[float]) -> str:
        size, letter = (4, "i") if kind == _INT32 else (1, "b")
        values = [source.randint(-100, 100) for _ in range(math.prod(shape))]
        tensors.append(tensor(f"{name}_bytes", shape, kind, struct.pack(f"<{len(values)}{letter}", *values)))
        tensors.append(tensor(f"{name}_scales", shape[:1], _FLOAT, struct.pack(f"<{len(scales)}f", *scales)))
        tensors.append(tensor(f"{name}_zeros", shape[:1], kind, bytes(shape[0] * size)))
        given = [f"{name}_bytes", f"{name}_scales", f"{name}_zeros"]
        nodes.append(_node("DequantizeLinear", given, [name], axis=0))
        return name

    def layer(kind: str, data: str, shape: tuple[int, ...], result: str, **how: Any) -> None:
        tensors.append(tensor(f"{data}_scale", (), _FLOAT, struct.pack("<f", scale)))
        nodes.append(_node("QuantizeLinear", [data, f"{data}_scale", "zero"], [f"{data}_bytes"]))
        nodes.append(_node("DequantizeLinear", [f"{data}_bytes", f"{data}_scale", "zero"], [f"{data}_read"]))
        scales = [source.uniform(0.001, 0.002) for _ in range(shape[0])]
        weights = constant(f"{result}_w", shape, _INT8, scales)
        # Runtimes add biases to the sums of bytes.
        bias = constant(f"{result}_b", shape[:1], _INT32, [scale * each for each in scales])
        nodes.append(_node(kind, [f"{data}_read", weights, bias], [result], **how))

    wide = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
    layer("Conv", "image", (16, 5, 3, 3), "first", **wide)
    nodes.append(_node("Relu", ["first"], ["positive"]))
    layer("Conv", "positive", (16, 1, 3, 3), "apart", group=16, **wide)
    nodes += [_node("GlobalAveragePool", ["apart"], ["means"]), _node("Flatten", ["means"], ["flat"])]
    layer("Gemm", "flat", (24, 16), "y", transB=1)
    return models.model(nodes, inputs={"image": (1, 5, 9, 9)}, outputs={"y": (1, 24)}, tensors=tensors, opset=17)
