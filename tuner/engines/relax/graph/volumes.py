"""One operator that joins each plane of a volume with its neighbours, in the layout of convolutions.

``onnx.rewriting.volumes`` emits zero padding along the batch, a slice for each tap of the kernel, and a concatenation
along the channels. ``ConvertLayout`` has no rule for this padding. TVM would also fuse the slices with the operators
before them, and repeat those for each tap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np
import tvm
from tvm import relax, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script.builder import ir

from tuner.engines.relax.graph import calls

_JOINING, _SLICE, _PADDING = "relax.concat", "relax.strided_slice", "relax.nn.pad"
_RANK = 4


def find(module: Any) -> Any:
    """Return an ``IRModule`` in which joined slices along the batch are one operator, ``calls.NEIGHBOURS``."""
    _register()
    return relax.transform.DeadCodeElimination()(calls.mutate(module, _Finding))


@cache
def _register() -> None:
    """Register ``calls.NEIGHBOURS``: of two tensors, in NCHW (n, c, h, w) and (images, taps, 1, 1).

    The second one, a constant, has for each image of the result and each tap the number of the image that it joins; -1
    is zeros. Results have the channels of all taps.
    """
    calls.register(calls.NEIGHBOURS, "taps", _result)


def _axis(call: Any) -> int:
    """Return the axis of the channels."""
    return [int(size) > 1 for size in call.args[1].ty.shape.values[1:]].index(True) + 1


def _result(call: Any) -> Any:
    data, table = (each.ty.shape.values for each in call.args)
    shape = [table[0], *(size * taps for size, taps in zip(data[1:], table[1:], strict=True))]
    return relax.TensorType(shape, call.args[0].ty.dtype)


@relax.expr_functor.mutator
class _Finding(relax.PyExprMutator):
    def __init__(self, function: Any) -> None:
        super().__init__()
        self._values = {each.var: each.value for each in calls.bindings(function)}

    def visit_call_(self, call: Any) -> Any:
        slices = self._slices(call) if calls.operator(call) == _JOINING else []
        taps = [_images(each) for each in slices]
        if len(taps) < 2 or any(each is None for each in taps) or len({each.args[0] for each in slices}) > 1:
            return self.visit_expr_post_order(call)
        source, before = self._between_zeros(slices[0].args[0])
        table = np.stack(taps, axis=1) - before
        table[(table < 0) | (table >= int(source.ty.shape.values[0]))] = -1
        given = [self.visit_expr(source), relax.const(table[:, :, None, None].astype(np.int32))]
        return relax.Call(tvm.ir.Op.get(calls.NEIGHBOURS), given)

    def _slices(self, call: Any) -> list[Any]:
        """Return the values that a call joins along the channels of images; empty for others."""
        parts = self._values.get(call.args[0], call.args[0])
        is_joined = isinstance(parts, relax.Tuple) and int(call.attrs.axis or 0) in (1, 1 - _RANK)
        if not is_joined or call.ty.ndim != _RANK or calls.sizes(call) is None:
            return []
        return [self._values.get(each) for each in parts.fields]

    def _between_zeros(self, source: Any) -> tuple[Any, int]:
        """Return the tensor that zeros were put around, and how many images of them are before it."""
        padding: Any = self._values.get(source)
        if calls.operator(padding) != _PADDING:
            return source, 0
        before, _, *others = [int(each) for each in padding.attrs.pad_width]
        is_zeros = str(padding.attrs.pad_mode) == "constant" and not padding.attrs.pad_value
        return (padding.args[0], before) if is_zeros and not any(others) else (source, 0)


def _images(value: Any) -> Any | None:
    """Return the numbers of the images that a slice along the batch has, int array; None for other values."""
    shape = calls.sizes(value.args[0]) if calls.operator(value) == _SLICE else None
    if shape is None:
        return None
    parts = value.args[1:]
    if any(len(part) != 1 or not isinstance(part[0], tirx.IntImm) for part in parts):
        return None
    axis, *bounds = [int(part[0]) for part in parts]
    return np.arange(shape[0])[slice(*bounds)] if axis == 0 else None


def legalizations() -> dict[str, Callable[[Any, Any], Any]]:
    """Return a function for ``LegalizeOps``."""
    return {calls.NEIGHBOURS: _computed}


def _computed(builder: Any, call: Any) -> Any:
    function = builder.add_func(_copies(call), "neighbours")
    return relax.call_tir(function, [call.args[0]], call.ty)


def _copies(call: Any) -> Any:
    """Return a tensor function that copies the images of each tap to their place in the result."""
    table, axis = call.args[1].value.numpy(), _axis(call)
    with IRBuilder() as builder, ir.prim_func(is_private=True, s_tir=True):
        ir.func_attr({"tirx.noalias": True})
        source, joined = (
            ir.arg(name, ir.buffer(list(each.shape.values), str(each.dtype)))
            for name, each in (("images", call.args[0].ty), ("joined", call.ty))
        )
        for tap, images in enumerate(table.reshape(len(table), -1).T.tolist()):
            offset = [0] * _RANK
            offset[axis] = tap * int(source.shape[axis])
            for place, count, read in _runs(images):
                offset[0] = place
                _copy(source, joined, count, offset, read)
    return builder.get()


def _runs(images: list[int]) -> Iterator[tuple[int, int, tuple[int, int] | None]]:
    """Yield the start and length of each run of equal steps, and the first image and the step; None for zeros."""
    start = 0
    while start < len(images):
        first, end = images[start], start + 1
        step = images[end] - first if first >= 0 and end < len(images) and images[end] >= 0 else 0
        while end < len(images) and images[end] == first + (end - start) * step:
            end += 1
        yield start, end - start, (first, step) if first >= 0 else None
        start = end


def _copy(source: Any, joined: Any, count: int, offset: list[int], read: tuple[int, int] | None) -> None:
    """Fill so many images of the result, from the first image and the step of ``read``, or with zeros."""
    with ir.grid(count, *source.shape[1:]) as loops, ir.sblock("T_concat"):
        image, *inner = ir.axis.remap("S" * _RANK, loops)
        written = [place + more for place, more in zip([image, *inner], offset, strict=True)]
        if read is None:
            ir.reads()
            value = tirx.const(0, joined.dtype)
        else:
            place = (image * read[1] + read[0], *inner)
            ir.reads(source[place])
            value = source[place]
        ir.writes(joined[tuple(written)])
        ir.buffer_store(joined, value, written)
