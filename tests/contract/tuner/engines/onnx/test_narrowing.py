from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.tuner.engines import asking
from tests.support.tuner.engines.onnx import inside
from tuner.host.session import EngineSession

pytestmark = pytest.mark.engine


def test_nothing_is_written_where_all_layers_bear_bfloat16(
    reference: EngineSession, outlying: tuple[Path, list[Path]], tmp_path: Path
) -> None:
    path, given = outlying
    made = asking.narrow(reference, path, given, tmp_path / "n.onnx", max_rel=10.0)
    assert (made["layers"], made["kept"]) == (4, [])
    assert 0 < made["share"] < 0.7
    assert not (tmp_path / "n.onnx").exists()


def test_sensitive_layers_are_marked_and_compute_what_they_did(
    reference: EngineSession, outlying: tuple[Path, list[Path]], tmp_path: Path
) -> None:
    path, given = outlying
    whole = asking.narrow(reference, path, given, tmp_path / "n.onnx", max_rel=10.0)["share"] * 10
    made = asking.narrow(reference, path, given, tmp_path / "n.onnx", max_rel=whole)
    assert 0 < len(made["kept"]) < 4
    assert made["share"] <= 0.5
    program = """
import onnx
graph = onnx.load(sys.argv[1]).graph
onnx.checker.check_model(onnx.load(sys.argv[1]))
makers = {node.output[0]: node for node in graph.node}
products = [node for node in graph.node if node.op_type == "MatMul"]
told = sorted(node.name for node in products if makers.get(node.input[0], node).op_type == "Cast")
"""
    assert inside.run(program, tmp_path / "n.onnx") == sorted(made["kept"])
    run = {"path": str(tmp_path / "n.onnx"), "inputs": str(given[0]), "outputs": str(tmp_path / "a.npz"), "threads": 1}
    reference.request("run", run, timeout=60)
    [output] = asking.compare_with_model(reference, path, given[0], tmp_path / "a.npz")
    assert output["max_abs"] == 0


def test_images_that_narrow_convolutions_read_are_rounded_for_all_readers(tmp_path: Path) -> None:
    program = """
import onnx
from onnx import TensorProto, helper
from tuner.engines.onnx.precisions import narrowing
kernel = helper.make_tensor("w", TensorProto.FLOAT, [4, 4, 1, 1], [1.0] * 16)
value = lambda name: helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 4, 3, 3])
nodes = [helper.make_node("Relu", ["x"], ["r"], name="relu"),
         helper.make_node("Conv", ["r", "w"], ["c"], name="conv"),
         helper.make_node("Add", ["r", "c"], ["y"], name="add")]
graph = helper.make_graph(nodes, "g", [value("x")], [value("y")], [kernel])
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)])
narrowing._Writer(model)(["conv"], {}, __import__("pathlib").Path(sys.argv[1]) / "n.onnx")
made = onnx.load(sys.argv[1] + "/n.onnx").graph
told = {node.name: list(node.input) for node in made.node if node.name}
"""
    told = inside.run(program, tmp_path)
    assert told == {"relu": ["x"], "conv": ["r.rounded", "w.rounded"], "add": ["r.rounded", "c"]}
