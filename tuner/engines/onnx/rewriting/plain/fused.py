"""Replacement of operators that stand for several others, by these.

ONNX Runtime's tools fuse others into them, and newer operator sets of ONNX have them. ONNX's own definitions as
functions are not used: ONNX Runtime cannot load some.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper

from tuner.engines.onnx.rewriting import graphs
from tuner.engines.onnx.rewriting.plain.emitting import Declined, Replacements, replace

_CONTRIB = "com.microsoft"
_METHODS = {
    ("", "AffineGrid"): "_grid",
    ("", "Gelu"): "_approximate_gelu",
    ("", "LpNormalization"): "_normalized",
    ("", "RMSNormalization"): "_by_root_mean_square",
    ("", "SimplifiedLayerNormalization"): "_by_root_mean_square",
    (_CONTRIB, "BiasGelu"): "_gelu",
    (_CONTRIB, "FastGelu"): "_fast_gelu",
    (_CONTRIB, "FusedConv"): "_convolution",
    (_CONTRIB, "FusedGemm"): "_gemm",
    (_CONTRIB, "FusedMatMul"): "_product",
    (_CONTRIB, "Gelu"): "_gelu",
    (_CONTRIB, "QuickGelu"): "_quick_gelu",
    (_CONTRIB, "SkipLayerNormalization"): "_skipping_layer",
    (_CONTRIB, "SkipSimplifiedLayerNormalization"): "_skipping",
}
OPERATORS = frozenset(operator for _, operator in _METHODS)
_ACTIVATIONS = {"Relu": (), "Tanh": (), "Sigmoid": (), "LeakyRelu": ("alpha",), "HardSigmoid": ("alpha", "beta")}
"""Activations with the names of their parameters, in ONNX Runtime's order."""


