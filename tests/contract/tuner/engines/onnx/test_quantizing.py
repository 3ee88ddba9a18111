from __future__ import annotations

from pathlib import Path

import pytest

from domain import errors
from tests.support import models
from tests.support.tuner.engines import asking
from tests.support.tuner.engines.onnx import inside
from tuner.host.session import EngineSession

pytestmark = pytest.mark.engine


def test_products_with_constant_weights_are_quantized(
    reference: EngineSession, prepared: Path, inputs: list[Path], tmp_path: Path
) -> None:
    made = asking.quantize(reference, prepared, inputs, tmp_path / "q.onnx")
    assert made.pop("share") <= 0.7
    assert made == {"quantized": {"Conv": 2, "Gemm": 1}, "kept": [], "ranges": "minmax"}
    program = """
import numpy as np, onnx
model = onnx.load(sys.argv[1])
onnx.checker.check_model(model)
tensors = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
makers = {node.output[0]: node for node in model.graph.node}
told = []
for node in model.graph.node:
    if node.op_type == "Conv":
        data, kernel = makers[node.input[0]], makers[node.input[1]]
        told.append([data.op_type, str(tensors[data.input[2]].dtype), str(tensors[kernel.input[0]].dtype),
                     len(tensors[kernel.input[1]]), len(tensors[kernel.input[0]]),
                     bool((tensors[kernel.input[2]] == 0).all())])
told = {"convs": told, "domains": sorted({entry.domain for entry in model.opset_import}),
        "inputs": [value.name for value in model.graph.input]}
"""
    told = inside.run(program, tmp_path / "q.onnx")
    assert told["convs"] == [
        ["DequantizeLinear", "uint8", "int8", channels, channels, True] for channels in (8, 16)
    ]  # a scale for each output channel, and zero points of zero
    assert told["inputs"] == ["image"]
    assert told["domains"] == [""]


def test_the_quantized_network_is_near_the_network(
    reference: EngineSession, prepared: Path, inputs: list[Path], tmp_path: Path
) -> None:
    asking.quantize(reference, prepared, inputs[:2], tmp_path / "q.onnx")
    run = {"path": str(tmp_path / "q.onnx"), "inputs": str(inputs[2]), "outputs": str(tmp_path / "a.npz"), "threads": 1}
    reference.request("run", run, timeout=60)
    more = {"precision": "int8", "model": str(prepared)}
    [output] = asking.compare_with_model(reference, prepared, inputs[2], tmp_path / "a.npz", **more)
    assert output["passed"]
    assert (output["rows"], output["agreed"]) == (1, 1)
    assert 1e-5 < output["max_rel"] < 0.1


def test_values_are_rounded_once_where_products_take_them(
    reference: EngineSession, prepared: Path, inputs: list[Path], tmp_path: Path
) -> None:
    asking.quantize(reference, prepared, inputs, tmp_path / "q.onnx")
    program = """
import onnx
graph = onnx.load(sys.argv[1]).graph
makers = {name: node for node in graph.node for name in node.output}
readers = [node for node in graph.node if node.op_type == "QuantizeLinear"]
told = [makers[node.input[0]].op_type if node.input[0] in makers else "input" for node in readers]
"""
    # No product's result is rounded as such, nor is the model's output.
    assert inside.run(program, tmp_path / "q.onnx") == ["input", "MaxPool", "Flatten"]


def test_the_layer_that_hurts_stays_in_float32(
    reference: EngineSession, outlying: tuple[Path, list[Path]], tmp_path: Path
) -> None:
    path, given = outlying
    made = asking.quantize(reference, path, given, tmp_path / "q.onnx")
    assert (made["quantized"], made["kept"]) == ({"MatMul": 3}, ["MatMul_c"])
    assert made["share"] <= 0.7


def test_no_layer_stays_where_the_gate_is_wide(
    reference: EngineSession, outlying: tuple[Path, list[Path]], tmp_path: Path
) -> None:
    path, given = outlying
    made = asking.quantize(reference, path, given, tmp_path / "q.onnx", max_rel=10.0)
    assert (made["quantized"], made["kept"], made["ranges"]) == ({"MatMul": 4}, [], "minmax")


