"""Converters of ONNX operators that TVM's own importer converts to wrong or slow networks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.relax.frontend.onnx import onnx_frontend

from tuner.engines.relax import boxes

_own_clip = onnx_frontend.Clip._impl_v13
_own_pad = onnx_frontend.Pad._lower_pad.__func__
_own_pad_by_attributes = onnx_frontend.Pad._impl_v2.__func__
_own_resize = onnx_frontend.Resize._impl_v18
_own_slice = onnx_frontend.Slice._impl_v13
_own_squeeze = onnx_frontend.Squeeze._squeeze.__func__


def install() -> None:
    """Replace TVM's converters by those below; idempotent."""
    onnx_frontend.Clip._impl_v1 = staticmethod(clip_by_attributes)
    onnx_frontend.Clip._impl_v13 = staticmethod(clip)
    onnx_frontend.NonMaxSuppression._impl_v10 = staticmethod(boxes.non_max_suppression)
    onnx_frontend.Pad._impl_v2 = classmethod(pad_by_attributes)
    onnx_frontend.Pad._lower_pad = classmethod(pad)
    onnx_frontend.Resize._impl_v18 = staticmethod(resize)
    onnx_frontend.Slice._impl_v1 = staticmethod(slice_by_attributes)
    onnx_frontend.Slice._impl_v10 = _own_slice
    onnx_frontend.Squeeze._squeeze = classmethod(squeeze)


def clip(builder: Any, inputs: Sequence[Any], attributes: Mapping[str, Any], parameters: Any, /) -> Any:
    """Convert ``Clip``. TVM's own converter makes tensor functions of it, which no layout of convolutions passes."""
    bounds = [*inputs[1:], None, None][:2]
    if not all(each is None or _is_bound(each) for each in bounds):
        return _own_clip(builder, inputs, attributes, parameters)
    clipped = inputs[0]
    for bound, limited in zip(bounds, (relax.op.maximum, relax.op.minimum), strict=True):
        if bound is not None:
            clipped = builder.emit(limited(clipped, bound))
    return clipped


def clip_by_attributes(builder: Any, inputs: Sequence[Any], attributes: Mapping[str, Any], parameters: Any, /) -> Any:
    """Convert ``Clip`` of operator sets before 11, whose bounds are attributes."""
    given = [attributes.get(name) for name in ("min", "max")]
    bounds = [None if each is None else relax.const(float(each), inputs[0].ty.dtype) for each in given]
    return clip(builder, [inputs[0], *bounds], attributes, parameters)


def _is_bound(given: Any) -> bool:
    """Return whether it is a known number; one that is not a number would mean that there is no bound."""
    return isinstance(given, tvm.ir.GenericConst) and not np.isnan(given.value.numpy()).any()


def pad(
    own: Any, builder: Any, inputs: Sequence[Any], attributes: Mapping[str, Any], parameters: Any, modes: set[str], /
) -> Any:
    """Convert ``Pad``. TVM's own converter makes tensor functions, which ``shuffles`` and no layout can follow."""
    mode = attributes.get("mode", b"constant").decode()
    if not _is_operator(inputs[0], mode) or mode not in modes:
        return _own_pad(own, builder, inputs, attributes, parameters, modes)
    before, after, value = own._parse_pads_and_axes(inputs, parameters)
    return _padded(builder, inputs[0], before, after, value, mode)


def pad_by_attributes(
    own: Any, builder: Any, inputs: Sequence[Any], attributes: Mapping[str, Any], parameters: Any, /
) -> Any:
    """Convert ``Pad`` of operator sets before 11, whose widths are attributes."""
    mode = attributes.get("mode", b"constant").decode()
    if not _is_operator(inputs[0], mode):
        return _own_pad_by_attributes(own, builder, inputs, attributes, parameters)
    before, after = np.split(np.array(attributes["pads"]), 2)
    return _padded(builder, inputs[0], before, after, attributes.get("value", 0.0), mode)


PAD_MODES = {"constant": "constant", "reflect": "reflect", "edge": "replicate", "wrap": "circular"}
"""Modes of padding by ONNX's names, as relax calls them."""
_IMAGE_RANK = 4


def _is_operator(data: Any, mode: str) -> bool:
    """Return whether padding becomes an operator, which passes can follow.

    Apart from constants it does for images alone: where no pass follows it, TVM's importer makes the faster function.
    """
    return data.ty.dtype == "float32" and (mode == "constant" or data.ty.ndim == _IMAGE_RANK)


def _padded(builder: Any, data: Any, before: Sequence[int], after: Sequence[int], value: float, mode: str) -> Any:
    """Return padded data. Negative widths cut it first: TVM's layouts, and our passes, expect none in a padding."""
    widths = [int(width) for pair in zip(before, after, strict=True) for width in pair]
    cut = [axis for axis in range(len(before)) if min(before[axis], after[axis]) < 0]
    if cut:
        begins, ends = ([max(0, -int(each[axis])) for axis in cut] for each in (before, after))
        sizes = [data.ty.shape.values[axis] for axis in cut]
        data = builder.emit(
            relax.op.strided_slice(data, cut, begins, [size - end for size, end in zip(sizes, ends, strict=True)])
        )
        widths = [max(0, width) for width in widths]
    return relax.op.nn.pad(data, widths, PAD_MODES[mode], float(value)) if any(widths) else data


def resize(builder: Any, inputs: Sequence[Any], attributes: Mapping[str, Any], parameters: Any, /) -> Any:
    """Convert ``Resize``. TVM's own converter refuses sizes beside scales without elements."""
    filled = [each if _has_elements(each) else None for each in inputs]
    return _own_resize(builder, [*filled, None, None, None][:4], attributes, parameters)


def slice_by_attributes(builder: Any, inputs: Sequence[Any], attributes: Mapping[str, Any], parameters: Any, /) -> Any:
    """Convert ``Slice`` of operator sets before 10, whose bounds are attributes. TVM has no converter for it."""
    starts, ends = list(attributes["starts"]), list(attributes["ends"])
    axes = list(attributes.get("axes") or range(len(starts)))
    bounds = [relax.const(np.array(each, np.int64)) for each in (starts, ends, axes)]
    return _own_slice(builder, [*inputs, *bounds, None], attributes, parameters)


def squeeze(own: Any, builder: Any, data: Any, axes: Any, /) -> Any:
    """Convert ``Squeeze``. TVM's ``ConvertLayout`` fails at axes that are counted from the last one."""
    rank = onnx_frontend._get_known_tensor_rank(data)
    if rank and isinstance(axes, tuple | list):
        axes = tuple(int(axis) % rank for axis in axes)
    return _own_squeeze(own, builder, data, axes)


def _has_elements(given: Any) -> bool:
    return not isinstance(given, tvm.ir.GenericConst) or given.value.numpy().size > 0
