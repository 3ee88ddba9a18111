"""The steps of a convolution by minimal filtering as tensor expressions, and when each is done."""

from __future__ import annotations

import math
from typing import Any

import tvm
from tvm import te

from tuner.engines.relay.templates.winograd_sizes import Shape, Tiling

TAG = "conv2d_winograd_NCHWc"
DTYPE = "float32"
_UNROLLED = 4


def convolution(data: Any, kernel: Any, shape: Shape, tiling: Tiling) -> Any:
    down, across = tiling.down, tiling.across
    inner, outer = int(data.shape[4]), int(kernel.shape[4])
    chunks, tiles = shape.channels // inner, shape.batch * tiling.rows * tiling.columns
    high = tiling.rows * down.outputs + down.taps - 1
    wide = tiling.columns * across.outputs + across.taps - 1

    def padded(n: Any, i: Any, h: Any, w: Any, c: Any) -> Any:
        y, x = h - shape.top, w - shape.left
        inside = tvm.tir.all(y >= 0, y < shape.height, x >= 0, x < shape.width)
        return tvm.tir.if_then_else(inside, data[n, i, y, x, c], const(0.0))

    pad = te.compute((shape.batch, chunks, high, wide, inner), padded, name="pad")

    def entered_rows(i: Any, p: Any, e: Any, x: Any, c: Any) -> Any:
        image, row, column = p // (tiling.rows * tiling.columns), p // tiling.columns % tiling.rows, p % tiling.columns
        top, left = row * down.outputs, column * across.outputs
        return pick(e, down.enter(lambda y: pad[image, i, top + y, left + x, c]))

    rows = te.compute((chunks, tiles, down.points, across.points, inner), entered_rows, name="input_rows")
    entered = te.compute(
        (down.points, across.points, chunks, tiles, inner),
        lambda e, u, i, p, c: pick(u, across.enter(lambda x: rows[i, p, e, x, c])),
        name="input_values",
    )
    chunk, channel = te.reduce_axis((0, chunks), "chunk"), te.reduce_axis((0, inner), "channel")
    products = te.compute(
        (shape.filters // outer, down.points, across.points, tiles, outer),
        lambda o, e, u, p, c: te.sum(
            entered[e, u, chunk, p, channel] * kernel[o, e, u, chunk * inner + channel, c], axis=[chunk, channel]
        ),
        name="products",
    )
    left = te.compute(
        (shape.filters // outer, tiles, down.outputs, across.points, outer),
        lambda o, p, v, u, c: pick(v, down.leave(lambda e: products[o, e, u, p, c])),
        name="output_rows",
    )
    values = te.compute(
        (shape.filters // outer, tiles, down.outputs, across.outputs, outer),
        lambda o, p, v, x, c: pick(x, across.leave(lambda u: left[o, p, v, u, c])),
        name="output_values",
    )

    def output(n: Any, o: Any, h: Any, w: Any, c: Any) -> Any:
        tile = (n * tiling.rows + h // down.outputs) * tiling.columns + w // across.outputs
        return values[o, tile, h % down.outputs, w % across.outputs, c]

    planes = (shape.batch, shape.filters // outer, shape.rows, shape.columns, outer)
    return te.compute(planes, output, name="convolution", tag=TAG)


class Stages:
    def __init__(self, planned: Any, cfg: Any, convolution: Any, last: Any) -> None:
        self._planned = planned
        self._convolution = convolution
        self._last = last
        (self._values,) = convolution.op.input_tensors
        (self._left,) = self._values.op.input_tensors
        (self._products,) = self._left.op.input_tensors
        self._entered, self._kernel = self._products.op.input_tensors
        (self._rows,) = self._entered.op.input_tensors
        (self._pad,) = self._rows.op.input_tensors
        (self._data,) = self._pad.op.input_tensors
        _, _, self._block, self._registers = (int(size) for size in cfg["tiles"].size)
        self._down, self._across = (int(size) for size in self._values.shape[2:4])
        self._first = bool(cfg["transform_first"].val)

    def plan(self) -> None:
        for packed in (self._data, self._kernel):
            if isinstance(packed.op, te.ComputeOp):
                plain(self._planned[packed])
        last = self._last
        if [int(size) for size in last.shape] != [int(size) for size in self._convolution.shape]:
            # Not element by element, such as the model's own layout: the convolution is stored before.
            plain(self._planned[last])
            last = self._convolution
        elif last != self._convolution:
            self._planned[self._convolution].compute_inline()
        outer, inner = self._leave(last)
        self._multiply(inner)
        self._enter(None if self._first else (self._planned[last], outer))

    def _leave(self, last: Any) -> tuple[Any, Any]:
        """Returns the axis over blocks of tiles, and where the products of a filter block are computed."""
        stage = self._planned[last]
        n, o, h, w, c = stage.op.axis
        outer, h = stage.split(h, self._block * self._down)
        row, v = stage.split(h, self._down)
        column, x = stage.split(w, self._across)
        stage.reorder(n, outer, o, row, column, v, x, c)
        blocks = stage.fuse(n, outer, o) if self._first else stage.fuse(n, outer)
        stage.parallel(blocks)
        _vectorize(stage, c, v, x)
        for tensor in (self._values, self._left):
            self._planned[tensor].compute_at(stage, v)
            *_, v_, x_, c_ = tensor.op.axis
            _vectorize(self._planned[tensor], c_, v_, x_)
        self._products_at = (stage, blocks if self._first else o)
        return blocks, self._products_at

    def _multiply(self, place: tuple[Any, Any]) -> None:
        products = self._planned[self._products]
        products.compute_at(*place)
        sums = self._planned.cache_write(self._products, "global")
        products = self._planned[self._products]
        o, e, u, p, c = products.op.axis
        outer, inner = products.split(p, self._registers)
        products.reorder(o, e, u, outer, inner, c)
        _vectorize(products, c, inner)
        stage = self._planned[sums]
        stage.compute_at(products, outer)
        o, e, u, p, c = stage.op.axis
        chunk, channel = stage.op.reduce_axis
        channel, few = stage.split(channel, _UNROLLED)
        stage.reorder(o, e, u, chunk, channel, few, p, c)
        _vectorize(stage, c, few, p)

    def _enter(self, place: tuple[Any, Any] | None) -> None:
        stage = self._planned[self._entered]
        e, u, i, p, c = stage.op.axis
        if place is None:
            blocks, p = stage.split(p, self._tiles)
            stage.reorder(blocks, i, p, e, u, c)
            stage.parallel(blocks)
        else:
            stage.compute_at(*place)
            stage.reorder(i, p, e, u, c)
        _vectorize(stage, c, e, u)
        rows = self._planned[self._rows]
        # A row of points at a time fits the registers.
        rows.compute_at(stage, e)
        *_, y, x, c = rows.op.axis
        _vectorize(rows, c, y, x)
        pad = self._planned[self._pad]
        pad.compute_at(stage, i)
        pad.vectorize(pad.op.axis[-1])

    @property
    def _tiles(self) -> int:
        """Of a block."""
        images, rows = int(self._convolution.shape[0]), math.ceil(int(self._convolution.shape[2]) / self._down)
        return int(self._values.shape[1]) // images // math.ceil(rows / self._block)


def _vectorize(stage: Any, lanes: Any, *unrolled: Any) -> None:
    for axis in unrolled:
        stage.unroll(axis)
    stage.vectorize(lanes)


def plain(stage: Any) -> None:
    axes = stage.op.axis
    stage.parallel(stage.fuse(*axes[:2]))


def pick(position: Any, values: list[Any]) -> Any:
    """``values[position]``; constant once the loop over positions is unrolled."""
    chosen = values[-1]
    for place in reversed(range(len(values) - 1)):
        chosen = tvm.tir.Select(position == place, values[place], chosen)
    return chosen


def const(value: float) -> Any:
    return tvm.tir.const(float(value), DTYPE)
