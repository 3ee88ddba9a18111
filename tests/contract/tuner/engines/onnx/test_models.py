from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from domain import errors
from tests.support import models
from tests.support.tuner.engines import asking
from tests.support.tuner.engines.onnx import inside
from tuner.host.session import EngineSession

pytestmark = pytest.mark.engine


def _inspect(reference: EngineSession, path: Path) -> dict[str, Any]:
    return reference.request("inspect", {"path": str(path)}, timeout=60)


def _prepare(reference: EngineSession, folder: Path, content: bytes, **shapes: list[int]) -> dict[str, Any]:
    (folder / "model.onnx").write_bytes(content)
    params = {"path": str(folder / "model.onnx"), "input_shapes": shapes, "out_path": str(folder / "out.onnx")}
    return reference.request("prepare", params, timeout=60)


def test_inspect_tells_what_the_file_holds(reference: EngineSession, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(models.small_network())
    facts = _inspect(reference, path)
    assert facts["inputs"] == [{"name": "image", "dtype": "float32", "shape": ["batch", 3, "height", "width"]}]
    assert facts["outputs"] == [{"name": "scores", "dtype": "float32", "shape": ["batch", 5]}]
    assert facts["opset"] == 13
    assert facts["operators"]["Conv"] == 2
    assert facts["parameters"] == 8 * 27 + 8 + 16 * 8 + 16 + 5 * 16 + 5


@pytest.mark.parametrize("content", [b"", b"not a model", b"\x00" * 64, models.truncated()])
def test_what_is_no_model_is_refused(reference: EngineSession, tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "bad.onnx"
    path.write_bytes(content)
    assert asking.refusal(reference, "inspect", {"path": str(path)}).engine_code == "invalid_model"


def test_a_zip_archive_is_refused_as_what_it_is(reference: EngineSession, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(b"PK\x03\x04" + bytes(500))
    refused = asking.refusal(reference, "inspect", {"path": str(path)})
    assert refused.details["reason"] == "not_onnx"
    assert "a zip archive" in refused.message
    assert "a tar archive of one and its weights" in refused.message


_ARCHIVED = """
import shutil, tarfile, numpy as np, onnx
from pathlib import Path
from onnx import TensorProto, helper, numpy_helper
from tuner.engines.onnx import models

folder = Path(sys.argv[1])
weights = {"w": np.random.default_rng(0).random((4, 4), np.float32), "b": np.arange(4, dtype=np.float32)}
stored = [numpy_helper.from_array(value, name) for name, value in weights.items()]
half = helper.make_node("Constant", [], ["c"], value=numpy_helper.from_array(np.full(4, 0.5, np.float16), "half"))
nodes = [half, helper.make_node("Cast", ["c"], ["h"], to=TensorProto.FLOAT),
         helper.make_node("MatMul", ["x", "w"], ["m"]), helper.make_node("Add", ["m", "b"], ["a"]),
         helper.make_node("Mul", ["a", "h"], ["y"])]
x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 4]) for name in "xy")
graph = helper.make_graph(nodes, "g", [x], [y], stored)
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
told = []
for one_file in (True, False):
    made = folder / f"one-{one_file}"
    made.mkdir()
    onnx.save(onnx.ModelProto.FromString(model.SerializeToString()), made / "net.onnx", save_as_external_data=True,
              all_tensors_to_one_file=one_file, location="net.data", size_threshold=0, convert_attribute=True)
    with tarfile.open(made / "net.tar", "w", format=tarfile.PAX_FORMAT) as archive:
        for path in sorted(made.glob("*")):
            archive.add(path, f"./export/{path.name}")
    read = models.read(str(made / "net.tar"))
    told.append([len(list(made.glob("*"))), read.SerializeToString(deterministic=True)
                 == model.SerializeToString(deterministic=True)])
"""


def test_an_archive_is_read_as_the_model_with_its_weights(tmp_path: Path) -> None:
    files_one, files_each = 3, 5
    assert inside.run(_ARCHIVED, tmp_path) == [[files_one, True], [files_each, True]]


def test_an_operator_that_nobody_defines_is_named(reference: EngineSession, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(models.foreign_operators())
    refused = asking.refusal(reference, "inspect", {"path": str(path)})
    assert refused.engine_code == "unsupported_operators"
    assert refused.details == {"operators": {"my.domain::Twist": 2}}
    assert "my.domain::Twist" in refused.message
    assert "docs/how-to/custom-operators.md" in str(refused.hint)


def test_an_operator_that_the_model_defines_is_taken(reference: EngineSession, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(models.plugin_operators(functions=True))
    assert _inspect(reference, path)["operators"]["example.domain::Wave"] == 1


def test_an_operator_that_the_reference_cannot_run_is_named(reference: EngineSession, tmp_path: Path) -> None:
    with pytest.raises(errors.EngineRequestFailed, match="does not support") as caught:
        _prepare(reference, tmp_path, models.without_an_implementation())
    assert caught.value.engine_code == "unsupported_operators"
    assert caught.value.details == {"operators": {"com.microsoft::BiasAdd": 1}}


_FUNCTIONS = """
import os
import numpy as np, onnx
from onnx import TensorProto, helper, numpy_helper
from tuner.engines.onnx import preparing
from tuner.engines.protocol import plugins

def weight(*shape):
    values = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    return helper.make_node("Constant", [], [f"w{shape[2]}"], value=numpy_helper.from_array(values))

sets = [helper.make_opsetid("", 20), helper.make_opsetid("mine", 1)]
layer = [weight(1, 16, 3), weight(1, 16, 4), helper.make_node("LSTM", ["x", "w3", "w4"], ["y"], hidden_size=4)]
curve = [helper.make_node("Gelu", ["x"], ["y"], approximate="tanh")]
root = [helper.make_node("Tanh", ["x"], ["t"]), helper.make_node("Add", ["t", "x"], ["y"])]
functions = [helper.make_function("mine", name, ["x"], ["y"], nodes, sets)
             for name, nodes in (("Layer", layer), ("Curve", curve), ("Root", root))]
nodes = [helper.make_node(name, [given], [made], domain="mine")
         for name, given, made in (("Layer", "x", "l"), ("Curve", "l", "c"), ("Root", "c", "y"))]
graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [3, 1, 3])],
                          [helper.make_tensor_value_info("y", TensorProto.FLOAT, [3, 1, 1, 4])])
onnx.save(helper.make_model(graph, functions=functions, opset_imports=sets, ir_version=9), sys.argv[1])
told = []
for names in ("", "a_plugin"):
    os.environ[plugins.VARIABLE] = names
    told.append(preparing.prepare(sys.argv[1], {}, sys.argv[1] + ".prepared"))
"""


def test_functions_are_inlined_and_their_operators_made_plain(tmp_path: Path) -> None:
    alone, beside_a_plugin = inside.run(_FUNCTIONS, tmp_path / "model.onnx")
    assert alone["folded"]
    assert not {"LSTM", "Gelu", "mine::Layer", "mine::Curve", "mine::Root"} & set(alone["operators"])
    # A plugin may have a faster implementation of a function that engines import in any case.
    assert not {"LSTM", "Gelu", "mine::Layer", "mine::Curve"} & set(beside_a_plugin["operators"])
    assert beside_a_plugin["operators"]["mine::Root"] == 1


_BRANCHES = """
import numpy as np, onnx
from pathlib import Path
from onnx import TensorProto, helper, numpy_helper
from tuner.engines.onnx import preparing, sessions
from tuner.engines.protocol.serving import EngineFailure

info = lambda name, kind, shape: helper.make_tensor_value_info(name, kind, shape)
def branch(rate, width):
    # Each rate has its own weights, and both branches the same names.
    weight = numpy_helper.from_array(np.full((width, 3), rate / 16000, np.float32), "weight")
    nodes = [helper.make_node("MatMul", ["x", "weight"], ["product"]), helper.make_node("Relu", ["product"], ["found"])]
    return helper.make_graph(nodes, f"b{rate}", [], [info("found", TensorProto.FLOAT, ["n", 3])], [weight])

def model(widths, compared="rate"):
    nodes = [
        helper.make_node("Equal", [compared, "slow"], ["is_slow"]),
        helper.make_node("If", ["is_slow"], ["y"], then_branch=branch(8000, widths[0]),
                         else_branch=branch(16000, widths[1])),
    ]
    slow = numpy_helper.from_array(np.int64(8000), "slow")
    inputs = [info("x", TensorProto.FLOAT, ["n", "w"]), info("rate", TensorProto.INT64, [])]
    graph = helper.make_graph(nodes, "g", inputs, [info("y", TensorProto.FLOAT, ["n", 3])], [slow])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)

source, prepared = Path(sys.argv[1]) / "model.onnx", Path(sys.argv[1]) / "prepared.onnx"
# The condition is constant.
onnx.save(model((4, 4), "slow"), source)
told = [sorted(preparing.prepare(str(source), {"x": [2, 4]}, str(prepared))["operators"])]
for widths, given in (((4, 8), 4), ((4, 8), 8), ((4, 8), 5)):
    onnx.save(model(widths), source)
    try:
        answer = preparing.prepare(str(source), {"x": [2, given]}, str(prepared))
    except EngineFailure as error:
        told.append(error.code)
        continue
    fed = {"x": np.full((2, given), 1, np.float32), "rate": np.array(16000 if given == 8 else 8000)}
    expected, found = (sessions.run(sessions.open_session(str(path), threads=1, level=sessions.NONE), fed)["y"]
                       for path in (source, prepared))
    told.append([sorted(answer["operators"]), [each["name"] for each in answer["inputs"]],
                 bool((expected == found).all())])
"""


def test_the_only_possible_branch_is_taken(tmp_path: Path) -> None:
    taken = [["MatMul", "Relu"], ["x", "rate"], True]
    assert inside.run(_BRANCHES, tmp_path) == [["MatMul", "Relu"], taken, taken, "invalid_model"]


_ATTENTION = """
import numpy as np, onnx
from onnx import TensorProto, helper, numpy_helper
from tuner.engines.onnx import preparing

dice = np.random.default_rng(0)
nodes, tensors = [], []
def tensor(name, values):
    tensors.append(numpy_helper.from_array(values, name))
    return name
def weights(name, *shape):
    return tensor(name, dice.standard_normal(shape).astype(np.float32))
def emit(operator, inputs, name, **attributes):
    nodes.append(helper.make_node(operator, inputs, [name], **attributes))
    return name
def dense(given, name):
    product = emit("MatMul", [given, weights(f"{name}-w", 16, 16)], f"{name}-p")
    return emit("Add", [weights(f"{name}-b", 16), product], name)
def heads(given, *order):
    split = emit("Reshape", [given, "split"], f"{given}-split")
    return emit("Transpose", [split], f"{given}-heads", perm=order)

tensor("split", np.array([1, 6, 2, 8]))
tensor("whole", np.array([1, 6, 16]))
x = emit("LayerNormalization", [dense("x", "embedded"), weights("scale", 16), weights("bias", 16)], "normal", axis=-1)
q, k, v = heads(dense(x, "q"), 0, 2, 1, 3), heads(dense(x, "k"), 0, 2, 3, 1), heads(dense(x, "v"), 0, 2, 1, 3)
scores = emit("Div", [emit("MatMul", [q, k], "products"), tensor("root", np.array(8**0.5, np.float32))], "scores")
read = emit("MatMul", [emit("Softmax", [scores], "shares", axis=-1), v], "read")
out = dense(emit("Reshape", [emit("Transpose", [read], "turned", perm=[0, 2, 1, 3]), "whole"], "joined"), "out")
emit("Relu", [dense(emit("Add", [out, x], "sum"), "last")], "y")
values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 6, 16]) for name in "xy"]
graph = helper.make_graph(nodes, "g", values[:1], values[1:], tensors)
onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), sys.argv[1])
told = preparing.prepare(sys.argv[1], {}, sys.argv[1] + ".prepared")["folded"]
"""


def test_attention_is_folded(tmp_path: Path) -> None:
    """ONNX Runtime must open what it has folded once more; it uses its own names of constants again."""
    assert inside.run(_ATTENTION, tmp_path / "model.onnx")


_MASKED = """
import onnx
from onnx import TensorProto, helper
from tuner.engines.onnx import models, preparing

x, mask, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 8]) for name in ("x", "mask", "y"))
def model(*nodes):
    graph = helper.make_graph(nodes, "g", [x, mask], [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)

onnx.save(model(helper.make_node("Mul", ["x", "mask"], ["y"])), sys.argv[1])
told = []
for optimized in (models.read_optimized, lambda path: model(helper.make_node("Identity", ["x"], ["y"]))):
    models.read_optimized = optimized
    told.append(preparing.prepare(sys.argv[1], {}, sys.argv[1] + ".prepared")["folded"])
"""


def test_folding_that_changes_results_with_another_mask_is_undone(tmp_path: Path) -> None:
    assert inside.run(_MASKED, tmp_path / "model.onnx") == [True, False]


def test_prepare_fixes_every_dimension(reference: EngineSession, tmp_path: Path) -> None:
    facts = _prepare(reference, tmp_path, models.small_network(), image=[2, 3, 12, 20])
    assert facts["inputs"] == [{"name": "image", "dtype": "float32", "shape": [2, 3, 12, 20]}]
    assert facts["outputs"] == [{"name": "scores", "dtype": "float32", "shape": [2, 5]}]
    assert facts["folded"]
    assert _inspect(reference, tmp_path / "out.onnx")["inputs"] == facts["inputs"]


def test_a_missing_dimension_is_named(reference: EngineSession, tmp_path: Path) -> None:
    with pytest.raises(errors.EngineRequestFailed) as caught:
        _prepare(reference, tmp_path, models.small_network())
    assert caught.value.engine_code == "shape_required"
    assert caught.value.details["dimensions"] == [
        {"input": "image", "axis": 0, "symbol": "batch"},
        {"input": "image", "axis": 2, "symbol": "height"},
        {"input": "image", "axis": 3, "symbol": "width"},
    ]


@pytest.mark.parametrize(
    ("shapes", "words"),
    [
        ({"picture": [1, 3, 8, 8]}, "no input picture; its inputs are image"),
        ({"image": [1, 3, 8]}, "has 4 dimensions"),
        ({"image": [1, 4, 8, 8]}, "dimension 1 of image is fixed at 3"),
        ({"image": [1, 3, 0, 8]}, "must be positive"),
    ],
)
def test_a_wrong_shape_is_explained(
    reference: EngineSession, tmp_path: Path, shapes: dict[str, list[int]], words: str
) -> None:
    with pytest.raises(errors.EngineRequestFailed, match=words) as caught:
        _prepare(reference, tmp_path, models.small_network(), **shapes)
    assert caught.value.engine_code == "shape_mismatch"


_DEFINED = """
import numpy as np, onnx
from onnx import TensorProto, helper, numpy_helper
from tuner.engines.onnx import preparing

path, shape = sys.argv[1] + "/model.onnx", [2, 8, 5, 5]
info = lambda name: helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
weights = [numpy_helper.from_array(np.full(8, value, np.float32), name) for name, value in (("s", 0.5), ("b", 2))]
node = helper.make_node("GroupNormalization", ["x", "s", "b"], ["y"], num_groups=4)
graph = helper.make_graph([node], "g", [info("x")], [info("y")], weights)
onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), path)
told = sorted(preparing.prepare(path, {}, path + ".prepared")["operators"])
"""


def test_sizes_in_the_definition_of_an_operator_are_folded(tmp_path: Path) -> None:
    operators = inside.run(_DEFINED, tmp_path)
    assert "ReduceMean" in operators
    assert not {"GroupNormalization", "Shape"} & set(operators)


_SUBTRACTED = """
import numpy as np, onnx
from onnx import TensorProto, helper, numpy_helper
from tuner.engines.onnx import preparing

rng, path = np.random.default_rng(0), sys.argv[1] + "/model.onnx"
info = lambda name, shape: helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
arrays = {"w": rng.normal(size=(8, 3, 3, 3)), **{name: rng.normal(size=8) + 2 for name in ("mean", "scale", "shift")}}
weights = [numpy_helper.from_array(array.astype(np.float32), name) for name, array in arrays.items()]
weights.append(numpy_helper.from_array(np.array([0, 0, 0, 0, 0, 0, 1, 1]), "around"))
nodes = [
    helper.make_node("Transpose", ["x"], ["planes"], perm=[0, 3, 1, 2]),
    helper.make_node("Pad", ["planes", "around", ""], ["padded"]),
    helper.make_node("Conv", ["padded", "w"], ["made"], strides=[2, 2]),
    helper.make_node("Transpose", ["made"], ["back"], perm=[0, 2, 3, 1]),
    helper.make_node("Sub", ["back", "mean"], ["moved"]),
    helper.make_node("Mul", ["moved", "scale"], ["scaled"]),
    helper.make_node("Add", ["scaled", "shift"], ["normal"]),
    helper.make_node("Transpose", ["normal"], ["again"], perm=[0, 3, 1, 2]),
    helper.make_node("GlobalMaxPool", ["again"], ["y"]),
]
graph = helper.make_graph(nodes, "g", [info("x", [1, 8, 8, 3])], [info("y", [1, 8, 1, 1])], weights)
onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9), path)
told = preparing.prepare(path, {}, path + ".prepared")["operators"]
"""


def test_normalization_and_padding_as_keras_exports_them_are_folded(tmp_path: Path) -> None:
    assert inside.run(_SUBTRACTED, tmp_path) == {"Transpose": 1, "Conv": 1, "GlobalMaxPool": 1}


_HALVES = """
import numpy as np, onnx
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.transformers.float16 import convert_float_to_float16
from tuner.engines.onnx import preparing

rng, path = np.random.default_rng(0), sys.argv[1] + "/model.onnx"
info = lambda name, shape: helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
weights = [numpy_helper.from_array(rng.normal(size=shape).astype(np.float32), name)
           for name, shape in (("w", (8, 3, 3, 3)), ("b", (8,)), ("v", (6, 4)))]
nodes = [helper.make_node("Conv", ["x", "w", "b"], ["c"]), helper.make_node("MatMul", ["c", "v"], ["y"])]
graph = helper.make_graph(nodes, "g", [info("x", [1, 3, 8, 8])], [info("y", [1, 8, 6, 4])], weights)
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
onnx.save(convert_float_to_float16(model, keep_io_types=True), path)
first = onnx.load(path).graph.node[0].op_type
operators = preparing.prepare(path, {}, path + ".prepared")["operators"]
kinds = {each.data_type for each in onnx.load(path + ".prepared").graph.initializer}
told = [first, operators, sorted(kinds)]
"""


def test_models_that_onnx_runtime_converted_to_float16_are_read_and_computed_in_float32(tmp_path: Path) -> None:
    """Its converter appends the conversion of the input, behind what reads it."""
    first, operators, kinds = inside.run(_HALVES, tmp_path)
    assert first == "Conv"
    assert {name: count for name, count in operators.items() if name != "Cast"} == {"Conv": 1, "MatMul": 1}
    assert operators.get("Cast", 0) < 2, "only the input may be rounded"
    assert kinds == [1]


_SHUFFLED = """
import numpy as np, onnx
from onnx import TensorProto, helper, numpy_helper
from tuner.engines.onnx import models
from tuner.engines.protocol.serving import EngineFailure

rng, path = np.random.default_rng(0), sys.argv[1] + "/model.onnx"
info = lambda name: helper.make_tensor_value_info(name, TensorProto.FLOAT, [2])
told = {"read": 0, "refused": ""}

def save(nodes):
    flag = numpy_helper.from_array(np.array(True), "flag")
    graph = helper.make_graph(nodes, "g", [info("t0")], [info("y")], [flag])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)

def shuffled(nodes):
    return [nodes[place] for place in rng.permutation(len(nodes))]

for _ in range(30):
    nodes = [helper.make_node("Add", [f"t{rng.integers(at)}", f"t{at - 1}"], [f"t{at}"]) for at in range(1, 9)]
    inner = [helper.make_node("Neg", ["t8"], ["n"]), helper.make_node("Add", ["n", "t7"], ["o"])]
    bodies = [helper.make_graph(shuffled(inner), "b", [], [info("o")]) for _ in range(2)]
    nodes.append(helper.make_node("If", ["flag"], ["y"], then_branch=bodies[0], else_branch=bodies[1]))
    save(shuffled(nodes))
    told["read"] += len(models.read(path).graph.node) == 9
save([helper.make_node("Add", ["t0", "b"], ["a"]), helper.make_node("Neg", ["a"], ["b"]),
      helper.make_node("Neg", ["b"], ["y"])])
try:
    models.read(path)
except EngineFailure as failure:
    told["refused"] = failure.code
"""


def test_nodes_may_be_in_any_order_unless_there_is_none(tmp_path: Path) -> None:
    """ONNX Runtime reads such files, too."""
    assert inside.run(_SHUFFLED, tmp_path) == {"read": 30, "refused": "invalid_model"}
