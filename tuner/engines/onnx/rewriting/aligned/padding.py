"""Rewriting pass that pads channels where it pays off, across as much of the network as the padding can propagate.

Each operator creates padding, reads it, propagates it, or removes it. Convolutions and dense layers create and read it;
dense layers are ``Gemm`` and ``MatMul`` with constant weights [inputs, outputs], whose outputs TVM packs by their
largest divisor of at most two vectors (6625 by 25, 240 by 30). Padding propagates through operators that compute each
element separately, that treat each channel (axis 1) separately, or that concatenate channels.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
from onnx import helper
from onnx.reference import ReferenceEvaluator

from tuner.engines.onnx import models
from tuner.engines.onnx.rewriting import graphs
from tuner.engines.onnx.rewriting.aligned import worth
from tuner.engines.onnx.rewriting.aligned.flow import Channels, Flow, Network, Padded


def convolution_origin(network: Network, node: onnx.NodeProto) -> str | None:
    """Return the node's output if it is a convolution whose outputs may be padded, else None."""
    if not _is_plain(network, node):
        return None
    axis = 1 if node.op_type == "ConvTranspose" else 0
    whole = worth.padded(network.shapes[node.input[1]][axis], network.lanes)
    return node.output[0] if whole else None


def _is_plain(network: Network, node: onnx.NodeProto) -> bool:
    """Return whether a convolution is ungrouped, with constant weights and known shapes."""
    return _is_known(network, node) and graphs.attribute(node, "group", 1) == 1


def _is_known(network: Network, node: onnx.NodeProto) -> bool:
    weights = [name for name in node.input[1:] if name]
    return (
        node.op_type in ("Conv", "ConvTranspose")
        and all(network.is_constant(name) and network.is_float(name) for name in weights)
        and node.input[0] in network.shapes
        and node.output[0] in network.shapes
    )


def convolve(flow: Flow, node: onnx.NodeProto) -> bool:
    padded = flow.padded(node.input[0])
    if padded is not None and padded.channels.axis != 1:
        return False
    if not _is_known(flow.network, node) or (padded is None and node.output[0] not in flow.origins):
        return False
    if graphs.attribute(node, "group", 1) > 1:
        return _convolve_depthwise(flow, node)
    is_transposed = node.op_type == "ConvTranspose"
    shape = flow.network.shapes[node.input[1]]
    read, made = shape[:2] if is_transposed else shape[1::-1]
    operations = _operations(flow, node)
    channels = None
    if node.output[0] in flow.origins:
        whole = worth.padded(made, flow.network.lanes) or made
        channels = Channels.at_end(made, whole, node.output[0])
        flow.save(channels, worth.made(operations, made, whole, flow.network.lanes))
    if padded is not None:
        flow.save(padded.channels, worth.read(operations, read, padded.channels.whole))
    axes = (0, 1) if is_transposed else (1, 0)
    inputs = [padded.name if padded else node.input[0]]
    inputs.append(flow.spread(node.input[1], (padded.channels if padded else None, axes[0]), (channels, axes[1])))
    inputs += [flow.spread(name, (channels, 0)) for name in node.input[2:]]
    flow.emit(node, inputs, channels)
    return True


def _convolve_depthwise(flow: Flow, node: onnx.NodeProto) -> bool:
    padded = flow.padded(node.input[0])
    weight = flow.network.shapes[node.input[1]]
    if padded is None or node.op_type != "Conv" or weight[1] != 1:
        return False
    read = padded.channels
    multiplier, rest = divmod(weight[0], read.count)
    if rest or graphs.attribute(node, "group", 1) != read.count:
        return False
    made = read.repeated(multiplier)
    flow.save(made, worth.made_depthwise(_operations(flow, node), made.count, made.whole, flow.network.lanes))
    weights = [flow.spread(name, (made, 0)) for name in node.input[1:]]
    flow.emit(node, [padded.name, *weights], made, group=read.whole)
    return True


def _operations(flow: Flow, node: onnx.NodeProto) -> float:
    """Return the multiplications and additions. A transposed convolution uses its weights once for each input."""
    weight = flow.network.shapes[node.input[1]]
    positions = flow.network.shapes[node.input[0] if node.op_type == "ConvTranspose" else node.output[0]]
    return 2.0 * math.prod(weight) * positions[0] * math.prod(positions[2:])