class _Splitting(Replacements):
    methods = _METHODS

    def _normalized(self, node: onnx.NodeProto) -> None:
        axis, power = graphs.attribute(node, "axis", -1), graphs.attribute(node, "p", 2)
        dtype = helper.tensor_dtype_to_np_dtype(self._e.kinds.get(node.input[0], TensorProto.FLOAT))
        size = self._e.reduced(f"ReduceL{power}", node.input[0], axis)
        # ONNX Runtime returns zeros for zeros, whose quotient would be NaN.
        is_zero = self._e.emit("Equal", [size, self._e.constant(0, dtype)])
        divisor = self._e.emit("Where", [is_zero, self._e.constant(1, dtype), size])
        self._e.emit("Div", [node.input[0], divisor], node.output[0])

    def _convolution(self, node: onnx.NodeProto) -> None:
        if len(node.input) > 3 and node.input[3]:
            raise Declined
        self._activated(node, "Conv", list(node.input)[:3], ("activation", "activation_params"))

    def _gemm(self, node: onnx.NodeProto) -> None:
        names = ("activation", "activation_alpha", "activation_beta", "activation_gamma")
        self._activated(node, "Gemm", list(node.input), names)

    def _activated(self, node: onnx.NodeProto, operator: str, inputs: list[str], names: tuple[str, ...]) -> None:
        """Emit an operator and its activation, which the attributes ``names`` describe."""
        activation = graphs.attribute(node, "activation", b"").decode()
        if activation and activation not in _ACTIVATIONS:
            raise Declined
        plain = onnx.NodeProto(attribute=[each for each in node.attribute if each.name not in names])
        if not activation:
            self._e.copy(plain, operator, inputs, node.output[0])
            return
        given = graphs.attribute(node, "activation_params")
        if given is None:
            given = [graphs.attribute(node, name) for name in names[1:]]
        known = dict(zip(_ACTIVATIONS[activation], given, strict=False))
        if any(value is None for value in known.values()):
            raise Declined
        self._e.emit(activation, [self._e.copy(plain, operator, inputs)], node.output[0], **known)

    def _product(self, node: onnx.NodeProto) -> None:
        if any(graphs.attribute(node, name, 0) for name in ("transBatchA", "transBatchB")):
            raise Declined
        inputs = []
        for name, flag in zip(node.input, ("transA", "transB"), strict=True):
            if not graphs.attribute(node, flag, 0):
                inputs.append(name)
                continue
            rank = len(self._e.shapes.get(name, ()))
            if rank < len("mk"):
                raise Declined
            inputs.append(self._e.emit("Transpose", [name], perm=[*range(rank - 2), rank - 1, rank - 2]))
        alpha = graphs.attribute(node, "alpha", 1.0)
        if alpha == 1:
            self._e.emit("MatMul", inputs, node.output[0])
        else:
            self._e.emit("Mul", [self._e.emit("MatMul", inputs), self._e.constant(alpha)], node.output[0])

    def _quick_gelu(self, node: onnx.NodeProto) -> None:
        scaled = self._e.emit("Mul", [node.input[0], self._e.constant(graphs.attribute(node, "alpha", 1.702))])
        self._e.emit("Mul", [node.input[0], self._e.emit("Sigmoid", [scaled])], node.output[0])

    def _skipping(self, node: onnx.NodeProto) -> None:
        """Emit a sum and its normalization by its root mean square."""
        given, skipped, scale, *bias = node.input
        outputs = [*node.output, "", "", ""][:4]
        if outputs[1] or outputs[2]:
            raise Declined
        total = self._e.emit("Add", [given, skipped])
        if bias and bias[0]:
            total = self._e.emit("Add", [total, bias[0]])
        if outputs[3]:
            total = self._e.emit("Identity", [total], outputs[3])
        self._normalize(total, scale, graphs.attribute(node, "epsilon", 1e-5), outputs[0])

    def _by_root_mean_square(self, node: onnx.NodeProto) -> None:
        given, scale = node.input
        if any(list(node.output)[1:]):
            raise Declined
        rank = len(self._e.shapes[given])
        axes = range(graphs.attribute(node, "axis", -1) % rank, rank)
        self._normalize(given, scale, graphs.attribute(node, "epsilon", 1e-5), node.output[0], axes)

    def _normalize(self, name: str, scale: str, epsilon: float, output: str, axes: Sequence[int] = (-1,)) -> None:
        """Divide by the root mean square along some axes."""
        square = self._e.reduced("ReduceMean", self._e.emit("Mul", [name, name]), axes)
        size = self._e.emit("Sqrt", [self._e.emit("Add", [square, self._e.constant(epsilon)])])
        self._e.emit("Mul", [self._e.emit("Div", [name, size]), scale], output)

    def _skipping_layer(self, node: onnx.NodeProto) -> None:
        """Emit a sum and its normalization by its mean and variance."""
        given, skipped, scale, beta, bias = [*node.input, "", ""][:5]
        outputs = [*node.output, "", "", ""][:4]
        if outputs[1] or outputs[2]:
            raise Declined
        total = self._e.emit("Add", [given, skipped])
        if bias:
            total = self._e.emit("Add", [total, bias])
        if outputs[3]:
            total = self._e.emit("Identity", [total], outputs[3])
        moved = self._e.emit("Sub", [total, self._e.reduced("ReduceMean", total, -1)])
        variance = self._e.reduced("ReduceMean", self._e.emit("Mul", [moved, moved]), -1)
        epsilon = self._e.constant(graphs.attribute(node, "epsilon", 1e-5))
        divided = self._e.emit("Div", [moved, self._e.emit("Sqrt", [self._e.emit("Add", [variance, epsilon])])])
        scaled = self._e.emit("Mul", [divided, scale], None if beta else outputs[0])
        if beta:
            self._e.emit("Add", [scaled, beta], outputs[0])

    def _gelu(self, node: onnx.NodeProto) -> None:
        """Emit ``x * (1 + erf(x / sqrt(2))) / 2``, of a sum if there is a bias."""
        given = self._biased(node)
        curve = self._e.emit("Erf", [self._e.emit("Mul", [given, self._e.constant(math.sqrt(0.5))])])
        self._half(given, curve, node.output[0])

    def _approximate_gelu(self, node: onnx.NodeProto) -> None:
        """Emit ONNX's own operator if it is computed by a hyperbolic tangent, which Relay's importer ignores."""
        if graphs.attribute(node, "approximate", b"none") != b"tanh":
            raise Declined
        self._fast_gelu(node)

    def _fast_gelu(self, node: onnx.NodeProto) -> None:
        """Emit ``x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x ** 3))) / 2``."""
        given = self._biased(node)
        square = self._e.emit("Mul", [given, given])
        factor = self._e.emit("Add", [self._e.emit("Mul", [square, self._e.constant(0.044715)]), self._e.constant(1)])
        inner = self._e.emit("Mul", [given, self._e.constant(math.sqrt(2 / math.pi))])
        curve = self._e.emit("Tanh", [self._e.emit("Mul", [inner, factor])])
        self._half(given, curve, node.output[0])

    def _biased(self, node: onnx.NodeProto) -> str:
        given, bias = [*node.input, ""][:2]
        return self._e.emit("Add", [given, bias]) if bias else given

    def _half(self, name: str, curve: str, output: str) -> None:
        raised = self._e.emit("Mul", [name, self._e.emit("Add", [curve, self._e.constant(1)])])
        self._e.emit("Mul", [raised, self._e.constant(0.5)], output)

    def _grid(self, node: onnx.NodeProto) -> None:
        """Emit the places of the pixels of an image or a volume after an affine transformation."""
        size = self._e.value(node.input[1])
        if size is None:
            raise Declined
        count, _, *sizes = (int(each) for each in size)
        if graphs.attribute(node, "align_corners", 0):
            places = [np.linspace(-1, 1, each) if each > 1 else np.zeros(1) for each in sizes]
        else:
            places = [(2 * np.arange(each) + 1) / each - 1 for each in sizes]
        # The innermost axis is the first coordinate.
        axes = np.meshgrid(*places, indexing="ij")[::-1]
        points = self._e.constant(np.stack([*axes, np.ones(sizes)], axis=-1).reshape(-1, len(sizes) + 1))
        by_column = self._e.emit("Transpose", [node.input[0]], perm=(0, 2, 1))
        made = self._e.emit("MatMul", [points, by_column])
        self._e.reshape(made, (count, *sizes, len(sizes)), node.output[0])


def apply(model: onnx.ModelProto) -> int:
    """Replace fused operators and return their number; those with unknown activations stay."""
    return replace(model, _Splitting)