def test_layers_are_not_ordered_beyond_the_time_limit(
    reference: EngineSession, outlying: tuple[Path, list[Path]], tmp_path: Path
) -> None:
    path, given = outlying
    made = asking.quantize(reference, path, given, tmp_path / "q.onnx", seconds=0)
    assert made["kept"] != ["MatMul_c"]
    assert (tmp_path / "q.onnx").is_file()


def test_ranges_of_outliers_are_cut_by_percentile_and_entropy(prepared: Path, tmp_path: Path) -> None:
    program = """
import numpy as np, onnx
from pathlib import Path
from tuner.engines.onnx import arrays
from tuner.engines.onnx.precisions import calibrating
random = np.random.default_rng(0)
paths = []
for number in range(3):
    image = random.standard_normal((1, 3, 16, 16)).astype("float32")
    image[0, 0, 0, 0] = 40 if number == 1 else image[0, 0, 0, 0]
    paths.append(str(Path(sys.argv[2]) / f"{number}.npz"))
    arrays.save(paths[-1], {"image": image})
found = calibrating.Calibration(onnx.load(sys.argv[1]), ["image"], paths, 1)
told = {method: list(map(float, found.ranges(method)["image"])) for method in calibrating.METHODS}
"""
    told = inside.run(program, prepared, tmp_path)
    low, high = told["minmax"]
    assert (-5 < low < -3, high) == (True, 40.0)
    assert told["percentile"] == told["minmax"]  # one value of 2,304 is more than it leaves out
    low, high = told["entropy"]
    assert -5 < low < -2
    assert 2 < high < 6


def test_the_least_squared_error_cuts_off_few_values_and_no_more() -> None:
    program = """
import numpy as np
from tuner.engines.onnx.precisions import calibrating
told = []
for outliers in (1, 100):
    counts = np.zeros(calibrating._BINS)
    counts[: calibrating._BINS // 2], counts[-1] = 1000, outliers
    told.append(list(map(float, calibrating._least_squares(counts, np.float32(0), np.float32(1)))))
"""
    (low, cut), (_, whole) = inside.run(program)
    assert (low, whole) == (0, 1)
    assert 0.4 < cut < 0.7


def test_layers_that_lose_much_for_their_cost_stay_in_float32_first() -> None:
    program = """
from tuner.engines.onnx.precisions import sensitivity
costs = {"dear": 10.0, "huge": 100.0, "cheap": 1.0}
told = sensitivity._candidates(costs, {"dear": 0.2, "huge": 0.9, "cheap": 0.1})
"""
    # The second in this order has more of the multiplications than may stay.
    assert inside.run(program) == ["cheap", "dear"]


def test_ranges_are_the_same_however_few_tensors_a_run_returns(prepared: Path, inputs: list[Path]) -> None:
    program = """
import onnx
from tuner.engines.onnx.precisions import calibrating
model, paths = onnx.load(sys.argv[1]), sys.argv[2:]
names = ["image", *(name for node in model.graph.node for name in node.output if node.op_type != "Gemm")]
told = []
for first, most in ((8, 2**28), (1, 1), (2, 5000)):
    calibrating._FIRST, calibrating._MOST_BYTES = first, most
    calibration = calibrating.Calibration(model, names, paths, 1)
    ranges = [calibration.ranges(method) for method in calibrating.METHODS]
    told.append([[sorted(name for name in each), [list(map(float, each[name])) for name in names]] for each in ranges])
"""
    whole, *parts = inside.run(program, prepared, *inputs)
    assert len(whole[0][0]) > 4
    assert parts == [whole, whole]


def test_a_network_without_products_is_refused(reference: EngineSession, tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(models.unsupported_operators())
    with pytest.raises(errors.EngineRequestFailed, match="no convolution without groups") as caught:
        asking.quantize(reference, tmp_path / "m.onnx", [], tmp_path / "q.onnx")
    assert caught.value.engine_code == "unsupported_dtype"
    assert caught.value.hint