def product_origin(network: Network, node: onnx.NodeProto) -> str | None:
    """Return the node's output if it is a dense layer whose outputs may be padded, else None."""
    if not _is_dense(network, node):
        return None
    whole = worth.padded_columns(_sizes(network, node)[1], network.lanes)
    return node.output[0] if whole else None


def _is_dense(network: Network, node: onnx.NodeProto) -> bool:
    return (
        node.op_type in ("Gemm", "MatMul")
        and not graphs.attribute(node, "transA", 0)
        and all(network.is_constant(name) and network.is_float(name) for name in node.input[1:] if name)
        and len(network.shapes[node.input[1]]) == 2
        and len(network.shapes.get(node.input[0], ())) > 1
        and node.output[0] in network.shapes
    )


def _sizes(network: Network, node: onnx.NodeProto) -> tuple[int, int]:
    """Return the numbers of inputs and outputs."""
    rows, columns = network.shapes[node.input[1]]
    return (columns, rows) if graphs.attribute(node, "transB", 0) else (rows, columns)


def multiply(flow: Flow, node: onnx.NodeProto) -> bool:
    padded = flow.padded(node.input[0])
    if not _is_dense(flow.network, node) or (padded is None and node.output[0] not in flow.origins):
        return False
    shape = flow.network.shapes[node.input[0]]
    if padded is not None and padded.channels.axis != len(shape) - 1:
        return False
    read, made = _sizes(flow.network, node)
    operations = 2.0 * made * math.prod(shape)
    channels = None
    if node.output[0] in flow.origins:
        whole = worth.padded_columns(made, flow.network.lanes) or made
        channels = Channels.at_end(made, whole, node.output[0], axis=len(shape) - 1)
        flow.save(channels, worth.made_columns(operations, made, whole))
    if padded is not None:
        flow.save(padded.channels, worth.read(operations, read, padded.channels.whole))
    axes = (1, 0) if graphs.attribute(node, "transB", 0) else (0, 1)
    inputs = [padded.name if padded else node.input[0]]
    inputs.append(flow.spread(node.input[1], (padded.channels if padded else None, axes[0]), (channels, axes[1])))
    for bias in node.input[2:]:
        sizes = flow.shape(bias) or ()
        is_wide = bool(sizes) and sizes[-1] == made
        inputs.append(flow.spread(bias, (channels if is_wide else None, len(sizes) - 1)))
    flow.emit(node, inputs, channels)
    return True


OPERATORS = frozenset({
    "Abs", "Add", "Ceil", "Clip", "Cos", "Div", "Elu", "Erf", "Exp", "Floor", "Gelu", "HardSigmoid", "HardSwish",
    "Identity", "LeakyRelu", "Log", "Max", "Min", "Mish", "Mul", "Neg", "PRelu", "Pow", "Reciprocal", "Relu",
    "Round", "Selu", "Sigmoid", "Sign", "Sin", "Softplus", "Softsign", "Sqrt", "Sub", "Sum", "Tanh", "ThresholdedRelu",
})  # fmt: skip
_NEUTRAL = {"Mul": 1.0, "Div": 1.0, "Pow": 1.0}
"""Value of constants at the padding; 0 for other operators."""
_LARGEST = 1e6
"""Maximum magnitude in padding: far from infinity, which times a zero weight would be NaN."""
_OPERATIONS = 8.0
"""Time per element, in operations of convolutions."""


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
    """Values of an operand as far as its padding is concerned; ``values`` is None if they are computed at run time."""

    def __init__(self, values: Any) -> None:
        self.values = values

    @classmethod
    def of(cls, flow: Flow, name: str, rank: int, channels: Channels) -> _Operand | None:
        """Return the operand, or None if it cannot be combined with these channels."""
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
    """Return the channel axis of a tensor that is broadcast to ``rank``, or None."""
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
    """Return the output's values at the padding, [padded]; None if they depend on the network's inputs."""
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
    """Return the fill of padding combined with run-time values: 0 for a product with zeros, else None (unknown)."""
    known = [each.channels for each in map(flow.padded, node.input) if each is not None]
    is_zero = node.op_type == "Mul" and any(not each.fill.any() for each in known)
    return np.zeros(channels.whole) if is_zero else None


def _evaluate(flow: Flow, node: onnx.NodeProto, given: dict[str, Any]) -> Any:
    """Compute the node's output for float32 operands with ONNX's reference implementation."""
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


def _padded(flow: Flow, name: str) -> Padded | None:
    padded = flow.padded(name)
    return padded if padded is not None and padded.channels.axis == 1 else None


