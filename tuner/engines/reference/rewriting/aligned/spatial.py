"""Padding of channels, axis 1, through operators that treat each by itself, and those that put them side by side."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import onnx

from tuner.engines.reference.rewriting import graphs
from tuner.engines.reference.rewriting.aligned.channels import Channels
from tuner.engines.reference.rewriting.aligned.flow import Flow, Padded


def _padded(flow: Flow, name: str) -> Padded | None:
    padded = flow.padded(name)
    return padded if padded is not None and padded.channels.axis == 1 else None


def pool(flow: Flow, node: onnx.NodeProto) -> bool:
    """Pooling of windows, or of everything: it keeps what is the same everywhere."""
    padded = _padded(flow, node.input[0])
    if padded is None or len(node.output) > 1:
        return False
    # Zeros around the image count among what is averaged.
    averages_zeros = node.op_type == "AveragePool" and graphs.attribute(node, "count_include_pad", 0)
    if averages_zeros and padded.channels.fill.any():
        return False
    flow.emit(node, [padded.name], padded.channels)
    return True


def reduce(flow: Flow, node: onnx.NodeProto) -> bool:
    """``ReduceMean`` and the like over anything but images and channels."""
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
    """``BatchNormalization`` and ``InstanceNormalization``, whose constants are [channels]."""
    padded = _padded(flow, node.input[0])
    if padded is None or len(node.output) > 1 or graphs.attribute(node, "training_mode", 0):
        return False
    if not all(flow.network.is_constant(name) for name in node.input[1:]):
        return False
    # Scaled by zero to a bias of zero; a variance of zero is kept from division by epsilon.
    channels = padded.channels.holding(np.zeros(padded.channels.whole))
    constants = [flow.spread(name, (channels, 0)) for name in node.input[1:]]
    flow.emit(node, [padded.name, *constants], channels)
    return True


def resize(flow: Flow, node: onnx.NodeProto) -> bool:
    """``Resize`` and ``Upsample``; what is the same everywhere is interpolated to itself."""
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
    """A constant shape with the padded number of channels."""

    def make() -> Any:
        array = flow.network.array(sizes).copy()
        array[1] = channels.whole
        return array

    return flow.constant(f"{sizes}_padded", make)


def surround(flow: Flow, node: onnx.NodeProto) -> bool:
    """``Pad`` of images."""
    padded, shape, out = _padded(flow, node.input[0]), flow.shape(node.input[0]), flow.shape(node.output[0])
    if padded is None or shape is None or out is None or shape[:2] != out[:2]:
        return False
    if not all(_is_constant_or_none(flow, name) for name in node.input[1:]) or len(node.input) > 3:
        return False
    pads = graphs.attribute(node, "pads")
    if pads is None and len(node.input) > 1:
        pads = flow.network.array(node.input[1]).tolist()
    if pads is None or any(pads[axis] or pads[axis + len(shape)] for axis in (0, 1)):
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
    """``Slice`` of images."""
    padded, shape, out = _padded(flow, node.input[0]), flow.shape(node.input[0]), flow.shape(node.output[0])
    if padded is None or shape is None or out is None:
        return False
    if not all(_is_constant_or_none(flow, name) for name in node.input[1:]):
        return False
    axes = graphs.attribute(node, "axes")
    if len(node.input) > 3 and node.input[3]:
        axes = flow.network.array(node.input[3]).tolist()
    if axes is None or any(axis % len(shape) < 2 for axis in axes):
        return False
    flow.emit(node, [padded.name, *node.input[1:]], padded.channels)
    return True


def reshape(flow: Flow, node: onnx.NodeProto) -> bool:
    """``Reshape``, ``Flatten``, ``Squeeze`` and ``Unsqueeze`` that leave the channels on an axis of their own."""
    padded, shape, out = flow.padded(node.input[0]), flow.shape(node.input[0]), flow.shape(node.output[0])
    if padded is None or shape is None or out is None:
        return False
    if not all(_is_constant_or_none(flow, name) for name in node.input[1:]):
        return False
    axis = _axis_after(shape, out, padded.channels.axis)
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


def _axis_after(shape: tuple[int, ...], out: tuple[int, ...], axis: int) -> int | None:
    """Where an axis is after a change of shape: as many elements come before it, and as many after it."""
    if 0 in shape:
        return None
    place = (math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :]))
    places = [(math.prod(out[:each]), out[each], math.prod(out[each + 1 :])) for each in range(len(out))]
    return places.index(place) if place in places else None
