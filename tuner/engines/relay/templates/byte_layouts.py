"""Layouts of byte convolutions around those of ``narrow_conv2d``, so that networks need few transforms of them.

TVM pads output channels to whole registers of its own template, where ours takes half ones, and blocks the channels of
depthwise convolutions by its registers, where ours have blocks of two.
"""

from __future__ import annotations

from typing import Any

from tvm.autotvm.task.space import SplitEntity
from tvm.topi import nn
from tvm.topi.x86 import conv2d_alter_op, depthwise_conv2d

from tuner.engines.relay.templates import byte_products, dispatching, tiles

_NUMBERS = byte_products.NUMBERS
_usual_schedule = depthwise_conv2d._fallback_schedule
_usual_legalize = conv2d_alter_op._conv2d_legalize


def install() -> None:
    """Replace TVM's functions; idempotent."""
    depthwise_conv2d._fallback_schedule = _schedule
    nn.conv2d_legalize.register("cpu", _legalize, override=True)


def _schedule(cfg: Any, workload: Any) -> None:
    """Set the schedule of a depthwise convolution without a record."""
    _usual_schedule(cfg, workload)
    channels = workload.out_filter
    if workload.in_dtype != _NUMBERS.data or channels != workload.in_filter or channels % tiles.MULTIPLE:
        return
    width = cfg["tile_ow"].size[0] * cfg["tile_ow"].size[1]
    block = tiles.output_block(channels, width)
    outputs = tiles.outputs(width, block)
    cfg["tile_ic"] = cfg["tile_oc"] = SplitEntity([channels // block, block])
    cfg["tile_ow"] = SplitEntity([width // outputs, outputs])


def _legalize(attrs: Any, inputs: Any, types: Any) -> Any:
    """Keep a convolution that our template takes as it is."""
    data, kernel = types[:2]
    if _NUMBERS.are(data, kernel) and _NUMBERS.available(dispatching.target()):
        filters, channels = (int(size) for size in kernel.shape[:2])
        planar = attrs.data_layout == "NCHW" and attrs.kernel_layout == "OIHW" and attrs.groups == 1
        if planar and filters % tiles.MULTIPLE == 0 and channels % _NUMBERS.group == 0:
            return None
    return _usual_legalize(attrs, inputs, types)