def pool(flow: Flow, node: onnx.NodeProto) -> bool:
    """Propagate padding through pooling, windowed or global, which preserves constant channels."""
    padded = _padded(flow, node.input[0])
    if padded is None or len(node.output) > 1:
        return False
    # The average includes the zeros around the image.
    averages_zeros = node.op_type == "AveragePool" and graphs.attribute(node, "count_include_pad", 0)
    if averages_zeros and padded.channels.fill.any():
        return False
    flow.emit(node, [padded.name], padded.channels)
    return True


def reduce(flow: Flow, node: onnx.NodeProto) -> bool:
    """Propagate padding through ``ReduceMean`` and the like, over axes other than batch and channels."""
    padded, shape = _padded(flow, node.input[0]), flow.shape(node.input[0])
    if padded is None or shape is None or any(not _is_constant_or_none(flow, name) for name in node.input[1:]):
        return False
    axes = graphs.attribute(node, "axes", [])
    if len(node.input) > 1 and node.input[1]:
        axes = flow.network.array(node.input[1]).reshape(-1).tolist()
    if not axes or any(axis % len(shape) < 2 for axis in axes):
        return False
    flow.emit(node, [padded.name, *node.input[1:]], padded.channels)
    return True


def _is_constant_or_none(flow: Flow, name: str) -> bool:
    return not name or flow.network.is_constant(name)


def normalize(flow: Flow, node: onnx.NodeProto) -> bool:
    """Propagate padding through ``BatchNormalization`` and ``InstanceNormalization`` with constants [channels]."""
    padded = _padded(flow, node.input[0])
    if padded is None or len(node.output) > 1 or graphs.attribute(node, "training_mode", 0):
        return False
    if not all(flow.network.is_constant(name) for name in node.input[1:]):
        return False
    # Padding becomes 0 (scale 0, bias 0); epsilon prevents a division by its variance of 0.
    channels = padded.channels.holding(np.zeros(padded.channels.whole))
    constants = [flow.spread(name, (channels, 0)) for name in node.input[1:]]
    flow.emit(node, [padded.name, *constants], channels)
    return True


def resize(flow: Flow, node: onnx.NodeProto) -> bool:
    """Propagate padding through ``Resize`` and ``Upsample``, which interpolate constant channels to themselves."""
    padded, shape, out = _padded(flow, node.input[0]), flow.shape(node.input[0]), flow.shape(node.output[0])
    outside = graphs.attribute(node, "coordinate_transformation_mode", b"") == b"tf_crop_and_resize"
    if padded is None or shape is None or out is None or outside or shape[:2] != out[:2]:
        return False
    if graphs.attribute(node, "axes") is not None or any(not _is_constant_or_none(flow, x) for x in node.input[1:]):
        return False
    inputs = [padded.name, *node.input[1:]]
    if len(inputs) > 3 and inputs[3]:
        inputs[3] = _replaced(flow, inputs[3], padded.channels)
    flow.emit(node, inputs, padded.channels)
    return True


def _replaced(flow: Flow, sizes: str, channels: Channels) -> str:
    """Return a constant shape with the padded number of channels."""

    def make() -> Any:
        array = flow.network.array(sizes).copy()
        array[1] = channels.whole
        return array

    return flow.constant(f"{sizes}_padded", make)


def surround(flow: Flow, node: onnx.NodeProto) -> bool:
    """Propagate padding through ``Pad`` of images, or of a batch of them."""
    padded, shape, out = _padded(flow, node.input[0]), flow.shape(node.input[0]), flow.shape(node.output[0])
    if padded is None or shape is None or out is None or shape[1] != out[1]:
        return False
    if not all(_is_constant_or_none(flow, name) for name in node.input[1:]) or len(node.input) > 3:
        return False
    pads = graphs.attribute(node, "pads")
    if pads is None and len(node.input) > 1:
        pads = flow.network.array(node.input[1]).tolist()
    if pads is None or pads[1] or pads[1 + len(shape)]:
        return False
    value = graphs.attribute(node, "value", 0.0)
    if len(node.input) > 2 and node.input[2]:
        value = float(flow.network.array(node.input[2]).reshape(-1)[0])
    held = padded.channels.fill[~padded.channels.is_real]
    if graphs.attribute(node, "mode", b"constant") == b"constant" and (held != value).any():
        return False
    flow.emit(node, [padded.name, *node.input[1:]], padded.channels)
    return True


