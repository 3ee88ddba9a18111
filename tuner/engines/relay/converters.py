"""Converters for ONNX operators that TVM 0.19's importer lacks or reads wrongly.

A converter accepts the inputs, the node's attributes (strings as bytes) and the importer's parameters, and returns a
Relay expression, like those of ``tvm.relay.frontend.onnx``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from tvm import relay
from tvm.relay.frontend import common
from tvm.relay.frontend import onnx as frontend

Converter = Callable[[Sequence[Any], Mapping[str, Any], Any], Any]

_added: dict[str, Converter] = {}


def add(operator: str, converter: Converter) -> None:
    """Use ``converter`` for every node of that type, even if the importer has its own."""
    if not _added:
        original = frontend._get_convert_map
        # The importer asks for the map at every node.
        frontend._get_convert_map = functools.cache(lambda opset: {**original(opset), **_added})
    _added[operator] = converter
    frontend._get_convert_map.cache_clear()


def install() -> None:
    """Add the converters below; idempotent."""
    add("GridSample", grid_sample)
    add("TopK", top_k)
    add("Clip", clip)
    add("MatMul", matrix_product)
    frontend.Reduce._impl_v12 = frontend.Reduce._impl_v13 = classmethod(_reduce)


_METHODS = {
    "linear": "bilinear",
    "bilinear": "bilinear",
    "cubic": "bicubic",
    "bicubic": "bicubic",
    "nearest": "nearest",
}


def grid_sample(inputs: Sequence[Any], attributes: Mapping[str, Any], _: Any) -> Any:
    """Convert GridSample of opsets 16 (``bilinear``, ``bicubic``) and 20 (``linear``, ``cubic``, also volumes).

    TVM's own converter accepts only 4-D inputs and the mode names of opset 16.
    """
    data, grid = inputs
    method = _METHODS[attributes.get("mode", b"linear").decode()]
    rank = len(common.infer_shape(data))
    # ONNX has the coordinates last, TVM after the batch.
    coordinates = relay.transpose(grid, axes=(0, rank - 1, *range(1, rank - 1)))
    return relay.image.grid_sample(
        data,
        coordinates,
        method=method,
        layout="NCHW" if rank == 4 else "NCDHW",
        padding_mode=attributes.get("padding_mode", b"zeros").decode(),
        align_corners=bool(attributes.get("align_corners", 0)),
    )


def clip(inputs: Sequence[Any], attributes: Mapping[str, Any], parameters: Any) -> Any:
    """Convert Clip, also with one bound. TVM's own ignores a constant bound if the other is missing."""
    if "min" in attributes or "max" in attributes or len(inputs) == 1:  # Up to opset 10 the bounds are attributes.
        return frontend.Clip._impl_v1(inputs, attributes, parameters)
    data, low, high = (*inputs, None)[:3]
    if low is not None and high is not None:
        return frontend.Clip._impl_v11(list(inputs), attributes, parameters)
    if low is not None:
        data = relay.maximum(data, low)
    return data if high is None else relay.minimum(data, high)


def matrix_product(inputs: Sequence[Any], attributes: Mapping[str, Any], parameters: Any) -> Any:
    """Convert MatMul, to what TVM's own converter makes of it.

    That one computes the shapes of tensors of three or more dimensions with compiled code, half a second a product.
    """
    shapes = [common.infer_shape(each) for each in inputs]
    if max(map(len, shapes)) == 2 or min(map(len, shapes)) == 1 or not all(map(_is_static, shapes)):
        return frontend.MatMul._impl_v1(inputs, attributes, parameters)
    (left, right), (of_left, of_right) = inputs, shapes
    batch, dtype = np.broadcast_shapes(of_left[:-2], of_right[:-2]), common.infer_type(left).checked_type.dtype
    if len(of_right) == 2:
        product = relay.nn.dense(relay.reshape(left, (-1, of_left[-1])), relay.transpose(right), out_dtype=dtype)
    else:
        stacks = [_stack(each, shape, batch) for each, shape in zip(inputs, shapes, strict=True)]
        product = relay.nn.batch_matmul(stacks[0], relay.transpose(stacks[1], (0, 2, 1)), out_dtype=dtype)
    return relay.reshape(product, (*batch, of_left[-2], of_right[-1]))


def _stack(matrices: Any, shape: tuple[int, ...], batch: tuple[int, ...]) -> Any:
    """Return the matrices along one axis, repeated to ``batch``."""
    if shape[:-2] != batch:
        matrices = relay.broadcast_to(matrices, (*batch, *shape[-2:]))
    return matrices if len(batch) == 1 else relay.reshape(matrices, (-1, *shape[-2:]))


def _is_static(shape: Sequence[Any]) -> bool:
    return all(isinstance(size, int) for size in shape)


def _reduce(cls: Any, inputs: Any, attributes: Mapping[str, Any], parameters: Any) -> Any:
    """Convert reductions whose axes are an input. TVM's own converter reads the first axis only."""
    listed = inputs[1] if len(inputs) > 1 else None
    if listed is not None and not isinstance(listed, relay.Constant):
        raise ValueError("the axes are computed")
    axes = [] if listed is None else [int(axis) for axis in listed.data.numpy()]
    if axes:
        return cls.run_calculation([inputs[0]], axes, attributes.get("keepdims", True))
    if attributes.get("noop_with_empty_axes", 0):
        return inputs[0]
    return cls._impl_v1([inputs[0]], attributes, parameters)


def top_k(inputs: Sequence[Any], attributes: Mapping[str, Any], _: Any) -> Any:
    """Convert TopK. TVM's own converter sorts all for the smallest values, and makes slices that it cannot type.

    Values are sorted, as with ``sorted=1``; without it their order is free.
    """
    # Opset 10 made the attribute an input.
    data, count = inputs if len(inputs) == 2 else (inputs[0], attributes["k"])
    smallest = attributes.get("largest", 1) == 0
    return relay.topk(data, count, axis=attributes.get("axis", -1), is_ascend=smallest, dtype="int64")
