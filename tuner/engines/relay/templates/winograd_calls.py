"""Where a network's convolutions are offered to the ``winograd`` template, and its calls in the blocked layout."""

from __future__ import annotations

from typing import Any

from tvm import autotvm, relay, te
from tvm.autotvm.task.space import FallbackConfigEntity
from tvm.autotvm.task.topi_integration import TaskExtractEnv
from tvm.relay.op.strategy import generic as strategies
from tvm.relay.op.strategy import x86
from tvm.topi import utils
from tvm.topi.nn.conv2d import unpack_NCHWc_to_nchw
from tvm.topi.nn.utils import get_pad_tuple

from tuner.engines.relay.templates import dispatching, interpolation, winograd

_OPERATOR = "nn.conv2d"
_KERNELS = {kernel for taps in interpolation.TAPS for kernel in ((taps, taps), (1, taps), (taps, 1))}
"""Squares, and lines of either direction."""
_FEWEST_CHANNELS = 16
"""On either side."""
_FEWEST_OUTPUTS = 25
"""Of a filter, over the batch."""
_LANES = 8
"""Channels on either side are a multiple of it: blocks of TVM's defaults then fill vectors."""
_UNDER_DEFAULT = 9
"""Level of an implementation that is taken only where records say so; TVM's own have 10."""


def _takes(attrs: Any, tensors: list[Any], _: Any) -> bool:
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
    workload = autotvm.task.args_to_workload(_arguments(attrs, inputs, out_type), winograd.TASK)
    if _is_traced() or _is_recorded(workload, target):
        strategy.add_implementation(_compute, _schedule, name=winograd.TASK, plevel=_UNDER_DEFAULT)
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
    return [unpack_NCHWc_to_nchw(_convolved(attrs, inputs, out_type), out_type.dtype)]


def _convolved(attrs: Any, inputs: Any, out_type: Any) -> Any:
    return winograd.convolve(*_arguments(attrs, inputs, out_type))


def _arguments(attrs: Any, inputs: Any, out_type: Any) -> list[Any]:
    """Of the template, as workloads have them."""
    sizes = (utils.get_const_tuple(each) for each in (attrs.strides, attrs.padding, attrs.dilation))
    layouts = (attrs.data_layout, attrs.out_layout or attrs.data_layout)
    return [*inputs, *sizes, *layouts, out_type.dtype]


def _schedule(_: Any, outs: Any, target: Any) -> Any:
    with target:
        return winograd.schedule(outs)


@strategies.conv2d_winograd_without_weight_transform_strategy.register("cpu")
def _blocked(attrs: Any, inputs: Any, out_type: Any, target: Any) -> Any:
    """The strategy of the calls that ``_alter`` makes, and TVM's own for those that it makes for Ansor, in NHWC."""
    if attrs.data_layout == "NHWC":
        return x86.conv2d_winograd_without_weight_transform_strategy_cpu(attrs, inputs, out_type, target)
    strategy = relay.op.OpStrategy()
    strategy.add_implementation(lambda *call: [_convolved(*call)], _schedule, name=winograd.TASK)
    return strategy


def _alter(attrs: Any, inputs: list[Any], tensors: list[Any], out_type: Any, workload: Any) -> Any:
    """None for weights that are no constants: they would be transformed in every run."""
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
    down, across = (interpolation.along(outputs, count) for count in taps)
    weights = interpolation.weights(down, across, kernel.data.numpy(), outer)
    batch, channels, height, width = utils.get_const_tuple(tensors[0].shape)
    how = {name: utils.get_const_tuple(attrs[name]) for name in ("strides", "padding", "dilation")}
    layouts = {"data_layout": f"NCHW{inner}c", "out_layout": f"NCHW{outer}c"}
    blocked = te.placeholder((batch, channels // inner, height, width, inner), tensors[0].dtype)
    arguments = [blocked, te.placeholder(weights.shape, str(weights.dtype)), *how.values(), *layouts.values()]
    context.update(target, autotvm.task.args_to_workload([*arguments, out_type.dtype], winograd.TASK), config)
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
    task=winograd.TASK,
    takes=_takes,
    offer=_offer,
    alter=_alter,
    usual="conv2d_NCHWc.x86",
)
