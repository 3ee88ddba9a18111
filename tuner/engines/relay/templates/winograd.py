"""AutoTVM template ``conv2d_winograd_NCHWc.x86``: convolutions by minimal filtering (``runtime.filtering``).

Its workload is that of TVM's ``conv2d_NCHWc.x86``, and its output is blocked in the same way. A block of tiles passes
through all steps while it is in the cache: transformed inputs, one matrix product per point, transformed outputs and
the operators that follow the convolution.

The module contains, in this order: tile sizes; the steps as tensor expressions and their schedule; the template; its
registration with Relay and its calls in the blocked layout.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import tvm
from tvm import autotvm, relay, te
from tvm.autotvm.task.space import FallbackConfigEntity, OtherOptionEntity, SplitEntity
from tvm.autotvm.task.topi_integration import TaskExtractEnv
from tvm.relay.op.strategy import generic as strategies
from tvm.relay.op.strategy import x86
from tvm.topi import utils
from tvm.topi.nn.conv2d import unpack_NCHWc_to_nchw
from tvm.topi.nn.utils import get_pad_tuple
from tvm.topi.x86 import conv2d

from tuner.engines.relay.templates import dispatching
from tuner.engines.runtime.filtering import Filtering, along, multiple, pick

OUTPUTS = (4, 2)
"""Outputs of a tile along an axis with more than one tap."""
TAPS = (3, 5)


def points_weights(rows: Filtering, columns: Filtering, kernel: Any, block: int) -> Any:
    """Transform weights (out, in, taps, taps) to float32 (out / block, points, points, in, block)."""
    values = np.einsum("ea,ub,oiab->oeui", rows.kernel, columns.kernel, kernel.astype("float64"))
    blocked = values.reshape(-1, block, rows.points, columns.points, kernel.shape[1])
    return np.ascontiguousarray(blocked.transpose(0, 2, 3, 4, 1)).astype("float32")


_MOST_REGISTERS = 16
"""Maximum number of tiles whose sums are in registers.

