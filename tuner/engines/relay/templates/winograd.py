"""The AutoTVM template ``conv2d_winograd_NCHWc.x86``: convolutions by minimal filtering, see ``interpolation``.

Its workload is that of TVM's ``conv2d_NCHWc.x86``, and its output is blocked in the same way. A block of tiles goes
through all steps while it is in the cache: transformed inputs, one matrix product for each point, transformed outputs
and what follows the convolution.
"""

from __future__ import annotations

from typing import Any

from tvm import autotvm, te
from tvm.autotvm.task.space import OtherOptionEntity, SplitEntity
from tvm.topi import utils
from tvm.topi.x86 import conv2d

from tuner.engines.relay.templates import schedules
from tuner.engines.relay.templates.interpolation import Filtering
from tuner.engines.relay.templates.winograd_sizes import Shape, Tiling, tilings
from tuner.engines.relay.templates.winograd_steps import DTYPE, TAG, Stages, const, convolution, pick

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
    """float32 NCHWc out of NCHW and OIHW, or out of NCHWc and ``interpolation.weights``."""
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
    # Outputs of a tile, rows of tiles in a block, tiles in registers: which of these fit depends on the others.
    cfg.define_split("tiles", shape.rows, num_outputs=4, policy="candidate", candidate=tilings(shape))
    # Whether all inputs are transformed before the first product, so that threads can share the filters as well.
    cfg.define_knob("transform_first", [False, True])
    cfg.add_flop(shape.flop)


def _default(cfg: Any, shape: Shape, dtype: str, how: tuple[Any, ...]) -> None:
    """The blocks of TVM's default for the direct convolution."""
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
        # As inside a network, where neighbours leave data so and weights are transformed while it is built.
        return te.placeholder(data_shape, DTYPE, "data"), te.placeholder(kernel_shape, DTYPE, "kernel")

    def at_points(filtering: Filtering, position: Any, given: list[Any]) -> Any:
        return pick(position, [sum(const(line[k]) * given[k] for k in range(len(given))) for line in filtering.kernel])

    def transformed(o: Any, e: Any, u: Any, i: Any, c: Any) -> Any:
        rows = [[kernel[o * outer + c, i, y, x] for x in range(shape.taps[1])] for y in range(shape.taps[0])]
        return at_points(tiling.down, e, [at_points(tiling.across, u, row) for row in rows])

    packed = te.compute(data_shape, lambda n, i, h, w, c: data[n, i * inner + c, h, w], name="data_vec")
    return packed, te.compute(kernel_shape, transformed, name="kernel_vec")


@autotvm.register_topi_schedule(TASK)
def schedule(cfg: Any, outs: Any) -> Any:
    """Of the convolution and of what follows it element by element."""
    return schedules.of_tagged(outs, TAG, lambda planned, op, out: Stages(planned, cfg, op.output(0), out).plan())
