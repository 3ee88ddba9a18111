"""AutoTVM template ``group_conv2d_NCHWc.x86``: grouped convolutions of blocked channels.

TVM computes them from the model's own layout: it packs and unpacks both sides at every run, and needs two more layout
transforms for the operators around them. Here a block of output channels reads the blocks of its own group, with the
loops and schedules of TVM's ``conv2d_NCHWc`` (Liu et al., USENIX ATC 2019).
"""

from __future__ import annotations

from typing import Any

from tvm import autotvm, relay, te
from tvm.autotvm.task.space import OtherOptionEntity, SplitEntity
from tvm.relay import dataflow_pattern as patterns
from tvm.relay.op.strategy.generic import wrap_compute_conv2d, wrap_topi_schedule
from tvm.target.x86 import get_simd_32bit_lanes
from tvm.topi import nn
from tvm.topi.nn.conv2d import unpack_NCHWc_to_nchw
from tvm.topi.nn.utils import get_pad_tuple
from tvm.topi.utils import get_const_tuple
from tvm.topi.x86 import conv2d_avx_1x1, conv2d_avx_common

from tuner.engines.relay import fast_math
from tuner.engines.relay.templates import dispatching

TASK = "group_conv2d_NCHWc.x86"
_TAG = "conv2d_NCHWc"
_PLANAR, _BLOCKED = "nn.conv2d", "nn.contrib_conv2d_NCHWc"
_TILE = 28
"""Vectors of sums that fit in the registers of AVX-512 beside their operands."""
_SMALLEST_BLOCK = 4
_LEVEL, _PREFERRED = 5, 15
"""Levels below TVM's own 10, so that builds without records use TVM's, and above it for builds with ``rewrite``."""
_KEPT = (
    *("strides", "padding", "dilation", "groups", "channels", "kernel_size"),
    *("data_layout", "kernel_layout", "out_dtype"),
)
_MARK = "NCHW"
"""``out_layout`` of a convolution that prefers this template; importers leave it empty, which means the same."""


