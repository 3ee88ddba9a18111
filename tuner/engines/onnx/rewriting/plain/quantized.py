"""Replacement of quantized operators by float32 ones that compute the same integers.

A float32 sum of products of 8-bit integers is exact up to 2²⁴, so convolutions and matrix products of the integers
themselves, scaled and rounded afterwards as ONNX Runtime does it, give its results. Scaling the operands first, as
``DequantizeLinear`` is defined, would not: a sum that is off in the last bit may be rounded to another integer.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto

from tuner.engines.onnx import models
from tuner.engines.onnx.rewriting import graphs
from tuner.engines.onnx.rewriting.plain import fusing
from tuner.engines.onnx.rewriting.plain.emitting import Declined, Emitter, Replacement, Replacements, replace

CONTRIB = "com.microsoft"
_SOFTMAX_OF_ONE_AXIS = 13
"""First operator set whose ``Softmax`` does not flatten its input."""
_RANGES = {np.dtype(np.uint8): (0, 255), np.dtype(np.int8): (-128, 127)}
_KINDS = {np.dtype(np.uint8): TensorProto.UINT8, np.dtype(np.int8): TensorProto.INT8}
_DTYPES = {kind: dtype for dtype, kind in _KINDS.items()}


_METHODS = {
    ("", "QLinearConv"): "_convolution",
    ("", "QLinearMatMul"): "_product",
    ("", "ConvInteger"): "_integer_convolution",
    ("", "MatMulInteger"): "_integer_product",
    ("", "DynamicQuantizeLinear"): "_by_range",
    ("", "QuantizeLinear"): "_quantize",
    ("", "DequantizeLinear"): "_dequantize",
    (CONTRIB, "QGemm"): "_gemm",
    (CONTRIB, "QLinearAdd"): "_sum",
    (CONTRIB, "QLinearMul"): "_elementwise_product",
    (CONTRIB, "QLinearConcat"): "_concatenation",
    (CONTRIB, "QLinearSigmoid"): "_activation",
    (CONTRIB, "QLinearLeakyRelu"): "_activation",
    (CONTRIB, "QLinearSoftmax"): "_softmax",
    (CONTRIB, "QLinearGlobalAveragePool"): "_pool",
    (CONTRIB, "QLinearAveragePool"): "_pool",
    (CONTRIB, "MatMulIntegerToFloat"): "_product_to_float",
    (CONTRIB, "DynamicQuantizeMatMul"): "_dynamic_product",
    (CONTRIB, "MatMulNBits"): "_blocked_product",
}
OPERATORS = frozenset(operator for _, operator in _METHODS)
_MOVING = ("Flatten", "MaxPool", "Reshape", "Squeeze", "Transpose", "Unsqueeze")
"""Operators that only select or move bytes, and do the same with the float32 integers that these come from."""


class Quantized(Replacements):
    """Replacements by operator; scales and zero points must be constants except where stated."""

    methods = _METHODS

    def __init__(self, emitter: Emitter) -> None:
        super().__init__(emitter)
        self._wide: dict[str, tuple[str, int]] = {}
        """Float32 integers and the type of the bytes that they become, by the name of these."""
        self._totals: dict[str, str] = {}
        """Float32 sums of products, by the name of the 32-bit integers that they become."""

    def find(self, node: onnx.NodeProto) -> Replacement | None:
        is_standard = node.domain in models.STANDARD_DOMAINS
        if is_standard and node.op_type in _MOVING and node.input[0] in self._wide and len(node.output) == 1:
            return self._move
        if is_standard and node.op_type == "Cast" and node.input[0] in self._totals:
            # TVM's importer checks the range of casts to integers, which takes LLVM seconds to compile.
            return self._as_float if graphs.attribute(node, "to") == TensorProto.FLOAT else None
        found = super().find(node)
        return partial(_tried, found) if found else None

    def _scale(self, name: str) -> Any:
        """Return a constant scale, float32. Raises KeyError if it is none."""
        found = self._e.value(name)
        if found is None or found.dtype != np.float32:
            raise KeyError(name)
        return found

    def _zero(self, name: str, like: Any = np.uint8) -> Any:
        """Return a constant zero point; 0 if there is none."""
        found = self._e.value(name) if name else np.zeros((), like)
        if found is None or found.dtype not in _RANGES:
            raise KeyError(name)
        return found

    def _integers(self, name: str, zero: str, shape: tuple[int, ...] | None = None) -> str:
        """Return float32 integers, less their zero point (reshaped to ``shape``), of constants or computed values."""
        values, base = self._e.value(name), self._e.value(zero) if zero else np.zeros((), np.uint8)
        if base is not None and shape and base.ndim:
            base = base.reshape(shape)
        if values is not None and base is not None:
            return self._e.constant(values.astype(np.float32) - base.astype(np.float32))
        moved = self._to_float(name)
        if base is None:
            return self._e.emit("Sub", [moved, self._to_float(zero)])
        return self._e.emit("Sub", [moved, self._e.constant(base)]) if base.any() else moved

    def _rounded(self, name: str, zero: Any, output: str) -> None:
        """Emit rounding half to even, the zero point, saturation and the conversion to its type."""
        moved = self._e.emit("Round", [name])
        if zero.any():
            moved = self._e.emit("Add", [moved, self._e.constant(zero)])
        self._saturated(moved, zero.dtype, output)

    def _saturated(self, name: str, dtype: Any, output: str) -> None:
        least, most = _RANGES[dtype]
        bounded = self._e.emit("Max", [self._e.emit("Min", [name, self._e.constant(most)]), self._e.constant(least)])
        self._narrowed(bounded, _KINDS[dtype], output)

    def _narrowed(self, name: str, kind: int, output: str) -> None:
        """Emit the conversion to bytes, which only operators without a replacement read."""
        self._wide[output] = name, kind
        self._e.cast(name, kind, output)

    def _to_float(self, name: str) -> str:
        return self._wide[name][0] if name in self._wide else self._e.to_float(name)

    def _move(self, node: onnx.NodeProto) -> None:
        name, kind = self._wide[node.input[0]]
        moved = self._e.copy(node, node.op_type, [name, *node.input[1:]])
        self._narrowed(moved, kind, node.output[0])

    def _sum_of_products(self, name: str, output: str | None = None) -> str:
        """Mark a sum of products of integers as one, so that nobody multiplies its operands by a later factor."""
        return self._e.emit("Round", [name], output)

    def _summed(self, total: str, output: str) -> None:
        """Emit the conversion of a sum of products to 32 bits."""
        self._totals[output] = total
        self._e.cast(total, TensorProto.INT32, output)

    def _as_float(self, node: onnx.NodeProto) -> None:
        self._sum_of_products(self._totals[node.input[0]], node.output[0])

    def _scaled(self, name: str, factor: Any) -> str:
        return self._e.emit("Mul", [name, self._e.constant(factor)])

    def _convolution(self, node: onnx.NodeProto) -> None:
        x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero, *bias = node.input
        factor = self._scale(x_scale) * self._scale(w_scale) / self._scale(y_scale)
        rank = len(self._e.shapes[w])
        inputs = [self._integers(x, x_zero), self._integers(w, w_zero, (-1, *[1] * (rank - 1)))]
        inputs += [self._integers(name, "") for name in bias if name]
        total = self._sum_of_products(self._e.copy(node, "Conv", inputs))
        total = self._scaled(total, factor.reshape(1, -1, *[1] * (rank - 2)))
        self._rounded(total, self._zero(y_zero), node.output[0])

    def _product(self, node: onnx.NodeProto) -> None:
        a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero = node.input
        factor = self._scale(a_scale) * self._scale(b_scale) / self._scale(y_scale)
        total = self._sum_of_products(self._e.emit("MatMul", [self._integers(a, a_zero), self._integers(b, b_zero)]))
        self._rounded(self._scaled(total, factor), self._zero(y_zero), node.output[0])

    def _gemm(self, node: onnx.NodeProto) -> None:
        a, a_scale, a_zero, b, b_scale, b_zero, *rest = node.input
        bias, y_scale, y_zero = (*rest, "", "", "")[:3]
        factor = self._scale(a_scale) * self._scale(b_scale) * np.float32(graphs.attribute(node, "alpha", 1.0))
        transposed = {name: graphs.attribute(node, name, 0) for name in ("transA", "transB")}
        of_columns = (-1, 1) if transposed["transB"] else (1, -1)
        inputs = [self._integers(a, a_zero), self._integers(b, b_zero, of_columns)]
        inputs += [self._integers(bias, "")] if bias else []
        total = self._sum_of_products(self._e.emit("Gemm", inputs, **transposed))
        if not y_scale:
            self._e.emit("Mul", [total, self._e.constant(factor)], node.output[0])
            return
        self._rounded(self._scaled(total, factor / self._scale(y_scale)), self._zero(y_zero), node.output[0])

    def _product_to_float(self, node: onnx.NodeProto) -> None:
        a, b, a_scale, b_scale, *rest = node.input
        a_zero, b_zero, bias = (*rest, "", "", "")[:3]
        total = self._sum_of_products(self._e.emit("MatMul", [self._integers(a, a_zero), self._integers(b, b_zero)]))
        self._biased(total, self._e.emit("Mul", [a_scale, b_scale]), bias, node.output[0])

    def _dynamic_product(self, node: onnx.NodeProto) -> None:
        """Emit the product of a matrix, quantized by its own range, and a constant one."""
        a, b, b_scale, *rest = node.input
        b_zero, bias = (*rest, "", "")[:2]
        integers, a_scale, _ = self.dynamic(a)
        total = self._sum_of_products(self._e.emit("MatMul", [integers, self._integers(b, b_zero)]))
        self._biased(total, self._e.emit("Mul", [a_scale, b_scale]), bias, node.output[0])

    def _biased(self, total: str, factor: str, bias: str, output: str) -> None:
        if not bias:
            self._e.emit("Mul", [total, factor], output)
        else:
            self._e.emit("Add", [self._e.emit("Mul", [total, factor]), bias], output)

    def _blocked_product(self, node: onnx.NodeProto) -> None:
        """Emit the product with a matrix of ``bits`` each, whose rows have a scale for each block, as float32."""
        a, b, scales, zeros, order, bias = [*node.input, "", "", ""][:6]
        rows, columns, size, bits = (graphs.attribute(node, name, 4) for name in ("N", "K", "block_size", "bits"))
        packed, factors = self._e.value(b), self._scale(scales)
        if packed is None or bits not in (2, 4, 8) or order:
            raise Declined
        values = _unpacked(packed.reshape(rows, -1), bits).reshape(rows, -1, size)
        count = values.shape[1]
        base: Any = np.float32(2 ** (bits - 1))
        if zeros:
            given = self._e.value(zeros)
            if given is None:
                raise Declined
            base = given if given.dtype != np.uint8 else _unpacked(given.reshape(rows, -1), bits)[:, :count]
            base = base.astype(np.float32).reshape(rows, count, 1)
        real = (values.astype(np.float32) - base) * factors.reshape(rows, count, 1)
        weights = self._e.constant(real.reshape(rows, -1)[:, :columns].T)
        product = self._e.emit("MatMul", [a, weights], None if bias else node.output[0])
        if bias:
            self._e.emit("Add", [product, bias], node.output[0])

    def _integer_convolution(self, node: onnx.NodeProto) -> None:
        x, w, *zeros = node.input
        x_zero, w_zero = (*zeros, "", "")[:2]
        rank = len(self._e.shapes[w])
        inputs = [self._integers(x, x_zero), self._integers(w, w_zero, (-1, *[1] * (rank - 1)))]
        self._summed(self._e.copy(node, "Conv", inputs), node.output[0])

    def _integer_product(self, node: onnx.NodeProto) -> None:
        a, b, *zeros = node.input
        a_zero, b_zero = (*zeros, "", "")[:2]
        total = self._e.emit("MatMul", [self._integers(a, a_zero, (-1, 1)), self._integers(b, b_zero)])
        self._summed(total, node.output[0])

    def _by_range(self, node: onnx.NodeProto) -> None:
        y, scale, zero = node.output
        moved, own, base = self.dynamic(node.input[0])
        self._narrowed(self._e.emit("Add", [moved, base]), TensorProto.UINT8, y)
        self._e.reshape(own, (), scale)
        self._narrowed(self._e.reshape(base, ()), TensorProto.UINT8, zero)

    def dynamic(self, name: str) -> tuple[str, str, str]:
        """Emit the quantization of a float32 value by its own range.

        Returns the integers less their zero point, the scale and the zero point, all float32. The latter two have as
        many dimensions as the value, of size one: Relax crashes on the maximum of two scalars.
        """
        e, nothing = self._e, self._e.constant([0])
        least = e.emit("Min", [e.emit("ReduceMin", [name], keepdims=1), nothing])
        most = e.emit("Max", [e.emit("ReduceMax", [name], keepdims=1), nothing])
        wanted = e.emit("Div", [e.emit("Sub", [most, least]), e.constant([255])])
        scale = e.emit("Where", [e.emit("Equal", [wanted, nothing]), e.constant([1]), wanted])
        base = e.emit("Round", [self._bounded(e.emit("Div", [e.emit("Neg", [least]), scale]))])
        shifted = e.emit("Add", [e.emit("Round", [e.emit("Div", [name, scale])]), base])
        return e.emit("Sub", [self._bounded(shifted), base]), scale, base

    def _bounded(self, name: str) -> str:
        return self._e.emit("Max", [self._e.emit("Min", [name, self._e.constant(255)]), self._e.constant(0)])

    def _sum(self, node: onnx.NodeProto) -> None:
        a, a_scale, a_zero, b, b_scale, b_zero, y_scale, *zero = node.input
        whole, base = self._scale(y_scale), self._zero((*zero, "")[0])
        factors = self._scale(a_scale) / whole, self._scale(b_scale) / whole
        zeros = self._zero(a_zero).astype(np.float32), self._zero(b_zero).astype(np.float32)
        # ONNX Runtime adds all zero points before it rounds, which decides whether a half is rounded up.
        fixed = base.astype(np.float32) - (factors[0] * zeros[0] + factors[1] * zeros[1])
        total = self._e.emit("Add", [self._scaled(self._to_float(a), factors[0]), self._e.constant(fixed)])
        total = self._e.emit("Add", [self._scaled(self._to_float(b), factors[1]), total])
        self._saturated(self._e.emit("Round", [total]), base.dtype, node.output[0])

    def _elementwise_product(self, node: onnx.NodeProto) -> None:
        a, a_scale, a_zero, b, b_scale, b_zero, y_scale, *zero = node.input
        factor = self._scale(a_scale) * self._scale(b_scale) / self._scale(y_scale)
        total = self._e.emit("Mul", [self._integers(a, a_zero), self._integers(b, b_zero)])
        self._rounded(self._scaled(total, factor), self._zero((*zero, "")[0]), node.output[0])

    def _concatenation(self, node: onnx.NodeProto) -> None:
        y_scale, y_zero, *parts = node.input
        whole = self._scale(y_scale)
        terms = [
            self._scaled(self._integers(name, base), self._scale(scale) / whole)
            for name, scale, base in zip(parts[::3], parts[1::3], parts[2::3], strict=True)
        ]
        joined = self._e.emit("Concat", terms, axis=graphs.attribute(node, "axis"))
        self._rounded(joined, self._zero(y_zero), node.output[0])

    def _activation(self, node: onnx.NodeProto) -> None:
        x, x_scale, x_zero, y_scale, *zero = node.input
        given = self._scaled(self._integers(x, x_zero), self._scale(x_scale))
        found = self._e.copy(node, node.op_type.removeprefix("QLinear"), [given])
        divided = self._e.emit("Div", [found, self._e.constant(self._scale(y_scale))])
        self._rounded(divided, self._zero((*zero, "")[0]), node.output[0])

    def _softmax(self, node: onnx.NodeProto) -> None:
        x, x_scale, _, y_scale, *zero = node.input
        if graphs.attribute(node, "opset", 1) < _SOFTMAX_OF_ONE_AXIS:
            raise Declined
        # A zero point changes no softmax.
        given = self._scaled(self._to_float(x), self._scale(x_scale))
        found = self._e.emit("Softmax", [given], axis=graphs.attribute(node, "axis", -1))
        divided = self._e.emit("Div", [found, self._e.constant(self._scale(y_scale))])
        self._rounded(divided, self._zero((*zero, "")[0]), node.output[0])

    def _pool(self, node: onnx.NodeProto) -> None:
        x, x_scale, x_zero, y_scale, *zero = node.input
        if graphs.attribute(node, "channels_last", 0):
            raise Declined
        kept = [each for each in node.attribute if each.name != "channels_last"]
        plain = onnx.NodeProto(op_type=node.op_type, attribute=kept)
        mean = self._e.copy(plain, node.op_type.removeprefix("QLinear"), [self._integers(x, x_zero)])
        scaled = self._scaled(mean, self._scale(x_scale) / self._scale(y_scale))
        self._rounded(scaled, self._zero((*zero, "")[0]), node.output[0])

    def _quantize(self, node: onnx.NodeProto) -> None:
        x, scale, *zero = node.input
        # Newer operator sets may name the type instead of giving a zero point.
        dtype = _DTYPES[graphs.attribute(node, "output_dtype", 0) or TensorProto.UINT8]
        base, factor = self._zero((*zero, "")[0], dtype), self._scale(scale)
        if factor.ndim and factor.size > 1:
            factor, base = self._along(node, factor), self._along(node, base)
        self._rounded(self._e.emit("Div", [x, self._e.constant(factor)]), base, node.output[0])

    def _dequantize(self, node: onnx.NodeProto) -> None:
        x, scale, *zero = node.input
        values, factor = self._e.value(x), self._scale(scale)
        base = self._e.value(zero[0]) if zero and zero[0] else np.zeros((), np.uint8)
        if base is None:
            raise Declined
        if factor.ndim and factor.size > 1:
            factor, base = self._along(node, factor), self._along(node, base)
        if values is not None:
            real = (values.astype(np.float32) - base.astype(np.float32)) * factor
            self._e.emit("Identity", [self._e.constant(real)], node.output[0])
            return
        moved = self._to_float(x)
        if base.any():
            moved = self._e.emit("Sub", [moved, self._e.constant(base)])
        self._e.emit("Mul", [moved, self._e.constant(factor)], node.output[0])

    def _along(self, node: onnx.NodeProto, values: Any) -> Any:
        """Spread one value for each index of the node's axis, or for each block along it, over its input."""
        if not values.ndim:
            return values
        shape = self._e.shapes[node.input[0]]
        axis = graphs.attribute(node, "axis", 1) % len(shape)
        block = graphs.attribute(node, "block_size", 0)
        if block:
            return np.repeat(values, block, axis).take(range(shape[axis]), axis)
        return values.reshape(-1, *[1] * (len(shape) - axis - 1))


def _unpacked(values: Any, bits: int) -> Any:
    """Return the numbers of ``bits`` each that the bytes of each row hold, the lowest bits first."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    return ((values[..., None] >> shifts) & (2**bits - 1)).reshape(len(values), -1)


def apply(model: onnx.ModelProto) -> int:
    """Replace quantized operators and return their number; those with computed scales or zero points may stay.

    The operators between DequantizeLinear and QuantizeLinear become the integer ones that ONNX Runtime computes, unless
    one of these has no replacement.
    """
    fused = graphs.copy(model)
    if fusing.apply(fused):
        count = replace(fused, Quantized)
        if all(node.domain in models.STANDARD_DOMAINS for node in fused.graph.node):
            model.CopyFrom(fused)
            return count
    return replace(model, Quantized)


def _tried(replacement: Replacement, node: onnx.NodeProto) -> None:
    try:
        replacement(node)
    except KeyError as error:
        # A scale or zero point is computed, of another type, or of unknown shape.
        raise Declined from error