TVM keeps 1 kB on the stack, which LLVM moves to registers; twice as many ran at half the speed.
"""
_FEWEST_REGISTERS = 4
"""With fewer the multipliers wait for sums."""
_MOST_TILES = 64
"""Maximum number of tiles in a block."""
_MOST_WAYS = 12
"""Maximum number of ways to cut an image into tiles of one size; narrow images have many."""
_MOST_WASTE = 1.34
"""Maximum ratio of computed to needed tiles."""


@dataclass(frozen=True, kw_only=True)
class Shape:
    """Shape of a convolution in NCHW."""

    batch: int
    channels: int
    height: int
    width: int
    filters: int
    taps: tuple[int, int]
    top: int
    left: int
    rows: int
    columns: int
    """Height and width of the output."""

    @classmethod
    def of(cls, data: Sequence[int], filters: int, taps: tuple[int, int], padding: Any) -> Shape:
        batch, channels, height, width = data
        top, left, bottom, right = get_pad_tuple(padding, taps)
        return cls(
            batch=batch,
            channels=channels,
            height=height,
            width=width,
            filters=filters,
            taps=taps,
            top=int(top),
            left=int(left),
            rows=height + int(top + bottom) - taps[0] + 1,
            columns=width + int(left + right) - taps[1] + 1,
        )

    @property
    def flop(self) -> int:
        """Floating-point operations of the direct convolution."""
        return 2 * self.batch * self.filters * self.rows * self.columns * self.channels * self.taps[0] * self.taps[1]


@dataclass(frozen=True, kw_only=True)
class Tiling:
    down: Filtering
    across: Filtering
    block: int
    """Rows of tiles that are computed together."""
    rows: int
    """Rows of tiles in an image, a multiple of ``block``."""
    columns: int
    """Columns of tiles: enough that the tiles in registers divide a block."""

    @classmethod
    def of(cls, sizes: Sequence[int], shape: Shape) -> Tiling:
        outputs, block, registers = (int(size) for size in sizes[1:])
        down, across = (along(outputs, taps) for taps in shape.taps)
        step = registers // math.gcd(block, registers)
        return cls(
            down=down,
            across=across,
            block=block,
            rows=multiple(math.ceil(shape.rows / down.outputs), block),
            columns=multiple(math.ceil(shape.columns / across.outputs), step),
        )

    def waste(self, shape: Shape) -> float:
        """Return the ratio of computed to needed tiles."""
        wanted = math.ceil(shape.rows / self.down.outputs) * math.ceil(shape.columns / self.across.outputs)
        return self.rows * self.columns / wanted


def tilings(shape: Shape) -> list[list[int]]:
    """Return tilings ``[-1, outputs, rows of tiles in a block, tiles in registers]``, least waste first."""
    return [sizes for outputs in OUTPUTS for sizes in _tilings(shape, outputs)]


def _tilings(shape: Shape, outputs: int) -> list[list[int]]:
    down, across = (along(outputs, taps).outputs for taps in shape.taps)
    rows, columns = math.ceil(shape.rows / down), math.ceil(shape.columns / across)
    found = []
    for block in range(1, rows + 1):
        if block == 1 or (block * columns <= _MOST_TILES and multiple(rows, block) <= rows * _MOST_WASTE):
            found += [(Tiling.of(sizes, shape).waste(shape), sizes) for sizes in _registered(outputs, block, columns)]
    found.sort(key=lambda pair: (pair[0], -pair[1][3], pair[1][2]))
    return [sizes for _, sizes in found[:_MOST_WAYS]]


def _registered(outputs: int, block: int, columns: int) -> list[list[int]]:
    """Return the two largest register counts that divide the tiles and, if small, one that needs more tiles."""
    fitting = [each for each in range(1, _MOST_REGISTERS + 1) if block * columns % each == 0]
    enough = [each for each in fitting[-2:] if each >= _FEWEST_REGISTERS]
    if max(enough, default=0) < _MOST_REGISTERS // 2:
        count = range(_MOST_REGISTERS // 2, _MOST_REGISTERS + 1)
        enough = [*enough, min(count, key=lambda each: (multiple(block * columns, each), -each))]
    return [[-1, outputs, block, each] for each in enough]


TAG = "conv2d_winograd_NCHWc"
DTYPE = "float32"
_pick = partial(pick, tvm.tir.Select)
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
        return _pick(e, down.enter(lambda y: pad[image, i, top + y, left + x, c]))

    rows = te.compute((chunks, tiles, down.points, across.points, inner), entered_rows, name="input_rows")
    entered = te.compute(
        (down.points, across.points, chunks, tiles, inner),
        lambda e, u, i, p, c: _pick(u, across.enter(lambda x: rows[i, p, e, x, c])),
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
        lambda o, p, v, u, c: _pick(v, down.leave(lambda e: products[o, e, u, p, c])),
        name="output_rows",
    )
    values = te.compute(
        (shape.filters // outer, tiles, down.outputs, across.outputs, outer),
        lambda o, p, v, x, c: _pick(x, across.leave(lambda u: left[o, p, v, u, c])),
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
            # Not elementwise, such as a conversion to the model's own layout: the convolution is stored first.
            plain(self._planned[last])
            last = self._convolution
        elif last != self._convolution:
            self._planned[self._convolution].compute_inline()
        outer, inner = self._leave(last)
        self._multiply(inner)
        self._enter(None if self._first else (self._planned[last], outer))

    def _leave(self, last: Any) -> tuple[Any, Any]:
        """Return the axis over blocks of tiles, and where the products of a filter block are computed."""
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
        # One row of points at a time fits in the registers.
        rows.compute_at(stage, e)
        *_, y, x, c = rows.op.axis
        _vectorize(rows, c, y, x)
        pad = self._planned[self._pad]
        pad.compute_at(stage, i)
        pad.vectorize(pad.op.axis[-1])

    @property
    def _tiles(self) -> int:
        """Number of tiles in a block."""
        images, rows = int(self._convolution.shape[0]), math.ceil(int(self._convolution.shape[2]) / self._down)
        return int(self._values.shape[1]) // images // math.ceil(rows / self._block)


def _vectorize(stage: Any, lanes: Any, *unrolled: Any) -> None:
    for axis in unrolled:
        stage.unroll(axis)
    stage.vectorize(lanes)


def plain(stage: Any) -> None:
    axes = stage.op.axis
    stage.parallel(stage.fuse(*axes[:2]))


def const(value: float) -> Any:
    return tvm.tir.const(float(value), DTYPE)


TASK = "conv2d_winograd_NCHWc.x86"


@autotvm.register_topi_compute(TASK)
def convolve(
    cfg: Any,
    data: Any,
    kernel: Any,
    strides: Any,  # noqa: ARG001 - part of the workload, as are those below
    padding: Any,
    dilation: Any,
    layout: str,  # noqa: ARG001
    out_layout: str,  # noqa: ARG001
    out_dtype: str,
) -> Any:
    """Compute float32 NCHWc from NCHW and OIHW, or from NCHWc and ``points_weights``."""
    extents = utils.get_const_tuple(data.shape)
    is_packed = len(extents) == 5
    batch, channels, height, width = extents[:4]
    extents = (batch, channels * (extents[4] if is_packed else 1), height, width)
    filters = kernel.shape[0] * (kernel.shape[4] if is_packed else 1)
    taps = _taps(kernel, int(cfg["tiles"].size[1])) if is_packed else utils.get_const_tuple(kernel.shape)[2:]
    shape = Shape.of(extents, int(filters), taps, padding)
    _define(cfg, shape)
    if cfg.is_fallback:
        _default(cfg, shape, data.dtype, ((1, 1), padding, dilation, out_dtype))
    tiling = Tiling.of(cfg["tiles"].size, shape)
    blocks = (int(cfg["tile_ic"].size[-1]), int(cfg["tile_oc"].size[-1]))
    if not is_packed:
        data, kernel = _packed(data, kernel, shape, tiling, blocks)
    return convolution(data, kernel, shape, tiling)


def _taps(kernel: Any, outputs: int) -> tuple[int, int]:
    down, across = (int(points) for points in kernel.shape[1:3])
    return (down - outputs + 1 if down > 1 else 1, across - outputs + 1 if across > 1 else 1)


def _define(cfg: Any, shape: Shape) -> None:
    cfg.define_split("tile_ic", shape.channels, num_outputs=2)
    cfg.define_split("tile_oc", shape.filters, num_outputs=2)
    # Outputs of a tile, rows of tiles in a block, tiles in registers: the valid values depend on each other.
    cfg.define_split("tiles", shape.rows, num_outputs=4, policy="candidate", candidate=tilings(shape))
    # Whether all inputs are transformed before the first product, so that threads can share the filters as well.
    cfg.define_knob("transform_first", [False, True])
    cfg.add_flop(shape.flop)


def _default(cfg: Any, shape: Shape, dtype: str, how: tuple[Any, ...]) -> None:
    """Set the blocks of TVM's default for the direct convolution."""
    data = te.placeholder((shape.batch, shape.channels, shape.height, shape.width), dtype=dtype)
    kernel = te.placeholder((shape.filters, shape.channels, *shape.taps), dtype=dtype)
    conv2d._get_default_config(cfg, data, kernel, *how)
    cfg["tiles"] = SplitEntity(tilings(shape)[0])
    cfg["transform_first"] = OtherOptionEntity(False)