@autotvm.register_topi_compute(TASK)
def grouped(
    cfg: Any,
    data: Any,
    kernel: Any,
    strides: Any,
    padding: Any,
    dilation: Any,
    groups: int,
    layout: str,
    out_layout: str,
    out_dtype: str,
) -> Any:
    """Convolve data with a kernel into ``(n, o / k, h, w, k)``.

    Data is ``(n, c, h, w)`` or ``(n, c / b, h, w, b)``, the kernel ``(o, c / groups, h, w)`` or ``(o / k, c / groups /
    b, h, w, b, k)``.
    """
    image, weights = _sizes(data, kernel)
    batch, *_ = image
    filters, depth, down, across = weights
    sides = get_pad_tuple(padding, ((down - 1) * dilation[0] + 1, (across - 1) * dilation[1] + 1))
    out_height, out_width = _output(image, weights, strides, sides, dilation)
    cfg.define_split("tile_ic", depth, num_outputs=2)
    cfg.define_split("tile_oc", filters // groups, num_outputs=2, filter=lambda entity: entity.size[-1] <= 32)
    cfg.define_split("tile_ow", out_width, num_outputs=2, filter=lambda entity: entity.size[-1] <= 64)
    if down == across == 1:
        cfg.define_knob("tile_oh", [1, 2] if out_height > 1 else [1])
    else:
        cfg.define_knob("unroll_kw", [True, False])
    cfg.add_flop(2 * batch * filters * out_height * out_width * depth * down * across)
    if cfg.is_fallback:
        _set_default(cfg, depth, filters // groups, (out_height, out_width), is_point=down == across == 1)
    if len(data.shape) == 4:
        data, kernel = _packed(data, kernel, cfg["tile_ic"].size[-1], cfg["tile_oc"].size[-1])
    return nn.conv2d_NCHWc(data, kernel, strides, padding, dilation, layout, out_layout, out_dtype)


@autotvm.register_topi_schedule(TASK)
def schedule_grouped(cfg: Any, outs: Any) -> Any:
    """Schedule ``grouped`` and the elementwise operators that follow it."""

    def plan(schedule: Any, op: Any, out: Any) -> None:
        data, kernel = op.input_tensors
        is_point = all(int(size) == 1 for size in kernel.shape[2:4])
        loops = conv2d_avx_1x1 if is_point else conv2d_avx_common
        loops._schedule_conv_NCHWc(schedule, cfg, data, kernel, op.output(0), out)

    return dispatching.of_tagged(outs, _TAG, plan)


def preferred(module: Any) -> Any:
    """Return a ``tvm.IRModule`` whose grouped convolutions in ``main`` use this template even without a record."""
    return fast_math.rewritten(module, _Marking())


class _Marking(patterns.DFPatternCallback):
    def __init__(self) -> None:
        super().__init__(rewrite_once=True)
        self.pattern = patterns.is_op("nn.conv2d")(patterns.wildcard(), patterns.is_constant())

    def callback(self, _: Any, post: Any, __: Any) -> Any:
        attrs, kernel = post.attrs, post.args[1].data
        if attrs.groups == 1 or kernel.shape[1] == 1 or attrs.data_layout != "NCHW" or attrs.out_layout:
            return post
        how = {name: attrs[name] for name in _KEPT}
        return relay.nn.conv2d(*post.args, **how, out_layout=_MARK)


def _sizes(data: Any, kernel: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the sizes of both tensors as if neither were blocked."""
    image, weights = get_const_tuple(data.shape), get_const_tuple(kernel.shape)
    if len(image) == 5:
        image = (image[0], image[1] * image[4], *image[2:4])
        weights = (weights[0] * weights[5], weights[1] * weights[4], *weights[2:4])
    return image, weights


def _output(image: Any, weights: Any, strides: Any, sides: Any, dilation: Any) -> tuple[int, int]:
    """Return the output height and width."""
    height, width = (
        (image[2 + at] + sides[at] + sides[at + 2] - (weights[2 + at] - 1) * dilation[at] - 1) // strides[at] + 1
        for at in (0, 1)
    )
    return int(height), int(width)


def _set_default(cfg: Any, depth: int, filters: int, output: tuple[int, int], *, is_point: bool) -> None:
    outer, inner = _block(filters), _block(depth)
    columns = _largest(output[1], _TILE)
    cfg["tile_ic"] = SplitEntity([depth // inner, inner])
    cfg["tile_oc"] = SplitEntity([filters // outer, outer])
    cfg["tile_ow"] = SplitEntity([output[1] // columns, columns])
    if is_point:
        cfg["tile_oh"] = OtherOptionEntity(_largest(output[0], _TILE // columns))
    else:
        cfg["unroll_kw"] = OtherOptionEntity(False)


def _block(channels: int) -> int:
    """Return a whole vector or half of one if it divides the channels, else the largest divisor that fits one."""
    lanes = get_simd_32bit_lanes()
    return next((block for block in (lanes, lanes // 2) if channels % block == 0), _largest(channels, lanes))


def _largest(size: int, limit: int) -> int:
    return next(part for part in range(max(1, min(size, limit)), 0, -1) if size % part == 0)


def _packed(data: Any, kernel: Any, inner: int, outer: int) -> tuple[Any, Any]:
    """Return blocked tensors; while tuning as placeholders, since inside a network they are blocked already."""
    batch, channels, height, width = get_const_tuple(data.shape)
    filters, depth, down, across = get_const_tuple(kernel.shape)
    image = (batch, channels // inner, height, width, inner)
    weights = (filters // outer, depth // inner, down, across, inner, outer)
    if autotvm.GLOBAL_SCOPE.in_tuning:
        return te.placeholder(image, data.dtype, name="data"), te.placeholder(weights, kernel.dtype, name="kernel")
    return (
        te.compute(image, lambda n, c, y, x, i: data[n, c * inner + i, y, x], name="data_vec"),
        te.compute(weights, lambda o, c, y, x, i, k: kernel[o * outer + k, c * inner + i, y, x], name="kernel_vec"),
    )


def _takes(attrs: Any, tensors: list[Any]) -> bool:
    data, kernel = tensors[:2]
    groups = int(attrs.groups)
    if groups == 1 or data.dtype != "float32" or kernel.dtype != "float32":
        return False
    if len(data.shape) == 5:
        return len(kernel.shape) == 6
    if attrs.data_layout != "NCHW" or attrs.kernel_layout != "OIHW" or attrs.out_layout not in ("", "NCHW"):
        return False
    filters, depth = (int(size) for size in kernel.shape[:2])
    # One channel per group is depthwise, for which TVM has a template.
    return depth > 1 and _largest(filters // groups, get_simd_32bit_lanes()) >= _SMALLEST_BLOCK


def _planar(data: Any, kernel: Any, strides: Any, padding: Any, dilation: Any, groups: Any, out_dtype: str) -> Any:
    blocked = grouped(data, kernel, strides, padding, dilation, int(groups), "NCHW", "NCHW", out_dtype)
    return unpack_NCHWc_to_nchw(blocked, out_dtype)


def _offer(attrs: Any, inputs: list[Any], _out_type: Any, _target: Any, strategy: Any) -> Any:
    if len(inputs[0].shape) == 4:
        compute = wrap_compute_conv2d(_planar, has_groups=True)
        level = _PREFERRED if attrs.out_layout == _MARK else _LEVEL
    else:
        # TVM has no other implementation of that operator for groups and would compute a different result.
        strategy = relay.op.OpStrategy()
        compute, level = wrap_compute_conv2d(grouped, has_groups=True, need_data_layout=True, need_out_layout=True), 10
    strategy.add_implementation(compute, wrap_topi_schedule(schedule_grouped), name=TASK, plevel=level)
    return strategy


def _alter(attrs: Any, inputs: list[Any], tinfos: list[Any], out_type: Any, workload: Any) -> Any:
    target, context = dispatching.target(), autotvm.task.DispatchContext.current
    cfg = context.query(target, workload)
    data, kernel = tinfos
    how = [get_const_tuple(attrs[name]) for name in ("strides", "padding", "dilation")]
    groups, (image, weights) = int(attrs.groups), _sizes(data, kernel)
    if cfg.is_fallback:
        sides = get_pad_tuple(how[1], ((weights[2] - 1) * how[2][0] + 1, (weights[3] - 1) * how[2][1] + 1))
        output = _output(image, weights, how[0], sides, how[2])
        _set_default(cfg, weights[1], weights[0] // groups, output, is_point=weights[2] == weights[3] == 1)
    inner, outer = cfg["tile_ic"].size[-1], cfg["tile_oc"].size[-1]
    layouts = {"data_layout": f"NCHW{inner}c", "out_layout": f"NCHW{outer}c"}
    blocked = te.placeholder((image[0], image[1] // inner, *image[2:], inner), data.dtype)
    blocks = (weights[0] // outer, weights[1] // inner, *weights[2:], inner, outer)
    arguments = [blocked, te.placeholder(blocks, kernel.dtype), *how, groups, *layouts.values(), out_type.dtype]
    context.update(target, autotvm.task.args_to_workload(arguments, TASK), cfg)
    kept = {name: attrs[name] for name in ("strides", "padding", "dilation", "groups", "channels", "kernel_size")}
    return relay.nn.contrib_conv2d_nchwc(
        *inputs, **kept, **layouts, kernel_layout=f"OIHW{inner}i{outer}o", out_dtype=out_type.dtype
    )


TEMPLATE = dispatching.Template(operators=(_PLANAR, _BLOCKED), task=TASK, takes=_takes, offer=_offer, alter=_alter)
