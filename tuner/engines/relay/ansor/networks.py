"""Networks as Ansor sees them: the same for extracting tasks and for building with their schedules."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import tvm
from tvm import relay

from tuner.engines.protocol import faults
from tuner.engines.protocol.messages import Json
from tuner.engines.protocol.serving import EngineFailure
from tuner.engines.relay import importing, mixed_precision, speedups
from tuner.engines.relay.ansor import products
from tuner.engines.relay.ansor.options import Options


@dataclass(frozen=True, kw_only=True)
class Network:
    """What makes the network of a request what it is: what depends on it can be cached by it."""

    path: str
    modified_ns: int
    precision: str
    rewrite: bool
    layout: str
    """``NCHW`` or ``NHWC``"""


def of(params: Json) -> Network:
    """Raises as ``mixed_precision.load``."""
    path, precision = params["model"], params.get("precision") or "f32"
    plain = Network(
        path=path,
        modified_ns=Path(path).stat().st_mtime_ns,
        precision=precision,
        rewrite=bool(params.get("rewrite")),
        layout="NCHW",
    )
    return dataclasses.replace(plain, layout=Options.of(params.get("options")).layout or _layout(plain))


@lru_cache(maxsize=2)
def _layout(plain: Network) -> str:
    layout = suited_layout(load(plain).module)
    try:
        load(dataclasses.replace(plain, layout=layout))
    except EngineFailure:
        return "NCHW"
    return layout


@lru_cache(maxsize=2)
def load(network: Network) -> importing.Imported:
    """The network in its precision, its convolutions in its layout; TVM is made ready for its matrix products.

    Raises EngineFailure ``invalid_option`` when TVM cannot give its convolutions that layout.
    """
    products.install()
    imported = mixed_precision.load(network.path, network.precision, rewrite=network.rewrite)
    return imported if network.layout == "NCHW" else _channels_last(imported)


def suited_layout(module: Any) -> str:
    """``NHWC``, where TVM 0.19 can compile all convolutions of the module so.

    Channels are then the innermost axis of data and weights, which vectorizes without a search having to find it; of
    one convolution of ResNet-50, 160 trials found 1.97 ms in NCHW and 0.95 ms in NHWC. Grouped convolutions that are
    not depthwise have no x86 implementation in NHWC.
    """
    grouped = False

    def visit(node: Any) -> None:
        nonlocal grouped
        if isinstance(node, relay.Call) and node.op == relay.op.get("nn.conv2d"):
            groups = int(node.attrs.groups)
            channels = int(node.args[1].checked_type.shape[0])
            grouped = grouped or not (groups == 1 or groups == channels)

    typed = relay.transform.InferType()(module)
    relay.analysis.post_order_visit(typed["main"], visit)
    return "NCHW" if grouped else "NHWC"


def _channels_last(imported: importing.Imported) -> importing.Imported:
    speedups.use_threads(1)
    passes = tvm.transform.Sequential(
        [
            relay.transform.RemoveUnusedFunctions(),
            relay.transform.ConvertLayout({"nn.conv2d": ["NHWC", "default"]}),
            # The layout transforms of weights; every later build finds them done.
            relay.transform.FoldConstant(),
        ]
    )
    try:
        with tvm.transform.PassContext(opt_level=3):
            return dataclasses.replace(imported, module=passes(imported.module))
    except tvm.TVMError as error:
        # Seen where a one-dimensional convolution stands beside two-dimensional ones.
        message = f"TVM cannot lay this network's convolutions out as NHWC: {faults.told(error, longest=300)}"
        raise EngineFailure("invalid_option", message, hint="Use NCHW.") from error
