"""Padding through operators that compute each element by itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import helper
from onnx.reference import ReferenceEvaluator

from tuner.engines.reference.rewriting.aligned.channels import Channels
from tuner.engines.reference.rewriting.aligned.flow import Flow

OPERATORS = frozenset({
    "Abs", "Add", "Ceil", "Clip", "Cos", "Div", "Elu", "Erf", "Exp", "Floor", "Gelu", "HardSigmoid", "HardSwish",
    "Identity", "LeakyRelu", "Log", "Max", "Min", "Mish", "Mul", "Neg", "PRelu", "Pow", "Reciprocal", "Relu",
    "Round", "Selu", "Sigmoid", "Sign", "Sin", "Softplus", "Softsign", "Sqrt", "Sub", "Sum", "Tanh", "ThresholdedRelu",
})  # fmt: skip
_NEUTRAL = {"Mul": 1.0, "Div": 1.0, "Pow": 1.0}
"""What constants get at the padding; of other operators 0."""
_LARGEST = 1e6
"""That padding may hold: far from infinite, which zero weights would make a NaN of."""
_OPERATIONS = 8.0
"""Time of an element, in those of convolutions."""


def compute(flow: Flow, node: onnx.NodeProto) -> bool:
    known = [flow.padded(name) for name in node.input]
    paddings = [each.channels for each in known if each is not None]
    shape = flow.shape(node.output[0])
    if not paddings or shape is None or not all(each.is_like(paddings[0]) for each in paddings):
        return False
    axis = paddings[0].axis
    if shape[axis : axis + 1] != (paddings[0].count,):
        return False
    operands = [_Operand.of(flow, name, len(shape), paddings[0]) for name in node.input]
    if any(operand is None for operand in operands):
        return False
    fill = _fill(flow, node, [operand for operand in operands if operand is not None], paddings[0])
    if fill is None:
        return False
    channels = paddings[0].holding(fill, *paddings[1:])
    flow.join(*paddings)
    share = 1 - channels.whole / channels.count
    flow.save(channels, _OPERATIONS * float(np.prod(shape)) * share)
    flow.emit(node, [_input(flow, node, name, len(shape), channels) for name in node.input], channels)
    return True


class _Operand:
    """What an operand holds, as far as its padding goes; ``values`` is None for what a run computes."""

    def __init__(self, values: Any) -> None:
        self.values = values

    @classmethod
    def of(cls, flow: Flow, name: str, rank: int, channels: Channels) -> _Operand | None:
        """None: it cannot be combined with these channels."""
        padded, shape = flow.padded(name), flow.shape(name)
        if padded is not None:
            sizes = [1] * rank
            sizes[channels.axis] = -1
            return cls(padded.channels.fill.reshape(sizes)) if shape is not None and len(shape) == rank else None
        if not name:
            return cls(np.zeros(0))
        axis = _channel_axis(shape, rank, channels)
        if shape is None or len(shape) > rank or (axis is not None and shape[axis] not in (1, channels.count)):
            return None
        if flow.network.is_constant(name):
            return cls(flow.network.array(name))
        return None if axis is not None and shape[axis] != 1 else cls(None)


def _channel_axis(shape: tuple[int, ...] | None, rank: int, channels: Channels) -> int | None:
    """Where a tensor that is broadcast to ``rank`` has the channels."""
    axis = channels.axis - (rank - len(shape)) if shape is not None else -1
    return axis if axis >= 0 else None


def _spread(node: onnx.NodeProto, array: Any, rank: int, channels: Channels) -> Any:
    axis = _channel_axis(array.shape, rank, channels)
    if axis is None or array.shape[axis] == 1:
        return array
    return channels.spread(array, axis, _NEUTRAL.get(node.op_type, 0.0))


def _input(flow: Flow, node: onnx.NodeProto, name: str, rank: int, channels: Channels) -> str:
    padded = flow.padded(name)
    if padded is not None:
        return padded.name
    axis = _channel_axis(flow.shape(name), rank, channels)
    if not name or not flow.network.is_constant(name) or axis is None or (flow.shape(name) or ())[axis] == 1:
        return name
    return flow.constant(f"{name}_padded", lambda: _spread(node, flow.network.array(name), rank, channels))


def _fill(flow: Flow, node: onnx.NodeProto, operands: list[_Operand], channels: Channels) -> Any | None:
    """What the output holds at the padding, [padded]; None when that depends on what the network is fed."""
    rank = len(flow.shape(node.output[0]) or ())
    given: dict[str, Any] = {}
    for name, operand in zip(node.input, operands, strict=True):
        if operand.values is None:
            return _product(flow, node, channels)
        if name:
            is_padded = flow.padded(name) is not None
            given[name] = operand.values if is_padded else _spread(node, operand.values, rank, channels)
    computed = np.asarray(_evaluate(flow, node, given), dtype=np.float64)
    rows = np.moveaxis(computed, channels.axis, 0).reshape(channels.whole, -1)[~channels.is_real]
    if not np.isfinite(rows).all() or np.abs(rows).max(initial=0) > _LARGEST or (rows != rows[:, :1]).any():
        return None
    fill = np.zeros(channels.whole)
    fill[~channels.is_real] = rows[:, 0]
    return fill


def _product(flow: Flow, node: onnx.NodeProto, channels: Channels) -> Any | None:
    """Of padding with what a run computes: zero stays zero."""
    known = [each.channels for each in map(flow.padded, node.input) if each is not None]
    is_zero = node.op_type == "Mul" and any(not each.fill.any() for each in known)
    return np.zeros(channels.whole) if is_zero else None


def _evaluate(flow: Flow, node: onnx.NodeProto, given: dict[str, Any]) -> Any:
    """The node's output for float32 operands, by ONNX's own reference implementation."""
    arrays = {name: values.astype(np.float32) if values.dtype.kind == "f" else values for name, values in given.items()}
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(values.dtype), values.shape)
        for name, values in arrays.items()
    ]
    output = onnx.ValueInfoProto(name=node.output[0])
    model = helper.make_model(
        helper.make_graph([node], "padding", inputs, [output]),
        opset_imports=[helper.make_opsetid("", flow.network.opset)],
    )
    with np.errstate(all="ignore"):
        return ReferenceEvaluator(model).run(None, arrays)[0]
