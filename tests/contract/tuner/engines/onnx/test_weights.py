"""Models whose weights stay in their files."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.tuner.engines.onnx import inside

pytestmark = pytest.mark.engine

_SET_UP = """
import numpy as np, onnx
from google.protobuf.message import DecodeError
from pathlib import Path
from onnx import TensorProto, helper, numpy_helper
from tuner.engines.onnx import models, sessions
from tuner.engines.protocol.serving import EngineFailure
from tuner.engines.runtime import weights

weights._LEAST_BYTES, weights.LARGE = 0, 1024
folder = Path(sys.argv[1])
generator = np.random.default_rng(0)
matrix = generator.random((64, 32), np.float32) - 0.5
stored = [numpy_helper.from_array(matrix, "w"), numpy_helper.from_array(np.arange(32, dtype=np.float32), "b"),
          numpy_helper.from_array(generator.random((32, 64)).astype(np.float16), "half")]
nodes = [helper.make_node("MatMul", ["x", "w"], ["m"]), helper.make_node("Add", ["m", "b"], ["a"]),
         helper.make_node("Cast", ["half"], ["h"], to=TensorProto.FLOAT), helper.make_node("MatMul", ["a", "h"], ["y"])]
x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 64]) for name in "xy")
graph = helper.make_graph(nodes, "g", [x], [y], stored)
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
path = folder / "model.onnx"
path.write_bytes(model.SerializeToString())
"""

_READ = f"""{_SET_UP}
light = models.read(str(path))
outside = [tensor.name for tensor in light.graph.initializer if weights.is_outside(tensor)]
values = [weights.array(tensor) for tensor in light.graph.initializer]
same = [bool(np.array_equal(found, numpy_helper.to_array(tensor))) for found, tensor in zip(values, stored)]
weights.write(light, folder / "written.onnx")
written = onnx.load_model_from_string((folder / "written.onnx").read_bytes())
onnx.checker.check_model(written)
weights.embed(light)
fed = {{"x": generator.random((2, 64), np.float32)}}
outputs = [sessions.run(sessions.open_session(each, threads=1), fed)["y"]
           for each in (str(path), models.read(str(path)), str(folder / "written.onnx"))]
told = [outside, same, written == model, light == model, [bool(np.array_equal(each, outputs[0])) for each in outputs]]
"""


def test_a_model_is_the_same_with_its_weights_in_the_file(tmp_path: Path) -> None:
    assert inside.run(_READ, tmp_path) == [["w", "half"], [True] * 3, True, True, [True] * 3]


_OPTIMIZED = f"""{_SET_UP}
target = folder / "optimized.onnx"
light = models.read(str(path))
sessions.open_session(light, threads=1, level=sessions.BASIC, optimized=str(target))
found = models.read_optimized(target)
outside = {{tensor.name: weights.place(tensor).path.parent == folder for tensor in found.graph.initializer
           if weights.is_outside(tensor)}}
fed = {{"x": generator.random((2, 64), np.float32)}}
outputs = [sessions.run(sessions.open_session(each, threads=1), fed)["y"] for each in (light, found)]
told = [all(outside.values()), "w" in outside, len(found.graph.node) < len(nodes), bool(np.array_equal(*outputs))]
"""


def test_an_optimized_model_has_its_weights_beside_it(tmp_path: Path) -> None:
    assert inside.run(_OPTIMIZED, tmp_path) == [True] * 4


_BROKEN = f"""{_SET_UP}
content = model.SerializeToString()
brought = onnx.ModelProto()
brought.CopyFrom(model)
tensor = brought.graph.initializer[0]
weights.refer(tensor, weights.Place(path=path, offset=0, size=len(tensor.raw_data)))
both = onnx.ModelProto()
both.CopyFrom(model)
both.graph.initializer[0].external_data.add(key="location", value="etc/passwd")
short = onnx.ModelProto()
short.CopyFrom(model)
short.graph.initializer[0].raw_data = short.graph.initializer[0].raw_data[:-4]
told = []
for each in (content[: len(content) // 2], brought.SerializeToString(), both.SerializeToString(),
             short.SerializeToString()):
    path.write_bytes(each)
    try:
        models.read(str(path))
    except EngineFailure as failure:
        told.append(failure.details["reason"])
# A second message with a graph is merged into the first one.
path.write_bytes(content + onnx.ModelProto(graph=onnx.GraphProto(doc_string="more")).SerializeToString())
merged = models.read(str(path))
told.append([merged.graph.doc_string, len(merged.graph.node), weights.are_outside(merged)])
"""


def test_what_a_file_must_not_bring_is_refused_as_in_small_models(tmp_path: Path) -> None:
    refused = ["not_onnx", "external_data", "external_data", "tensor_size"]
    assert inside.run(_BROKEN, tmp_path) == [*refused, ["more", 4, False]]


_LARGEST = f"""{_SET_UP}
light = models.read(str(path))
weights.MOST_BYTES = path.stat().st_size - 1
try:
    weights.write(light, folder / "written.onnx")
    told = None
except EngineFailure as failure:
    told = [failure.code, failure.details["reason"], (folder / "written.onnx").exists()]
"""


def test_a_model_beyond_the_limit_of_protobuf_is_not_written(tmp_path: Path) -> None:
    assert inside.run(_LARGEST, tmp_path) == ["invalid_model", "too_large", False]


_PERTURBED = f"""{_SET_UP}
from tuner.engines.onnx import arrays
from tuner.engines.onnx.accuracy import perturbing
arrays.save(str(folder / "in.npz"), {{"x": generator.random((2, 64), np.float32)}})
told = []
for least in (0, 2**40):
    weights._LEAST_BYTES = least
    made = folder / str(least)
    paths = perturbing.run(str(path), [str(folder / "in.npz")], [str(made)], threads=1, seconds=60)["paths"]
    told.append([Path(each).read_bytes().hex() for each in paths])
told = [len(told[0]), told[0] == told[1], sorted(each.name for each in folder.iterdir())]
"""


def test_perturbed_runs_do_not_depend_on_where_the_weights_are(tmp_path: Path) -> None:
    count, is_same, left = inside.run(_PERTURBED, tmp_path)
    assert count >= 4
    assert is_same
    assert left == ["0", "1099511627776", "in.npz", "model.onnx"]
