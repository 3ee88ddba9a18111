"""Graphs of TVM's graph executor as plans."""

from __future__ import annotations

from typing import Any

import pytest

from tuner.engines.relay import plans
from tuner.engines.runtime.library.plan import Call, Kind, NotStandalone


def graph() -> dict[str, Any]:
    """``x`` split in two by a kernel with a weight; the second half reshaped, and the first one an output."""
    split = {"func_name": "tvmgen_default_fused_split", "num_outputs": "2"}
    return {
        "nodes": [
            {"op": "null", "name": "w", "inputs": []},
            {"op": "null", "name": "x", "inputs": []},
            {"op": "tvm_op", "name": "a", "attrs": split, "inputs": [[1, 0, 0], [0, 0, 0]]},
            {"op": "tvm_op", "name": "b", "attrs": {"func_name": "__nop", "num_outputs": "1"}, "inputs": [[2, 1, 0]]},
        ],
        "arg_nodes": [0, 1],
        "heads": [[3, 0, 0], [2, 0, 0], [1, 0, 0]],
        "node_row_ptr": [0, 1, 2, 4, 5],
        "attrs": {
            "shape": ["list_shape", [[1], [4], [2], [2], [1, 2]]],
            "dltype": ["list_str", ["int8", "float32", "float32", "float32", "float32"]],
            "storage_id": ["list_int", [0, 1, 2, 3, 3]],
        },
    }


def test_a_graph_becomes_calls_on_buffers() -> None:
    found = plans.read(graph(), {"w": b"\x01"}, ("p", "q", "r"))
    assert found.calls == [Call(symbol="tvmgen_default_fused_split", name="fused_split", arguments=(1, 0, 2, 3))]
    kinds = [(each.kind, each.index) for each in found.tensors]
    assert kinds == [
        (Kind.CONSTANT, 0), (Kind.INPUT, 0), (Kind.SCRATCH, 2), (Kind.SCRATCH, 3), (Kind.SCRATCH, 3),
    ]  # fmt: skip
    assert [each.shape for each in found.tensors] == [(1,), (4,), (2,), (2,), (1, 2)]
    assert (found.inputs, found.outputs, found.input_names, found.constants) == ([1], [4, 2, 1], ["x"], [b"\x01"])


def test_what_the_graph_executor_alone_can_run_is_refused() -> None:
    unknown = graph()
    unknown["nodes"][3]["op"] = "device_copy"
    with pytest.raises(NotStandalone, match="graph nodes of kind 'device_copy'"):
        plans.read(unknown, {"w": b"\x01"}, ("p", "q", "r"))
    symbolic = graph()
    symbolic["attrs"]["shape"][1][2] = [-1]
    with pytest.raises(NotStandalone, match="sizes only a run decides"):
        plans.read(symbolic, {"w": b"\x01"}, ("p", "q", "r"))
