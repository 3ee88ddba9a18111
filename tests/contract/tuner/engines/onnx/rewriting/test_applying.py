"""A rewriting may never break a model."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import models
from tests.support.tuner.engines import asking
from tests.support.tuner.engines.fixtures import interpreter
from tests.support.tuner.engines.onnx import inside
from tuner.host import catalogue
from tuner.host.inspection import Inspector
from tuner.host.session import EngineSession
from worker.pipeline import importing

pytestmark = pytest.mark.engine

_PROGRAM = """
import onnx
from onnx import numpy_helper
from pathlib import Path
from tuner.engines.onnx.rewriting import applying

def scale(model, lanes):
    for tensor in model.graph.initializer:
        if tensor.name == "w3":
            tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor) * 1.001, "w3"))
    return lanes

def break_off(model, lanes):
    del model.graph.node[-1]
    return 1

def fail(model, lanes):
    model.graph.node[0].op_type = "Spoiled"
    raise RuntimeError("no idea")

def rename(model, lanes):
    for node in model.graph.node:
        node.name = f"renamed {node.name}"
    return len(model.graph.node)

made = {"scale": scale, "break off": break_off, "fail": fail, "nothing": lambda model, lanes: 0}
told = []
for passes in (made, {**made, "rename": rename}):
    out = Path(sys.argv[2]) / f"{len(passes)}.onnx"
    answer = applying.rewrite(sys.argv[1], 16, str(out), passes)
    nodes = [node.name.split()[0] for node in onnx.load(out).graph.node] if out.exists() else None
    told.append({**answer, "nodes": nodes})
"""


def test_what_changes_a_models_outputs_is_undone(prepared: Path, tmp_path: Path) -> None:
    without, renamed = inside.run(_PROGRAM, prepared, tmp_path)
    assert (without["applied"], without["nodes"]) == ({}, None)
    assert set(without["undone"]) == {"scale", "break off", "fail"}
    assert "scores is off by 0.00" in without["undone"]["scale"]
    assert without["undone"]["fail"] == "RuntimeError: no idea"
    assert (renamed["applied"], renamed["undone"]) == ({"rename": len(renamed["nodes"])}, without["undone"])
    assert set(renamed["nodes"]) == {"renamed"}


_TINY = """
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from tuner.engines.onnx.rewriting import applying

value = lambda name: helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 8])
node = helper.make_node("Mul", ["x", "w"], ["y"])
weight = numpy_helper.from_array(np.full((1, 8), 1e-5, np.float32), "w")
graph = helper.make_graph([node], "g", [value("x")], [value("y")], [weight])
onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), sys.argv[1])

def scale(by):
    def apply(model, lanes):
        for tensor in model.graph.initializer:
            tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor) * np.float32(by), tensor.name))
        return 1
    return apply

passes = {"little": scale(1.01), "much": scale(2)}
told = applying.rewrite(sys.argv[1], 16, sys.argv[1] + ".rewritten", passes)
"""


def test_what_is_almost_zero_everywhere_may_differ_by_almost_nothing(tmp_path: Path) -> None:
    told = inside.run(_TINY, tmp_path / "tiny.onnx")
    assert told["applied"] == {"little": 1}
    assert "y is off by" in told["undone"]["much"]


_ROUNDED = """
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from tuner.engines.onnx.rewriting import applying

value = lambda name: helper.make_tensor_value_info(name, TensorProto.FLOAT, [64, 64])
nodes = [helper.make_node("Mul", ["x", "w"], ["wide"]), helper.make_node("QuantizeLinear", ["wide", "s", "z"], ["q"]),
         helper.make_node("Neg", ["q"], ["n"]), helper.make_node("DequantizeLinear", ["n", "s", "z"], ["y"])]
weights = [numpy_helper.from_array(each, name) for name, each in
           (("w", np.float32(1)), ("s", np.float32(0.02)), ("z", np.int8(3)))]
graph = helper.make_graph(nodes, "g", [value("x")], [value("y")], weights)
onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), sys.argv[1])

def scale(by):
    def apply(model, lanes):
        [tensor] = [each for each in model.graph.initializer if each.name == "w"]
        tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor) * np.float32(by), "w"))
        return 1
    return apply

def coarsen(model, lanes):
    scale(0.5)(model, lanes)
    del model.graph.node[1]
    model.graph.node.insert(1, helper.make_node("Cast", ["wide"], ["q"], to=TensorProto.INT8))
    return 1

def mix_types(model, lanes):
    model.graph.initializer.append(numpy_helper.from_array(np.uint8(3), "u"))
    model.graph.node[3].input[2] = "u"
    return 1

