"""AutoTVM templates ``conv2d_NCHWc_bf16.x86`` and ``conv2d_NCHWc_bytes.x86``: convolutions with blocked channels.

The loops are those of TVM's ``conv2d_NCHWc`` (Liu et al., USENIX ATC 2019), with two changes: the innermost product is
that of ``narrow_numbers``, and several registers of output channels share each load of an input; otherwise loads limit
the convolution. TVM's own template of bytes, ``conv2d_NCHWc_int8.x86``, has one register.
"""

from __future__ import annotations

from typing import Any

from tvm import autotvm, relay, te, tir
from tvm.autotvm.task.space import OtherOptionEntity, SplitEntity
from tvm.relay.op import op as operators
from tvm.relay.op.strategy.generic import wrap_compute_conv2d, wrap_topi_schedule
from tvm.topi.nn.conv2d import unpack_NCHWc_to_nchw
from tvm.topi.nn.utils import get_pad_tuple
from tvm.topi.utils import get_const_tuple

from tuner.engines.relay.templates import bf16_products, byte_products, dispatching, tiles
from tuner.engines.relay.templates.narrow_numbers import Numbers

_PLANAR, _BLOCKED = "nn.conv2d", "nn.contrib_conv2d_NCHWc"
ATTRIBUTES = ("strides", "padding", "dilation", "channels", "kernel_size")
"""Attributes that define a convolution of one group in TVM's usual layouts."""


def _template(numbers: Numbers) -> dispatching.Template:
    """Register the template of these numbers."""
    tag = f"conv2d_NCHWc_{numbers.name}"
    task = f"{tag}.x86"

    @autotvm.register_topi_compute(task)
    def compute(
        cfg: Any, data: Any, kernel: Any, strides: Any, padding: Any, dilation: Any,
        _layout: str, _out_layout: str, _out_dtype: str,
    ) -> Any:  # fmt: skip
        return conv2d_blocked(numbers, cfg, data, kernel, _Shape(data, kernel, strides, padding, dilation))

    @autotvm.register_topi_schedule(task)
    def schedule(cfg: Any, outs: Any) -> Any:
        return dispatching.of_tagged(
            outs, tag, lambda schedule, op, out: _schedule(numbers, schedule, cfg, op.output(0), out)
        )

    def planar(data: Any, kernel: Any, strides: Any, padding: Any, dilation: Any, out_dtype: str) -> Any:
        packed = compute(data, kernel, strides, padding, dilation, "NCHW", "NCHW", out_dtype)
        return unpack_NCHWc_to_nchw(packed, out_dtype)

    def offer(_attrs: Any, inputs: list[Any], _out_type: Any, _target: Any, _strategy: Any) -> Any:
        """Offer the only implementation: TVM's own computes what it reads as bfloat16 in float32."""
        strategy = operators.OpStrategy()
        blocked = len(inputs[0].shape) == 5
        computed = (
            wrap_compute_conv2d(compute, need_data_layout=True, need_out_layout=True)
            if blocked
            else wrap_compute_conv2d(planar)
        )
        strategy.add_implementation(computed, wrap_topi_schedule(schedule), name=task)
        return strategy

    return dispatching.Template(
        operators=(_PLANAR, _BLOCKED),
        task=task,
        takes=lambda attrs, tensors, target: _takes(numbers, attrs, tensors, target),
        offer=offer,
        alter=lambda *arguments: _alter(numbers, task, *arguments),
    )


def conv2d_blocked(numbers: Numbers, cfg: Any, data: Any, kernel: Any, shape: _Shape) -> Any:
    """Convolve data with a kernel into ``(n, o / k, h, w, k)``.

    Data is ``(n, c, h, w)`` or ``(n, c / b, h, w, b)``, the kernel ``(o, c, h, w)`` or, for a group of g,
    ``(o / k, c / b, h, w, b / g, k, g)``.
    """
    group = numbers.group
    cfg.define_split("tile_ic", shape.inputs, num_outputs=2, filter=lambda entity: entity.size[-1] % group == 0)
    cfg.define_split("tile_oc", shape.outputs, num_outputs=2, filter=tiles.fits_registers)
    cfg.define_split("tile_ow", shape.out_width, num_outputs=2, filter=lambda entity: entity.size[-1] <= 30)
    cfg.define_knob("unroll_kw", [False, True] if shape.kernel[1] > 1 else [False])
    cfg.add_flop(2 * shape.products)
    if cfg.is_fallback:
        _set_default(cfg, shape, group)
    if len(data.shape) == 4:
        data, kernel = _packed(numbers, data, kernel, cfg["tile_ic"].size[-1], cfg["tile_oc"].size[-1])
    return _convolved(numbers, _padded(numbers, data, shape.padding), kernel, shape)