def _packed(data: Any, kernel: Any, shape: Shape, tiling: Tiling, blocks: tuple[int, int]) -> tuple[Any, Any]:
    inner, outer = blocks
    data_shape = (shape.batch, shape.channels // inner, shape.height, shape.width, inner)
    kernel_shape = (shape.filters // outer, tiling.down.points, tiling.across.points, shape.channels, outer)
    if autotvm.GLOBAL_SCOPE.in_tuning:
        # As inside a network, where neighbours provide this layout and weights are transformed at build time.
        return te.placeholder(data_shape, DTYPE, "data"), te.placeholder(kernel_shape, DTYPE, "kernel")

    def at_points(filtering: Filtering, position: Any, given: list[Any]) -> Any:
        return _pick(position, [sum(const(line[k]) * given[k] for k in range(len(given))) for line in filtering.kernel])

    def transformed(o: Any, e: Any, u: Any, i: Any, c: Any) -> Any:
        rows = [[kernel[o * outer + c, i, y, x] for x in range(shape.taps[1])] for y in range(shape.taps[0])]
        return at_points(tiling.down, e, [at_points(tiling.across, u, row) for row in rows])

    packed = te.compute(data_shape, lambda n, i, h, w, c: data[n, i * inner + c, h, w], name="data_vec")
    return packed, te.compute(kernel_shape, transformed, name="kernel_vec")


@autotvm.register_topi_schedule(TASK)
def schedule(cfg: Any, outs: Any) -> Any:
    """Schedule the convolution and the elementwise operators that follow it."""
    return dispatching.of_tagged(outs, TAG, lambda planned, op, out: Stages(planned, cfg, op.output(0), out).plan())


_OPERATOR = "nn.conv2d"
_KERNELS = {kernel for taps in TAPS for kernel in ((taps, taps), (1, taps), (taps, 1))}
"""Squares, and lines in either direction."""
_FEWEST_CHANNELS = 16
"""Minimum number of input and of output channels."""
_FEWEST_OUTPUTS = 25
"""Minimum number of outputs per filter, over the batch."""
_LANES = 8
"""Divisor of the channels on both sides, so that blocks of TVM's defaults fill vectors."""
_UNDER_DEFAULT = 9
"""Level of an implementation that is used only if there are records for it; TVM's own have 10."""


def _takes(attrs: Any, tensors: list[Any]) -> bool:
    if (attrs.data_layout, attrs.kernel_layout, int(attrs.groups)) != ("NCHW", "OIHW", 1):
        return False
    shapes = [utils.get_const_tuple(tensor.shape) for tensor in tensors]
    if not all(isinstance(size, int) for shape in shapes for size in shape):
        return False
    (batch, channels, height, width), (filters, _, *taps) = shapes
    top, left, bottom, right = get_pad_tuple(utils.get_const_tuple(attrs.padding), taps)
    outputs = batch * (height + top + bottom - taps[0] + 1) * (width + left + right - taps[1] + 1)
    return (
        tuple(taps) in _KERNELS
        and utils.get_const_tuple(attrs.strides) == (1, 1)
        and utils.get_const_tuple(attrs.dilation) == (1, 1)
        and all(tensor.dtype == "float32" for tensor in tensors)
        and attrs.out_dtype in ("", "float32")
        and all(count >= _FEWEST_CHANNELS and count % _LANES == 0 for count in (channels, filters))
        and outputs >= _FEWEST_OUTPUTS
    )


def _offer(attrs: Any, inputs: list[Any], out_type: Any, target: Any, strategy: Any) -> Any:
    # Describing the computation takes 60 ms, and a build asks for every convolution several times.
    workload = autotvm.task.args_to_workload(_arguments(attrs, inputs, out_type), TASK)
    if _is_traced() or _is_recorded(workload, target):
        strategy.add_implementation(_compute, _schedule, name=TASK, plevel=_UNDER_DEFAULT)
    return strategy


def _is_traced() -> bool:
    return TaskExtractEnv.current is not None and TaskExtractEnv.current.tracing


def _is_recorded(workload: Any, target: Any) -> bool:
    context, scope = autotvm.task.DispatchContext.current, autotvm.GLOBAL_SCOPE
    was_silent, scope.silent = scope.silent, True
    try:
        return not context.query(target, workload).is_fallback
    finally:
        scope.silent = was_silent


def _compute(attrs: Any, inputs: Any, out_type: Any) -> list[Any]:
    return [unpack_NCHWc_to_nchw(convolve(*_arguments(attrs, inputs, out_type)), out_type.dtype)]


def _arguments(attrs: Any, inputs: Any, out_type: Any) -> list[Any]:
    """Return the template's arguments as in workloads."""
    sizes = (utils.get_const_tuple(each) for each in (attrs.strides, attrs.padding, attrs.dilation))
    layouts = (attrs.data_layout, attrs.out_layout or attrs.data_layout)
    return [*inputs, *sizes, *layouts, out_type.dtype]


_schedule = strategies.wrap_topi_schedule(schedule)


@strategies.conv2d_winograd_without_weight_transform_strategy.register("cpu")
def _blocked(attrs: Any, inputs: Any, out_type: Any, target: Any) -> Any:
    """Return the strategy of the calls made by ``_alter``, or TVM's own for Ansor's, which are in NHWC."""
    if attrs.data_layout == "NHWC":
        return x86.conv2d_winograd_without_weight_transform_strategy_cpu(attrs, inputs, out_type, target)
    strategy = relay.op.OpStrategy()
    strategy.add_implementation(lambda *call: [convolve(*_arguments(*call))], _schedule, name=TASK)
    return strategy


def _alter(attrs: Any, inputs: list[Any], tensors: list[Any], out_type: Any, workload: Any) -> Any:
    """Return the call in the blocked layout; None for non-constant weights, which would be transformed in every run."""
    data, kernel = inputs
    target, context = dispatching.target(), autotvm.task.DispatchContext.current
    if not isinstance(kernel, relay.Constant):
        # As if there were no record.
        context.update(target, workload, FallbackConfigEntity())
        return None
    config = context.query(target, workload)
    inner, outer = (int(config[knob].size[-1]) for knob in ("tile_ic", "tile_oc"))
    outputs = int(config["tiles"].size[1])
    taps = utils.get_const_tuple(tensors[1].shape)[2:]
    down, across = (along(outputs, count) for count in taps)
    weights = points_weights(down, across, kernel.data.numpy(), outer)
    batch, channels, height, width = utils.get_const_tuple(tensors[0].shape)
    how = {name: utils.get_const_tuple(attrs[name]) for name in ("strides", "padding", "dilation")}
    layouts = {"data_layout": f"NCHW{inner}c", "out_layout": f"NCHW{outer}c"}
    blocked = te.placeholder((batch, channels // inner, height, width, inner), tensors[0].dtype)
    arguments = [blocked, te.placeholder(weights.shape, str(weights.dtype)), *how.values(), *layouts.values()]
    context.update(target, autotvm.task.args_to_workload([*arguments, out_type.dtype], TASK), config)
    return relay.nn.contrib_conv2d_winograd_without_weight_transform(
        data,
        relay.const(weights),
        tile_size=outputs,
        **how,
        channels=int(tensors[1].shape[0]),
        kernel_size=taps,
        **layouts,
        out_dtype=out_type.dtype,
    )


TEMPLATE = dispatching.Template(
    operators=(_OPERATOR,),
    task=TASK,
    takes=_takes,
    offer=_offer,
    alter=_alter,
    usual="conv2d_NCHWc.x86",
)
