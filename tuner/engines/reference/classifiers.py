"""Which outputs look like a classifier's: one number for each class, the largest of which is the answer."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

import onnx

from tuner.engines.reference import models

_RANKS = (2, 3)
"""``[N, C]``, and ``[N, T, C]`` of sequences."""
_PROBABILITIES = ("Softmax", "LogSoftmax")
_LOGITS = ("Gemm", "MatMul")
_PASSING = ("Identity", "Cast", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "Dropout")
_POOLING = ("GlobalAveragePool", "AveragePool", "ReduceMean")
"""What fully convolutional classifiers end with."""
_MOST_STEPS = 8


def outputs(path: str | None) -> frozenset[str]:
    """Names of the outputs of the ONNX file at ``path`` that end in a softmax, or in what one is taken of.

    Empty where nothing can be told: without a file, or for an IRModule. Raises EngineFailure ``invalid_model``.
    """
    if not path or Path(path).suffix != ".onnx":
        return frozenset()
    return _outputs(path, Path(path).stat().st_mtime_ns)


@lru_cache(maxsize=4)
def _outputs(path: str, modified_ns: int) -> frozenset[str]:  # noqa: ARG001 - part of the key
    return of_graph(models.read(path).graph)


def of_graph(graph: onnx.GraphProto) -> frozenset[str]:
    makers = {name: node for node in graph.node for name in node.output}
    constants = {tensor.name for tensor in graph.initializer}
    return frozenset(
        value.name for value in graph.output if _has_classes(value) and _classifies(value.name, makers, constants)
    )


def _has_classes(value: Any) -> bool:
    shape = models.spec(value)["shape"]
    if shape[2:] == [1, 1]:
        # Of a picture one pixel is left.
        shape = shape[:2]
    return len(shape) in _RANKS and isinstance(shape[-1], int) and shape[-1] >= 2


def _classifies(name: str, makers: dict[str, Any], constants: set[str]) -> bool:
    for _ in range(_MOST_STEPS):
        node = makers.get(name)
        if node is None:
            return False
        if node.op_type in _PROBABILITIES or node.op_type in _LOGITS or node.op_type in _POOLING:
            return True
        if node.op_type == "Add":
            # A bias.
            moving = [given for given in node.input if given not in constants]
            if len(moving) != 1:
                return False
            name = moving[0]
        elif node.op_type in _PASSING:
            name = node.input[0]
        else:
            return False
    return False