class _Shape:
    """Sizes of a convolution whose tensors may be blocked."""

    def __init__(self, data: Any, kernel: Any, strides: Any, padding: Any, dilation: Any) -> None:
        image, weights = get_const_tuple(data.shape), get_const_tuple(kernel.shape)
        blocked = len(image) == 5
        self.batch, height, self.width = image[0], image[2], image[3]
        self.inputs = image[1] * image[4] if blocked else image[1]
        self.outputs = weights[0] * weights[5] if blocked else weights[0]
        self.kernel = weights[2], weights[3]
        self.strides, self.dilation = _two(strides), _two(dilation)
        self.padding = tuple(int(side) for side in get_pad_tuple(padding, self.kernel))
        top, left, bottom, right = self.padding
        reach = [(size - 1) * step + 1 for size, step in zip(self.kernel, self.dilation, strict=True)]
        self.out_height = (height + top + bottom - reach[0]) // self.strides[0] + 1
        self.out_width = (self.width + left + right - reach[1]) // self.strides[1] + 1

    @property
    def products(self) -> int:
        taps = self.inputs * self.kernel[0] * self.kernel[1]
        return int(self.batch * self.outputs * self.out_height * self.out_width * taps)


def _two(value: Any) -> tuple[int, int]:
    first, second = (value, value) if isinstance(value, int) else value
    return int(first), int(second)


