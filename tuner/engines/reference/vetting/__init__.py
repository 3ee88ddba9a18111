"""What an uploaded model is asked before ``onnx.checker``, ONNX Runtime or TVM sees it.

Every refusal is ``invalid_model`` with ``details.reason``, one of ``refusal.REASONS``.
"""

from __future__ import annotations

import onnx

from tuner.engines.reference.vetting import attributes, graphs, loops, memory, names, tensors, versions


def check(model: onnx.ModelProto) -> None:
    """Raises EngineFailure ``invalid_model`` for what no engine should have to read."""
    versions.check(model)
    parts = graphs.walk(model)
    for tensor in parts.tensors:
        tensors.check(tensor)
    attributes.check(parts.nodes)
    names.check(model, parts)
    loops.check(model)


def check_memory(model: onnx.ModelProto) -> None:
    """Raises EngineFailure ``invalid_model`` for a model whose values do not fit into what this process may have."""
    memory.check(model)