passes = {"much": scale(1.001), "otherwise": coarsen, "unable": mix_types}
told = applying.rewrite(sys.argv[1], 16, "", passes)["undone"]
told["rest"] = applying.rewrite(sys.argv[1], 16, sys.argv[1] + ".rewritten", {"little": scale(1.00005)})
"""


def test_quantized_models_may_round_other_numbers_up(tmp_path: Path) -> None:
    """A rewriting stays if it computes the same without rounding, and if ONNX Runtime can run it."""
    told = inside.run(_ROUNDED, tmp_path / "rounded.onnx")
    assert told.pop("rest") == {"applied": {"little": 1}, "undone": {}}
    assert set(told) == {"much", "otherwise", "unable"}


_UNPROVEN = """
import onnx
from onnx import TensorProto, helper
from tuner.engines.onnx.rewriting import applying

value = lambda name: helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 8])
def told_of(nodes, edit):
    graph = helper.make_graph(nodes, "g", [value("x"), value("mask")], [value("y")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    done = applying.apply(model, 16, {"edit": edit})
    return [done.applied, done.undone]

def ignore(model, lanes):
    model.graph.node[0].CopyFrom(helper.make_node("Identity", ["x"], ["y"]))
    return 1

def negate(model, lanes):
    model.graph.node[0].op_type = "Sub"
    return 1

masked = helper.make_node("Mul", ["x", "mask"], ["y"])
undefined = [helper.make_node("Div", ["mask", "x"], ["d"]), helper.make_node("Sub", ["d", "d"], ["zero"]),
             helper.make_node("Div", ["zero", "zero"], ["y"])]
told = [told_of([masked], ignore), told_of(undefined, negate)]
"""


def test_a_rewriting_is_proven_by_inputs_of_more_than_one_kind_and_by_numbers() -> None:
    masked, undefined = inside.run(_UNPROVEN)
    assert masked[0] == undefined[0] == {}
    assert "y is off by" in masked[1]["edit"]
    assert "no output has a finite number" in undefined[1]["edit"]


def test_the_engine_rewrites_what_there_is(reference: EngineSession, tmp_path: Path) -> None:
    path, out = tmp_path / "model.onnx", tmp_path / "out.onnx"
    path.write_bytes(models.dense_network())
    params = {"path": str(path), "lanes": 16, "out_path": str(out)}
    answer = reference.request("rewrite", params, timeout=60)
    assert answer == {"applied": {"aligned": 1}, "undone": {}}
    before, after = (reference.request("inspect", {"path": str(each)}, timeout=60) for each in (path, out))
    assert (before["inputs"], before["outputs"]) == (after["inputs"], after["outputs"])
    assert after["parameters"] > before["parameters"]
    names = inside.run("import onnx\ntold = [node.name for node in onnx.load(sys.argv[1]).graph.node]", out)
    assert "" not in names
    assert len({*names}) == len(names), "nodes have names of their own"
    assert reference.request("rewrite", {**params, "lanes": 4}, timeout=60)["applied"] == {}
    path.write_bytes(models.truncated())
    asking.refusal(reference, "rewrite", params)


_DECAYED = """
import numpy as np, onnx
from onnx import TensorProto, helper, numpy_helper
from tuner.engines.onnx.rewriting import applying

values = np.array([[1e-40, -1e-45, 0.0], [-0.0, 1.2e-38, 3.0]], np.float32)
info = lambda name: helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 3])
nodes = [helper.make_node("Mul", ["x", "decayed"], ["m"]), helper.make_node("Add", ["m", "other"], ["a"]),
         helper.make_node("Relu", ["a"], ["r"]), helper.make_node("Add", ["r", "epsilon"], ["y"])]
weights = [numpy_helper.from_array(each, name) for name, each in
           (("decayed", values), ("other", values[1]), ("epsilon", np.float32([0, 1e-45, 0])))]
graph = helper.make_graph(nodes, "g", [info("x")], [info("y")], weights)
onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), sys.argv[1])
told = applying.rewrite(sys.argv[1], 16, sys.argv[2])
rounded = onnx.load(sys.argv[2]).graph.initializer
told["constants"] = [numpy_helper.to_array(each).tolist() for each in rounded]
"""


def test_denormal_constants_are_rounded_to_zero(tmp_path: Path) -> None:
    told = inside.run(_DECAYED, tmp_path / "model.onnx", tmp_path / "out.onnx")
    assert told["applied"] == {"denormals": 1}
    decayed, other, epsilon = told["constants"]
    assert decayed[0] == [0.0, 0.0, 0.0]
    assert decayed[1] == other == pytest.approx([-0.0, 1.2e-38, 3.0], abs=1e-45)
    assert epsilon[1] > 0, "it may keep a logarithm finite"


def test_a_child_with_limits_rewrites_for_plans(prepared: Path, tmp_path: Path) -> None:
    inspector = Inspector(spec=catalogue.get("onnx"), python=interpreter("onnx"))
    rewritten = inspector.rewrite(prepared, 16, tmp_path / "out.onnx")
    assert (rewritten.path, rewritten.applied, rewritten.undone) == (None, {}, {})
    assert not (tmp_path / "out.onnx").exists()


def test_jobs_have_words_for_every_rewriting() -> None:
    names = inside.run("from tuner.engines.onnx.rewriting import applying\ntold = list(applying.PASSES)")
    assert set(names) == set(importing._REWRITING_TEXTS)
