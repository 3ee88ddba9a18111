"""Constants of ONNX graphs in the one form that TVM's importers read. TVM 0.19 and 0.27 come with ONNX of their own."""

from __future__ import annotations

from typing import Any

_FLOAT, _INT64 = 1, 7
"""``onnx.TensorProto.FLOAT`` and ``INT64``"""
_TYPE_OF = {"value_float": _FLOAT, "value_floats": _FLOAT, "value_int": _INT64, "value_ints": _INT64}


def use_tensors(graph: Any, helper: Any) -> None:
    """Write every ``Constant`` of an ``onnx.GraphProto``, subgraphs too, with a tensor.

    ``helper`` is ``onnx.helper``.
    """
    for node in graph.node:
        for attribute in list(node.attribute):
            for subgraph in [attribute.g] if attribute.HasField("g") else list(attribute.graphs):
                use_tensors(subgraph, helper)
            if node.op_type == "Constant" and attribute.name in _TYPE_OF:
                value = helper.get_attribute_value(attribute)
                shape, values = ([len(value)], value) if attribute.name.endswith("s") else ([], [value])
                tensor = helper.make_tensor(node.output[0], _TYPE_OF[attribute.name], shape, values)
                node.attribute.remove(attribute)
                node.attribute.append(helper.make_attribute("value", tensor))
