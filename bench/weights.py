"""Seeded weights for networks published without any: ``python -m bench.weights IN OUT``; requires onnx."""

from __future__ import annotations

import math
import sys

import numpy as np
import onnx
import onnxruntime
from onnx import numpy_helper

_SEED = 0


def fill(model: onnx.ModelProto) -> onnx.ModelProto:
    """Replace each ``ConstantOfShape`` of a constant shape with float32 values that keep activations in range.

    Matrices and kernels are normal with He et al.'s variance (ICCV 2015), 2 / fan-in; vectors, which may be variances
    or scales, are uniform in [0.5, 1.5). The shape inputs are removed, as they have no other use.
    """
    generator = np.random.default_rng(_SEED)
    shapes = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    made = [node for node in model.graph.node if node.op_type == "ConstantOfShape" and node.input[0] in shapes]
    for node in made:
        shape = tuple(int(size) for size in shapes[node.input[0]])
        model.graph.initializer.append(numpy_helper.from_array(_values(generator, shape), node.output[0]))
        model.graph.node.remove(node)
    used = {name for node in model.graph.node for name in node.input}
    for kept in (model.graph.initializer, model.graph.input):
        for entry in [entry for entry in kept if entry.name not in used]:
            kept.remove(entry)
    weights = {tensor.name for tensor in model.graph.initializer}
    for entry in [entry for entry in model.graph.input if entry.name in weights]:
        # IR version 3 required weights to be listed as inputs.
        model.graph.input.remove(entry)
    model.ir_version = max(model.ir_version, 4)
    return model


def calm(model: onnx.ModelProto) -> onnx.ModelProto:
    """Scale the classifier's weights so that the input of the last softmax has a standard deviation of one.

    Deep networks with such weights end in huge numbers, whose softmax is 0 or 1 whatever an engine computes.
    """
    softmax = next((node for node in reversed(model.graph.node) if node.op_type == "Softmax"), None)
    if softmax is None:
        return model
    spread = float(_run(model, softmax.input[0]).std())
    weights = {tensor.name: tensor for tensor in model.graph.initializer}
    for name in _last_weights(model, softmax.input[0], weights):
        values = numpy_helper.to_array(weights[name])
        weights[name].CopyFrom(numpy_helper.from_array(values / np.float32(spread), name))
    return model


def _values(generator: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    if len(shape) < 2:
        return generator.uniform(0.5, 1.5, shape).astype(np.float32)
    return generator.normal(0, math.sqrt(2 / math.prod(shape[1:])), shape).astype(np.float32)


def _run(model: onnx.ModelProto, tensor: str) -> np.ndarray:
    watched = onnx.ModelProto()
    watched.CopyFrom(model)
    watched.graph.output.append(onnx.helper.make_tensor_value_info(tensor, onnx.TensorProto.FLOAT, None))
    session = onnxruntime.InferenceSession(watched.SerializeToString(), providers=["CPUExecutionProvider"])
    given = session.get_inputs()[0]
    image = np.random.default_rng(_SEED).random(given.shape).astype(np.float32)
    return session.run([tensor], {given.name: image})[0]


def _last_weights(model: onnx.ModelProto, tensor: str, weights: dict[str, onnx.TensorProto]) -> list[str]:
    """Return weights and bias of the last node before ``tensor`` that multiplies by weights."""
    producers = {name: node for node in model.graph.node for name in node.output}
    node = producers[tensor]
    while not any(len(weights[name].dims) > 1 for name in node.input if name in weights):
        node = producers[node.input[0]]
    return [name for name in node.input if name in weights]


if __name__ == "__main__":
    onnx.save(calm(fill(onnx.load(sys.argv[1]))), sys.argv[2])
