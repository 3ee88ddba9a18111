"""Images of few channels, which convolutions read as planes, as they are given, for builds that may be rewritten.

With the channels last, such an image would be transposed, and copied number by number to be padded. A convolution
multiplies each number by a vector of filters, so that it reads planes as fast; their lines are padded in vectors.
"""

from __future__ import annotations

from typing import Any

from tvm import relax, te, tirx

from tuner.engines.relax.graph import calls

PADDED = "padded_planes"
"""Name of the block that puts zeros around the image."""
_MOST_CHANNELS = 4
"""The more planes, the more lines of the cache are read at a time."""
_TRANSPOSITION = "relax.permute_dims"


def read(module: Any) -> Any:
    """Return an ``IRModule`` whose convolutions read images of few channels before they are transposed to NHWC."""
    return calls.mutate(module, _Reading)


@relax.expr_functor.mutator
class _Reading(relax.PyExprMutator):
    def __init__(self, function: Any) -> None:
        super().__init__()
        self._planes = {
            each.var: each.value.args[0]
            for each in calls.bindings(function)
            if calls.operator(each.value) == _TRANSPOSITION and _is_of_planes(each.value)
        }

    def visit_call_(self, call: Any) -> Any:
        visited = self.visit_expr_post_order(call)
        if not calls.is_image_convolution(call) or call.args[0] not in self._planes or int(call.attrs.groups) != 1:
            return visited
        attrs = call.attrs
        return relax.op.nn.conv2d(
            self.visit_expr(self._planes[call.args[0]]), visited.args[1], attrs.strides, attrs.padding,
            data_layout="NCHW", kernel_layout=attrs.kernel_layout, out_layout=attrs.out_layout,
        )  # fmt: skip


def _is_of_planes(transposition: Any) -> bool:
    axes, image = transposition.attrs.axes, calls.sizes(transposition.args[0])
    if axes is None or image is None:
        return False
    return [int(axis) for axis in axes] == [0, 2, 3, 1] and image[1] <= _MOST_CHANNELS


def computed(builder: Any, call: Any) -> Any | None:
    """Return the call of a tensor function for a convolution that ``read`` made; None for other calls.

    TVM has none for results in another layout than the image's.
    """
    if not calls.is_image_convolution(call, layout="NCHW"):
        return None
    strides, padding = ([int(each) for each in sizes] for sizes in (call.attrs.strides, call.attrs.padding))
    return builder.call_te(
        lambda data, kernel: _convolution(data, kernel, strides, padding),
        *call.args,
        primfunc_name_hint="conv2d",
        primfunc_attrs={"op_pattern": calls.FUSES_ELEMENTWISE},
    )


def _convolution(data: Any, kernel: Any, strides: list[int], padding: list[int]) -> Any:
    """Return the tensor (batch, height, width, filters) of an image in planes and weights in HWIO."""
    batch, channels, height, width = data.shape
    down, across, _, filters = kernel.shape
    top, left, bottom, right = padding
    high, wide = height + top + bottom, width + left + right

    def padded(n: Any, c: Any, y: Any, x: Any) -> Any:
        inside = tirx.all(y >= top, y < top + height, x >= left, x < left + width)
        return tirx.if_then_else(inside, data[n, c, y - top, x - left], tirx.const(0.0, data.dtype))

    image = te.compute((batch, channels, high, wide), padded, name=PADDED) if any(padding) else data
    tap_y, tap_x, channel = (te.reduce_axis((0, size)) for size in (down, across, channels))
    rows, columns = (high - down) // strides[0] + 1, (wide - across) // strides[1] + 1

    def value(n: Any, y: Any, x: Any, f: Any) -> Any:
        read = image[n, channel, y * strides[0] + tap_y, x * strides[1] + tap_x]
        return te.sum(read * kernel[tap_y, tap_x, channel, f], axis=[tap_y, tap_x, channel])

    return te.compute((batch, rows, columns, filters), value, name="conv2d")
