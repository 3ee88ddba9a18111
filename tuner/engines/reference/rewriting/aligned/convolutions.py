"""Padding that convolutions make and read."""

from __future__ import annotations

import math

import onnx

from tuner.engines.reference.rewriting import graphs
from tuner.engines.reference.rewriting.aligned import worth
from tuner.engines.reference.rewriting.aligned.channels import Channels
from tuner.engines.reference.rewriting.aligned.flow import Flow, Network


def origin(network: Network, node: onnx.NodeProto) -> str | None:
    """The node's output, if it is a convolution whose outputs may be padded."""
    if not _is_plain(network, node):
        return None
    axis = 1 if node.op_type == "ConvTranspose" else 0
    whole = worth.padded(network.shapes[node.input[1]][axis], network.lanes)
    return node.output[0] if whole else None


def _is_plain(network: Network, node: onnx.NodeProto) -> bool:
    """Neither grouped nor with computed weights, and of known shapes."""
    return _is_known(network, node) and graphs.attribute(node, "group", 1) == 1


def _is_known(network: Network, node: onnx.NodeProto) -> bool:
    weights = [name for name in node.input[1:] if name]
    return (
        node.op_type in ("Conv", "ConvTranspose")
        and all(network.is_constant(name) and network.is_float(name) for name in weights)
        and node.input[0] in network.shapes
        and node.output[0] in network.shapes
    )


def convolve(flow: Flow, node: onnx.NodeProto) -> bool:
    padded = flow.padded(node.input[0])
    if padded is not None and padded.channels.axis != 1:
        return False
    if not _is_known(flow.network, node) or (padded is None and node.output[0] not in flow.origins):
        return False
    if graphs.attribute(node, "group", 1) > 1:
        return _convolve_depthwise(flow, node)
    is_transposed = node.op_type == "ConvTranspose"
    shape = flow.network.shapes[node.input[1]]
    read, made = shape[:2] if is_transposed else shape[1::-1]
    operations = _operations(flow, node)
    channels = None
    if node.output[0] in flow.origins:
        whole = worth.padded(made, flow.network.lanes) or made
        channels = Channels.at_end(made, whole, node.output[0])
        flow.save(channels, worth.made(operations, made, whole, flow.network.lanes))
    if padded is not None:
        flow.save(padded.channels, worth.read(operations, read, padded.channels.whole))
    axes = (0, 1) if is_transposed else (1, 0)
    inputs = [padded.name if padded else node.input[0]]
    inputs.append(flow.spread(node.input[1], (padded.channels if padded else None, axes[0]), (channels, axes[1])))
    inputs += [flow.spread(name, (channels, 0)) for name in node.input[2:]]
    flow.emit(node, inputs, channels)
    return True


def _convolve_depthwise(flow: Flow, node: onnx.NodeProto) -> bool:
    padded = flow.padded(node.input[0])
    weight = flow.network.shapes[node.input[1]]
    if padded is None or node.op_type != "Conv" or weight[1] != 1:
        return False
    read = padded.channels
    multiplier, rest = divmod(weight[0], read.count)
    if rest or graphs.attribute(node, "group", 1) != read.count:
        return False
    made = read.repeated(multiplier)
    flow.save(made, worth.made_depthwise(_operations(flow, node), made.count, made.whole, flow.network.lanes))
    weights = [flow.spread(name, (made, 0)) for name in node.input[1:]]
    flow.emit(node, [padded.name, *weights], made, group=read.whole)
    return True


def _operations(flow: Flow, node: onnx.NodeProto) -> float:
    """Multiplications and additions. A transposed convolution's weights are used once for each input."""
    weight = flow.network.shapes[node.input[1]]
    positions = flow.network.shapes[node.input[0] if node.op_type == "ConvTranspose" else node.output[0]]
    return 2.0 * math.prod(weight) * positions[0] * math.prod(positions[2:])
