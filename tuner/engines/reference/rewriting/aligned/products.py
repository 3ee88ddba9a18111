"""Padding that dense layers make and read: ``Gemm`` and ``MatMul`` with constant weights [inputs, outputs].

TVM packs the outputs by their largest divisor that is at most two vectors: 6625 by 25, 240 by 30.
"""

from __future__ import annotations

import math

import onnx

from tuner.engines.reference.rewriting import graphs
from tuner.engines.reference.rewriting.aligned import worth
from tuner.engines.reference.rewriting.aligned.channels import Channels
from tuner.engines.reference.rewriting.aligned.flow import Flow, Network


def origin(network: Network, node: onnx.NodeProto) -> str | None:
    """The node's output, if it is a dense layer whose outputs may be padded."""
    if not _is_dense(network, node):
        return None
    whole = worth.padded_columns(_sizes(network, node)[1], network.lanes)
    return node.output[0] if whole else None


def _is_dense(network: Network, node: onnx.NodeProto) -> bool:
    return (
        node.op_type in ("Gemm", "MatMul")
        and not graphs.attribute(node, "transA", 0)
        and all(network.is_constant(name) and network.is_float(name) for name in node.input[1:] if name)
        and len(network.shapes[node.input[1]]) == 2
        and len(network.shapes.get(node.input[0], ())) > 1
        and node.output[0] in network.shapes
    )


def _sizes(network: Network, node: onnx.NodeProto) -> tuple[int, int]:
    """Numbers of inputs and outputs."""
    rows, columns = network.shapes[node.input[1]]
    return (columns, rows) if graphs.attribute(node, "transB", 0) else (rows, columns)


def multiply(flow: Flow, node: onnx.NodeProto) -> bool:
    padded = flow.padded(node.input[0])
    if not _is_dense(flow.network, node) or (padded is None and node.output[0] not in flow.origins):
        return False
    shape = flow.network.shapes[node.input[0]]
    if padded is not None and padded.channels.axis != len(shape) - 1:
        return False
    read, made = _sizes(flow.network, node)
    operations = 2.0 * made * math.prod(shape)
    channels = None
    if node.output[0] in flow.origins:
        whole = worth.padded_columns(made, flow.network.lanes) or made
        channels = Channels.at_end(made, whole, node.output[0], axis=len(shape) - 1)
        flow.save(channels, worth.made_columns(operations, made, whole))
    if padded is not None:
        flow.save(padded.channels, worth.read(operations, read, padded.channels.whole))
    axes = (1, 0) if graphs.attribute(node, "transB", 0) else (0, 1)
    inputs = [padded.name if padded else node.input[0]]
    inputs.append(flow.spread(node.input[1], (padded.channels if padded else None, axes[0]), (channels, axes[1])))
    for bias in node.input[2:]:
        sizes = flow.shape(bias) or ()
        is_wide = bool(sizes) and sizes[-1] == made
        inputs.append(flow.spread(bias, (channels if is_wide else None, len(sizes) - 1)))
    flow.emit(node, inputs, channels)
    return True
