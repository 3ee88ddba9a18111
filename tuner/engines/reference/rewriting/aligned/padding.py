"""The rewriting: pads the channels that are worth it, over as much of the network as the padding flows through."""

from __future__ import annotations

from collections.abc import Callable

import onnx

from tuner.engines.reference import models
from tuner.engines.reference.rewriting.aligned import operators
from tuner.engines.reference.rewriting.aligned.flow import Flow, Network

Handler = Callable[[Flow, onnx.NodeProto], bool]
"""Emits the node with padding, or returns False and has done nothing."""

HANDLERS: dict[str, Handler] = {
    **dict.fromkeys(operators.OPERATORS, operators.compute),
    **dict.fromkeys(("Conv", "ConvTranspose"), operators.convolve),
    **dict.fromkeys(("Gemm", "MatMul"), operators.multiply),
    **dict.fromkeys(("MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool"), operators.pool),
    **dict.fromkeys(("ReduceMean", "ReduceMax", "ReduceMin"), operators.reduce),
    **dict.fromkeys(("BatchNormalization", "InstanceNormalization"), operators.normalize),
    **dict.fromkeys(("Resize", "Upsample"), operators.resize),
    **dict.fromkeys(("Reshape", "Flatten", "Squeeze", "Unsqueeze"), operators.reshape),
    "Concat": operators.concatenate,
    "Pad": operators.surround,
    "Slice": operators.cut,
}


def apply(model: onnx.ModelProto, lanes: int) -> int:
    """Returns how many convolutions and dense layers have padded outputs."""
    network = Network(model=model, lanes=lanes)
    nodes = [node for node in model.graph.node if node.domain in models.STANDARD_DOMAINS]
    found = (operators.convolution_origin(network, node) or operators.product_origin(network, node) for node in nodes)
    origins = frozenset(origin for origin in found if origin)
    while origins:
        flow = _flow(network, origins)
        losing = flow.losing()
        if not losing:
            flow.commit()
            return len(origins)
        # What is left may lose by it: a sum of two tensors is padded only where both are.
        origins -= losing
    return 0


def _flow(network: Network, origins: frozenset[str]) -> Flow:
    flow = Flow(network, origins)
    for node in network.model.graph.node:
        handler = HANDLERS.get(node.op_type) if node.domain in models.STANDARD_DOMAINS else None
        if handler is None or not handler(flow, node):
            flow.keep(node)
    for value in network.model.graph.output:
        flow.remove_padding(value.name)
    return flow