def concatenate(flow: Flow, node: onnx.NodeProto) -> bool:
    shapes = [flow.shape(name) for name in node.input]
    known = [_padded(flow, name) for name in node.input]
    if not any(known) or any(shape is None for shape in shapes):
        return False
    rank = len(shapes[0] or ())
    if graphs.attribute(node, "axis") % rank != 1:
        return False
    parts = [
        each.channels if each is not None else Channels.real((shape or (0, 0))[1])
        for each, shape in zip(known, shapes, strict=True)
    ]
    names = [each.name if each is not None else name for each, name in zip(known, node.input, strict=True)]
    flow.emit(node, names, Channels.side_by_side(parts))
    return True


def cut(flow: Flow, node: onnx.NodeProto) -> bool:
    """Propagate padding through ``Slice`` of images, or of a batch of them."""
    padded, shape, out = _padded(flow, node.input[0]), flow.shape(node.input[0]), flow.shape(node.output[0])
    if padded is None or shape is None or out is None:
        return False
    if not all(_is_constant_or_none(flow, name) for name in node.input[1:]):
        return False
    axes = graphs.attribute(node, "axes")
    if len(node.input) > 3 and node.input[3]:
        axes = flow.network.array(node.input[3]).tolist()
    if axes is None or any(axis % len(shape) == 1 for axis in axes):
        return False
    flow.emit(node, [padded.name, *node.input[1:]], padded.channels)
    return True


def reshape(flow: Flow, node: onnx.NodeProto) -> bool:
    """Propagate padding through ``Reshape``, ``Flatten``, ``Squeeze`` and ``Unsqueeze`` that keep a channel axis."""
    padded, shape, out = flow.padded(node.input[0]), flow.shape(node.input[0]), flow.shape(node.output[0])
    if padded is None or shape is None or out is None:
        return False
    if not all(_is_constant_or_none(flow, name) for name in node.input[1:]):
        return False
    axis = graphs.axis_after(shape, out, padded.channels.axis)
    if axis is None or (node.op_type == "Flatten" and axis != 1):
        return False
    inputs = [padded.name, *node.input[1:]]
    if node.op_type == "Reshape":
        if len(inputs) < 2:
            return False
        wanted = [*out[:axis], padded.channels.whole, *out[axis + 1 :]]
        inputs[1] = flow.constant(f"{node.input[1]}_padded", lambda: np.array(wanted, np.int64))
    flow.emit(node, inputs, padded.channels.along(axis))
    return True


Handler = Callable[[Flow, onnx.NodeProto], bool]
"""Emits the node with padding, or returns False without side effects."""

HANDLERS: dict[str, Handler] = {
    **dict.fromkeys(OPERATORS, compute),
    **dict.fromkeys(("Conv", "ConvTranspose"), convolve),
    **dict.fromkeys(("Gemm", "MatMul"), multiply),
    **dict.fromkeys(("MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool"), pool),
    **dict.fromkeys(("ReduceMean", "ReduceMax", "ReduceMin"), reduce),
    **dict.fromkeys(("BatchNormalization", "InstanceNormalization"), normalize),
    **dict.fromkeys(("Resize", "Upsample"), resize),
    **dict.fromkeys(("Reshape", "Flatten", "Squeeze", "Unsqueeze"), reshape),
    "Concat": concatenate,
    "Pad": surround,
    "Slice": cut,
}


def apply(model: onnx.ModelProto, lanes: int) -> int:
    """Pad the outputs of convolutions and dense layers and return their number."""
    network = Network(model=model, lanes=lanes)
    nodes = [node for node in model.graph.node if node.domain in models.STANDARD_DOMAINS]
    found = (convolution_origin(network, node) or product_origin(network, node) for node in nodes)
    origins = frozenset(origin for origin in found if origin)
    while origins:
        flow = _flow(network, origins)
        losing = flow.losing()
        if not losing:
            flow.commit()
            return len(origins)
        # The remaining ones may lose by it: a sum of two tensors is padded only if both are.
        origins -= losing
    return 0


def _flow(network: Network, origins: frozenset[str]) -> Flow:
    flow = Flow(network, origins)
    for node in network.model.graph.node:
        handler = HANDLERS.get(node.op_type) if node.domain in models.STANDARD_DOMAINS else None
        if handler is None or not handler(flow, node):
            flow.keep(node)
    for value in network.model.graph.output:
        flow.remove_padding(value.name)
    return flow