def _set_default(cfg: Any, shape: _Shape, group: int) -> None:
    inputs = tiles.input_block(shape.inputs, shape.width, group)
    outputs = tiles.output_block(shape.outputs, shape.out_width)
    width = tiles.outputs(shape.out_width, outputs)
    cfg["tile_ic"] = SplitEntity([shape.inputs // inputs, inputs])
    cfg["tile_oc"] = SplitEntity([shape.outputs // outputs, outputs])
    cfg["tile_ow"] = SplitEntity([shape.out_width // width, width])
    cfg["unroll_kw"] = OtherOptionEntity(False)


def _packed(numbers: Numbers, data: Any, kernel: Any, inputs: int, outputs: int) -> tuple[Any, Any]:
    """Return blocked tensors; while tuning as placeholders, since inside a network they are blocked already."""
    batch, channels, height, width = get_const_tuple(data.shape)
    filters, _, down, across = get_const_tuple(kernel.shape)
    group = numbers.group
    image = (batch, channels // inputs, height, width, inputs)
    weights = (filters // outputs, channels // inputs, down, across, inputs // group, outputs, group)
    if autotvm.GLOBAL_SCOPE.in_tuning:
        return te.placeholder(image, data.dtype, name="data"), te.placeholder(weights, kernel.dtype, name="kernel")
    return (
        te.compute(image, lambda n, c, y, x, i: numbers.bits(data[n, c * inputs + i, y, x]), name="data_vec"),
        te.compute(
            weights,
            lambda o, c, y, x, p, k, t: numbers.bits(kernel[o * outputs + k, c * inputs + p * group + t, y, x]),
            name="kernel_vec",
        ),
    )


def _padded(numbers: Numbers, data: Any, padding: tuple[int, ...]) -> Any:
    if not any(padding):
        return data
    top, left, bottom, right = padding
    batch, chunks, height, width, block = get_const_tuple(data.shape)

    def inside(n: Any, c: Any, y: Any, x: Any, i: Any) -> Any:
        within = tir.all(y >= top, y < height + top, x >= left, x < width + left)
        return tir.if_then_else(within, numbers.bits(data[n, c, y - top, x - left, i]), tir.const(0, numbers.stored))

    return te.compute((batch, chunks, height + top + bottom, width + left + right, block), inside, name="data_pad")


def _convolved(numbers: Numbers, data: Any, kernel: Any, shape: _Shape) -> Any:
    chunks = int(data.shape[1])
    filters, _, height, width, groups, lanes, group = get_const_tuple(kernel.shape)
    (down, across), (drop, skip) = shape.strides, shape.dilation
    c, y, x = te.reduce_axis((0, chunks)), te.reduce_axis((0, height)), te.reduce_axis((0, width))
    p, t = te.reduce_axis((0, groups)), te.reduce_axis((0, group))
    return te.compute(
        (shape.batch, filters, shape.out_height, shape.out_width, lanes),
        lambda n, o, row, column, k: te.sum(
            numbers.value(data[n, c, row * down + y * drop, column * across + x * skip, p * group + t])
            * numbers.value(kernel[o, c, y, x, p, k, t]),
            axis=[c, y, x, p, t],
        ),
        name="conv2d_NCHWc",
        tag=f"conv2d_NCHWc_{numbers.name}",
    )


def _schedule(numbers: Numbers, schedule: Any, cfg: Any, convolved: Any, last: Any) -> None:
    data, kernel = convolved.op.input_tensors
    for tensor in (data, kernel):
        if isinstance(tensor.op, te.ComputeOp):
            _schedule_copy(schedule, tensor)
    block, width = cfg["tile_oc"].size[-1], cfg["tile_ow"].size[-1]
    lanes = tiles.lanes_of(block)
    sums = schedule.cache_write(convolved, "global") if convolved == last else convolved
    stage = schedule[last]
    batch, chunk, row, column, channel = _blocked_axes(stage, block)
    outer, inner = stage.split(column, factor=width)
    stage.reorder(batch, chunk, row, outer, inner, channel)
    fused = stage.fuse(batch, chunk, row)
    vectors, lane = stage.split(channel, factor=lanes)
    stage.unroll(vectors)
    stage.vectorize(lane)
    stage.parallel(fused)
    stage.pragma(fused, "import_llvm", numbers.function(lanes))
    schedule[sums].compute_at(stage, outer)
    _schedule_sums(schedule[sums], width, lanes, numbers.product(data.dtype, kernel.dtype, lanes), cfg["unroll_kw"].val)


def _blocked_axes(stage: Any, block: int) -> Any:
    """Return the axes of NCHWc, or of NCHW that was unpacked from it."""
    axes = stage.op.axis
    if len(axes) == 5:
        return axes
    batch, channel, row, column = axes
    chunk, inner = stage.split(channel, factor=block)
    return batch, chunk, row, column, inner


def _schedule_sums(stage: Any, width: int, lanes: int, product: Any, unroll: bool) -> None:
    _, chunk, row, column, channel = stage.op.axis
    c, y, x, p, t = stage.op.reduce_axis
    outer, inner = stage.split(column, factor=width)
    vectors, lane = stage.split(channel, factor=lanes)
    taps = [p, x] if unroll else [x, p]
    stage.reorder(chunk, row, outer, c, y, *taps, inner, vectors, lane, t)
    if unroll:
        stage.unroll(x)
    stage.unroll(inner)
    stage.unroll(vectors)
    stage.tensorize(lane, product)


def _schedule_copy(schedule: Any, tensor: Any) -> None:
    stage = schedule[tensor]
    *outer, inner = stage.op.axis
    stage.vectorize(inner)
    stage.parallel(stage.fuse(*outer[:3]))


def is_worth(call: Any) -> bool:
    """Return whether a Relay call of ``nn.conv2d`` should use bfloat16; its weights must be packable before it runs.

    An odd input channel can be padded with zeros, but output channels cannot.
    """
    attrs, kernel = call.attrs, call.args[1]
    if not isinstance(kernel, relay.Constant) or attrs.groups != 1 or call.checked_type.dtype != "float32":
        return False
    planar = attrs.data_layout == "NCHW" and attrs.kernel_layout == "OIHW" and attrs.out_layout in ("", "NCHW")
    return planar and int(kernel.checked_type.shape[0]) % tiles.MULTIPLE == 0


def _takes(numbers: Numbers, attrs: Any, tensors: list[Any], target: Any) -> bool:
    data, kernel = tensors[:2]
    if not numbers.are(data, kernel) or not numbers.available(target):
        return False
    if len(data.shape) == 5:
        return len(kernel.shape) == 7
    planar = attrs.data_layout == "NCHW" and attrs.kernel_layout == "OIHW" and attrs.groups == 1
    return planar and int(kernel.shape[0]) % tiles.MULTIPLE == 0 and int(kernel.shape[1]) % numbers.group == 0


def _alter(
    numbers: Numbers, task: str, attrs: Any, inputs: list[Any], tinfos: list[Any], out_type: Any, workload: Any
) -> Any:
    target, context = dispatching.target(), autotvm.task.DispatchContext.current
    if attrs.data_layout != "NCHW":
        return None
    cfg, group = context.query(target, workload), numbers.group
    data, kernel = tinfos
    strides, padding, dilation = (attrs.get_int_tuple(name) for name in ("strides", "padding", "dilation"))
    shape = _Shape(data, kernel, strides, padding, dilation)
    if cfg.is_fallback:
        _set_default(cfg, shape, group)
    inner, outer = cfg["tile_ic"].size[-1], cfg["tile_oc"].size[-1]
    layouts = {
        "data_layout": f"NCHW{inner}c",
        "kernel_layout": f"OIHW{inner // group}i{outer}o{group}i",
        "out_layout": f"NCHW{outer}c",
    }
    batch, _, height, width = get_const_tuple(data.shape)
    image = te.placeholder((batch, shape.inputs // inner, height, width, inner), data.dtype)
    blocks = (shape.outputs // outer, shape.inputs // inner, *shape.kernel, inner // group, outer, group)
    weights = te.placeholder(blocks, kernel.dtype)
    layout = (layouts["data_layout"], layouts["out_layout"], out_type.dtype)
    altered = autotvm.task.args_to_workload([image, weights, strides, padding, dilation, *layout], task)
    context.update(target, altered, cfg)
    kept = {name: attrs[name] for name in ATTRIBUTES}
    return relay.nn.contrib_conv2d_nchwc(*inputs, **kept, **layouts, out_dtype=out_type.dtype)


BF16, BYTES = _template(bf16_products.NUMBERS), _template(byte_products.NUMBERS)
