"""Explicit forms of operators whose attributes or operands leave something to be computed.

Not every engine imports the others: padding by ``auto_pad`` or of some axes, parts of uneven sizes or a single one,
``Celu``, ``EyeLike``, ``OneHot``, ``ReverseSequence``, ``Dropout`` with a seed, ``LayerNormalization`` that returns its
mean, a number of boxes that does not fit into 32 bits, and an attribute of casts that changes nothing. A ``PRelu`` with
a single slope becomes a ``LeakyRelu``, which TVM fuses with the convolution before it. ONNX Runtime folds padding into
convolutions, but not if the value has an empty name.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
from onnx import TensorProto

from tuner.engines.onnx.rewriting import graphs
from tuner.engines.onnx.rewriting.plain.emitting import Declined, Replacement, Replacements, replace

_WINDOWED = ("AveragePool", "Conv", "LpPool", "MaxPool")
_METHODS = {
    **dict.fromkeys((("", operator) for operator in _WINDOWED), "_window"),
    ("", "Cast"): "_cast",
    ("", "Celu"): "_celu",
    ("", "Dropout"): "_pass",
    ("", "EyeLike"): "_diagonal",
    ("", "LayerNormalization"): "_layer",
    ("", "NonMaxSuppression"): "_boxes",
    ("", "OneHot"): "_one_hot",
    ("", "PRelu"): "_slope",
    ("", "Pad"): "_pad",
    ("", "ReverseSequence"): "_reversed",
    ("", "Split"): "_split",
}
_FLOAT8 = range(TensorProto.FLOAT8E4M3FN, TensorProto.FLOAT8E5M2FNUZ + 1)


def applies(node: onnx.NodeProto) -> bool:
    """Return whether a node may have another form, so that the pass is worth its check."""
    if node.op_type in _WINDOWED:
        return graphs.attribute(node, "auto_pad", b"NOTSET") not in (b"NOTSET", b"VALID")
    if node.op_type == "Pad":
        return len(node.input) > len(("data", "pads", "value")) or not all(node.input)
    if node.op_type == "Cast":
        return graphs.attribute(node, "saturate") is not None and graphs.attribute(node, "to") not in _FLOAT8
    if node.op_type == "Split":
        return graphs.attribute(node, "num_outputs") is not None or len(node.output) == 1
    if node.op_type == "LayerNormalization":
        return any(list(node.output)[1:])
    return ("", node.op_type) in _METHODS


class _Forms(Replacements):
    methods = _METHODS

    def find(self, node: onnx.NodeProto) -> Replacement | None:
        return super().find(node) if applies(node) else None

    def _cast(self, node: onnx.NodeProto) -> None:
        """Emit a cast without the attribute that only casts to 8-bit floats have a use for."""
        self._e.cast(node.input[0], graphs.attribute(node, "to"), node.output[0])

    def _split(self, node: onnx.NodeProto) -> None:
        """Emit the sizes of the parts, of which the last may be smaller; a single part is all there is."""
        if len(node.output) == 1:
            self._e.emit("Identity", [node.input[0]], node.output[0])
            return
        sizes = [self._e.shapes.get(name) for name in node.output]
        axis = graphs.attribute(node, "axis", 0)
        if not all(sizes):
            raise Declined
        plain = onnx.NodeProto(op_type="Split", output=node.output, domain=node.domain)
        plain.input.extend([node.input[0], self._e.constant([size[axis] for size in sizes if size], np.int64)])
        plain.attribute.append(onnx.helper.make_attribute("axis", axis))
        self._e.append(plain)

    def _layer(self, node: onnx.NodeProto) -> None:
        """Emit a normalization, its mean and the inverse of its standard deviation."""
        given, scale, bias = [*node.input, ""][:3]
        made, mean, inverse = [*node.output, ""][:3]
        rank = len(self._e.shapes[given])
        axes = range(graphs.attribute(node, "axis", -1) % rank, rank)
        moved = self._e.emit("Sub", [given, self._e.reduced("ReduceMean", given, axes, mean or None)])
        variance = self._e.reduced("ReduceMean", self._e.emit("Mul", [moved, moved]), axes)
        epsilon = self._e.constant(graphs.attribute(node, "epsilon", 1e-5))
        size = self._e.emit("Sqrt", [self._e.emit("Add", [variance, epsilon])])
        divided = self._e.emit("Mul", [moved, self._e.emit("Reciprocal", [size], inverse or None)])
        scaled = self._e.emit("Mul", [divided, scale], None if bias else made)
        if bias:
            self._e.emit("Add", [scaled, bias], made)

    def _celu(self, node: onnx.NodeProto) -> None:
        alpha = self._e.constant(graphs.attribute(node, "alpha", 1.0))
        grown = self._e.emit("Elu", [self._e.emit("Div", [node.input[0], alpha])])
        below = self._e.emit("Mul", [self._e.emit("Min", [grown, self._e.constant(0)]), alpha])
        self._e.emit("Add", [self._e.emit("Relu", [node.input[0]]), below], node.output[0])

    def _slope(self, node: onnx.NodeProto) -> None:
        slope = self._e.value(node.input[1])
        if slope is None or slope.size != 1 or not np.issubdtype(slope.dtype, np.floating):
            raise Declined
        self._e.emit("LeakyRelu", [node.input[0]], node.output[0], alpha=float(slope.reshape(())))

    def _pass(self, node: onnx.NodeProto) -> None:
        """Emit the input: in inference nothing is dropped."""
        trained = node.input[2] if len(node.input) > 2 else ""
        flag = self._e.value(trained) if trained else np.False_
        if flag is None or flag.any() or any(list(node.output)[1:]):
            raise Declined
        self._e.emit("Identity", [node.input[0]], node.output[0])

    def _diagonal(self, node: onnx.NodeProto) -> None:
        shape, own = self._e.shapes.get(node.input[0]), self._e.kinds.get(node.input[0])
        kind = graphs.attribute(node, "dtype", own)
        if shape is None or kind is None:
            raise Declined
        dtype = onnx.helper.tensor_dtype_to_np_dtype(kind)
        self._e.emit(
            "Identity", [self._e.constant(np.eye(*shape, graphs.attribute(node, "k", 0)), dtype)], node.output[0]
        )

    def _window(self, node: onnx.NodeProto) -> None:
        """Emit the padding that ``auto_pad`` stands for."""
        shape, made = self._e.shapes.get(node.input[0]), self._e.shapes.get(node.output[0])
        weight = self._e.shapes.get(node.input[1]) if len(node.input) > 1 else None
        kernel = graphs.attribute(node, "kernel_shape") or (weight or ())[2:]
        if shape is None or made is None or len(kernel) != len(shape) - 2:
            raise Declined
        ones = [1] * len(kernel)
        strides = graphs.attribute(node, "strides", ones)
        dilations = graphs.attribute(node, "dilations", ones)
        spans = [(size - 1) * wide + 1 for size, wide in zip(kernel, dilations, strict=True)]
        totals = [
            max(0, (count - 1) * stride + span - size)
            for size, count, stride, span in zip(shape[2:], made[2:], strides, spans, strict=True)
        ]
        less = [total // 2 for total in totals]
        more = [total - each for total, each in zip(totals, less, strict=True)]
        is_upper = graphs.attribute(node, "auto_pad") == b"SAME_UPPER"
        pads = [*less, *more] if is_upper else [*more, *less]
        plain = onnx.NodeProto()
        plain.CopyFrom(node)
        del plain.attribute[:]
        plain.attribute.extend(each for each in node.attribute if each.name not in ("auto_pad", "pads"))
        plain.attribute.append(onnx.helper.make_attribute("pads", pads))
        self._e.append(plain)

    def _pad(self, node: onnx.NodeProto) -> None:
        """Emit padding of all axes, with a value only if there is one."""
        name, pads, value, axes = [*node.input, "", ""][:4]
        if not axes:
            self._e.copy(node, "Pad", [name, pads, *([value] if value else [])], node.output[0])
            return
        shape, given, chosen = self._e.shapes.get(name), self._e.value(pads), self._e.value(axes)
        if shape is None or given is None or chosen is None:
            raise Declined
        every = np.zeros((2, len(shape)), np.int64)
        every[:, chosen] = given.reshape(2, -1)
        inputs = [name, self._e.constant(every.reshape(-1), np.int64), *([value] if value else [])]
        self._e.copy(node, "Pad", inputs, node.output[0])

    def _reversed(self, node: onnx.NodeProto) -> None:
        """Emit a choice of indices if all sequences have the same constant length."""
        shape, lengths = self._e.shapes.get(node.input[0]), self._e.value(node.input[1])
        if shape is None or lengths is None or len(set(lengths.reshape(-1).tolist())) != 1:
            raise Declined
        axis, length = graphs.attribute(node, "time_axis", 0), int(lengths[0])
        order = [*range(length - 1, -1, -1), *range(length, shape[axis])]
        self._e.emit("Gather", [node.input[0], self._e.constant(order, np.int64)], node.output[0], axis=axis)

    def _boxes(self, node: onnx.NodeProto) -> None:
        """Emit a selection of no more boxes than there are."""
        shape = self._e.shapes.get(node.input[0])
        most = self._e.value(node.input[2]) if len(node.input) > 2 and node.input[2] else None
        if shape is None or most is None or most.reshape(-1)[0] <= shape[1]:
            raise Declined
        inputs = list(node.input)
        inputs[2] = self._e.constant(np.full(most.shape, shape[1]), np.int64)
        self._e.copy(node, node.op_type, inputs, node.output[0])

    def _one_hot(self, node: onnx.NodeProto) -> None:
        """Emit a choice between the two values by comparison with all indices."""
        indices, depth, values = node.input
        shape, count, pair = self._e.shapes.get(indices), self._e.value(depth), self._e.value(values)
        if shape is None or count is None or pair is None:
            raise Declined
        size = int(count.reshape(-1)[0])
        axis = graphs.attribute(node, "axis", -1)
        axis %= len(shape) + 1
        places = np.arange(size).reshape([size if place == axis else 1 for place in range(len(shape) + 1)])
        given = self._e.unsqueeze(self._e.cast(indices, TensorProto.INT64), axis)
        # Negative indices count from the end.
        hits: Sequence[str] = [
            self._e.emit("Equal", [given, self._e.constant(places - moved, np.int64)]) for moved in (0, size)
        ]
        pair = pair.reshape(-1)
        off, on = (self._e.constant(value, pair.dtype) for value in pair)
        self._e.emit("Where", [self._e.emit("Or", hits), on, off], node.output[0])


def apply(model: onnx.ModelProto) -> int:
    """Replace operators by their explicit forms and return their number."""
    return replace(model, _Forms)
