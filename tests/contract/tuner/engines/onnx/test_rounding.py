"""The limits of f32 follow from the reference's own rounding errors, and ties may go both ways."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.tuner.engines import asking
from tests.support.tuner.engines.onnx import inside
from tuner.host.session import EngineSession

pytestmark = pytest.mark.engine

COMPARING = """
import numpy as np
from tuner.engines.onnx.accuracy import comparing
from tuner.engines.onnx.accuracy.perturbing import Run

def compared(expected, actual, *runs, dtype=np.float32):
    made = [np.asarray(each, dtype) for each in (expected, actual, *runs)]
    runs = [Run(ulps=1, outputs={"y": run}) for run in made[2:]]
    return comparing.compare({"y": made[0]}, {"y": made[1]}, runs=runs)[0]

def passed(*arrays, **more):
    return compared(*arrays, **more)["passed"]

generator = np.random.default_rng(0)
smooth = generator.standard_normal((4, 32, 32)).astype(np.float32)
def rounded(size):
    return smooth + size * generator.standard_normal(smooth.shape).astype(np.float32)
"""


def told(program: str) -> Any:
    return inside.run(COMPARING + program)


def test_limits_grow_with_the_references_own_rounding_error() -> None:
    program = """
quiet, noisy = [rounded(1e-7) for _ in range(3)], [rounded(1e-3) for _ in range(3)]
build = rounded(1e-3)
told = [passed(smooth, build), passed(smooth, build, *quiet), passed(smooth, build, *noisy)]
row = compared(smooth, build, *noisy)
told += [row["rtol"] > 5e-4, 2e-4 < row["rounding"] < 2e-3, passed(smooth, rounded(0.2), *noisy)]
"""
    assert told(program) == [False, False, True, True, True, False]


def test_the_limit_told_is_that_of_the_error_told() -> None:
    """Not of a smaller error that comes closer to its limit; unless one is beyond its limit."""
    program = """
rough = np.ones(smooth.shape, bool)
rough[:2] = False
runs = [smooth + np.where(rough, 1e-2, 0) * generator.standard_normal(smooth.shape) for _ in range(4)]
told = []
for small in (0.06, 0.08):
    build = smooth.copy()
    build[0, 0, 0] += small
    build[3, 0, 0] += 0.1
    row = compared(smooth, build, *runs)
    told.append([row["passed"], row["max_rel"] <= row["rtol"]])
"""
    assert told(program) == [[True, True], [False, False]]


def test_a_part_has_a_limit_of_its_own() -> None:
    program = """
small = smooth.copy()
small[2] *= 1e-3
runs = [small * (1 + 1e-7 * generator.standard_normal(small.shape)) for _ in range(3)]
build = small.copy()
build[2] *= 1.01
row = compared(small, build, *runs)
told = [passed(small, build), row["passed"], row["part"], row["max_rel"] < row["rtol"], row["rms"] > row["rms_limit"],
        passed(small, small * np.float32(1 + 1e-6), *runs)]
"""
    assert told(program) == [True, False, "index 2 of axis 0", True, True, True]


def test_a_tie_may_go_either_way_only_where_the_reference_does() -> None:
    program = """
kept = np.where(smooth > 1, smooth, 0)
def without(index):
    changed = kept.copy()
    changed[index] = 0
    return changed
first, second, *_ = [tuple(index) for index in np.argwhere(kept > 1.5)]
runs = [without(first), kept, kept, kept]
row = compared(kept, without(first), *runs)
told = [row["passed"], row["ties"], passed(kept, without(first)), passed(kept, without(second), *runs),
        passed(kept, without(first) * np.float32(1.01), *runs)]
half = kept.copy()
half[first] /= 2
told += [passed(kept, half, *runs), passed(kept, np.where(kept == kept[first], np.nan, kept), *runs)]
"""
    assert told(program) == [True, 1, False, False, False, False, False]


def test_rare_ties_are_as_many_as_in_the_references_runs() -> None:
    program = """
kept = np.where(smooth > 1, smooth, 0)
places = sorted((tuple(index) for index in np.argwhere(kept > 1.5)), key=lambda index: -kept[index])
def without(*indices):
    changed = kept.copy()
    for index in indices:
        changed[index] = 0
    return changed
runs = [without(places[number], places[number + 1]) for number in range(0, 8, 2)]
told = [passed(kept, without(*places[count:9]), *runs) for count in (8, 7, 6)]
told += [passed(kept, without(*places[20:20 + count]), *runs) for count in (1, 2, 3)]
told.append(passed(kept, kept + 9 * (without(places[30]) != kept), *runs))
"""
    assert told(program) == [True, True, True, True, True, False, False]


def test_integers_agree_with_one_of_the_runs() -> None:
    program = """
labels, other = np.arange(64), np.arange(64)
other[7] = 9
build = labels.copy()
build[7] = 8
told = [passed(labels, other, dtype=np.int64), passed(labels, other, other, labels, dtype=np.int64),
        passed(labels, build, other, labels, dtype=np.int64), compared(labels, other, other, dtype=np.int64)["ties"]]
"""
    assert told(program) == [False, True, False, 1]


def test_a_selection_has_the_length_of_one_of_the_runs() -> None:
    program = """
rows, fewer = np.arange(12.0).reshape(6, 2), np.arange(10.0).reshape(5, 2)
told = [passed(rows, fewer), passed(rows, fewer, rows), passed(rows, fewer, fewer, rows),
        passed(rows, fewer + 1, fewer, rows), compared(rows, fewer, rows)["fault"]]
"""
    assert told(program) == [False, False, True, False, "wrong shape: 5×2 instead of 6×2"]


def test_selected_rows_are_a_set_in_any_order_that_ties_explain() -> None:
    program = """
boxes = np.hstack([generator.uniform(0, 640, (18, 4)), np.linspace(0.9, 0.3, 18)[:, None]]).astype(np.float32)
indices = np.stack([np.zeros(18), np.arange(18) % 3, 7 * np.arange(18)], axis=1)
tied = {2, 5, 8, 11, 14, 16}

def build(left_out=(), order=range(18), of=boxes):
    # The last two of the first four are tied: either may come first.
    kept = [row for row in order if row not in left_out]
    rows = of[kept]
    if of is indices:
        return rows
    return (rows * (1 + 1e-7 * generator.standard_normal(rows.shape))).astype(np.float32)

swapped = [0, 1, 3, 2, *range(4, 18)]
chances = [set(generator.permutation(sorted(tied))[:count].tolist()) for count in (1, 2, 3, 4, 5, 2, 3, 4)]
unseen = {5, 11, 16}
assert unseen not in chances

def told_of(of, dtype):
    runs = [build(chance, swapped if place % 2 else range(18), of) for place, chance in enumerate(chances)]
    right, whole = build(unseen, swapped, of), build(of=of)
    other, worse = right.copy(), right.copy()
    other[[4, 5]] = other[[5, 4]]
    worse[3] = worse[3] + (3 if of is indices else [2, 0, 0, 0, 0])
    wrong = [build({*unseen, 7}, swapped, of), np.vstack([right, right[-1:]]), other, worse, right[::-1], right[:-1]]
    def judged(actual, *given):
        return passed(whole, actual, *given, dtype=dtype)
    return [judged(right, *runs), judged(right), *(judged(each, *runs) for each in wrong)]

nothing, something = boxes[:0], boxes[:1]
told = [told_of(boxes, np.float32), told_of(indices, np.int64), passed(nothing, nothing, something)]
"""
    assert told(program) == [[True, *7 * [False]], [True, *7 * [False]], True]


def test_narrow_precisions_and_other_types_keep_their_limits() -> None:
    program = """
def narrow(precision):
    runs = [Run(ulps=1, outputs={"y": rounded(1.0)})]
    found = comparing.compare({"y": smooth}, {"y": rounded(0.5)}, precision=precision, runs=runs)[0]
    return [found["passed"], "rounding" in found]
wide = compared(smooth, rounded(1e-3), rounded(1e-2), dtype=np.float64)
told = [narrow("bf16"), narrow("int8"), wide["passed"], "rounding" in wide]
"""
    assert told(program) == [[False, False], [False, False], False, False]


def test_perturbed_runs_change_by_rounding_and_are_the_same_again(
    reference: EngineSession, prepared: Path, inputs: list[Path], tmp_path: Path
) -> None:
    expected = tmp_path / "expected.npz"
    fed = {"path": str(prepared), "threads": 1}
    reference.request("run", {**fed, "inputs": str(inputs[0]), "outputs": str(expected)}, timeout=60)
    written = []
    for name in ("a", "b"):
        folders = [str(tmp_path / name / str(place)) for place in range(len(inputs))]
        params = {**fed, "inputs": [str(path) for path in inputs], "folders": folders, "seconds": 20}
        written.append(reference.request("run_perturbed", params, timeout=60)["paths"])
    assert [Path(path).name for path in written[0][:: len(inputs)]] == ["00-1.npz", "01-1.npz", "02-1.npz", "03-16.npz"]
    assert [Path(path).read_bytes() for path in written[0]] == [Path(path).read_bytes() for path in written[1]]
    changes = [asking.compare(reference, expected, Path(path))[0]["max_rel"] for path in written[0][:: len(inputs)]]
    assert all(0 < change < 1e-4 for change in changes), changes
    [row] = asking.compare(reference, expected, expected, runs=str(tmp_path / "a" / "0"))
    assert (row["passed"], row["ties"], 0 < row["rounding"] < 1e-5) == (True, 0, True)


QUANTIZED = """
from pathlib import Path
import onnx
from onnx import helper, numpy_helper
from tuner.engines.onnx import preparing, sessions
from tuner.engines.onnx.accuracy import perturbing

LAYERS, WIDTH = 8, 256
generator = np.random.default_rng(0)
x = generator.standard_normal((64, WIDTH)).astype(np.float32)
weights = [generator.integers(-127, 128, (WIDTH, WIDTH)).astype(np.int8) for _ in range(LAYERS)]
weight_scale = np.float32(1.7 / 127 / 16)

def quantized(array, scale):
    return np.clip(np.rint(array / scale), -128, 127) * scale

def run(dtype, scales=None, wrong=False):
    value, own = x.astype(dtype), []
    for layer in range(LAYERS):
        own.append(np.float32(np.abs(value).max() / 127))
        weight = weights[layer].astype(dtype) * dtype(weight_scale)
        if wrong and layer == 3:
            weight = weight.copy()
            weight[:, 5] = weight[:, 6]
        value = np.tanh(quantized(value, dtype((scales or own)[layer])) @ weight)
    return own if scales is None else value.astype(np.float32)

scales = run(np.float64)
nodes, constants, name = [], [], "x"
def constant(name, value):
    constants.append(numpy_helper.from_array(value, name))
    return name
zero = constant("zero", np.int8(0))
for layer in range(LAYERS):
    scale = constant(f"scale{layer}", scales[layer])
    weight = constant(f"weight{layer}", weights[layer])
    nodes += [
        helper.make_node("QuantizeLinear", [name, scale, zero], [f"q{layer}"]),
        helper.make_node("DequantizeLinear", [f"q{layer}", scale, zero], [f"d{layer}"]),
        helper.make_node("DequantizeLinear", [weight, constant(f"s{layer}", weight_scale), zero], [f"w{layer}"]),
        helper.make_node("MatMul", [f"d{layer}", f"w{layer}"], [f"m{layer}"]),
        helper.make_node("Tanh", [f"m{layer}"], [f"t{layer}"]),
    ]
    name = f"t{layer}"
nodes[-1].output[0] = "y"
x_info, y_info = (helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, x.shape) for name in "xy")
graph = helper.make_graph(nodes, "quantized", [x_info], [y_info], constants)
folder = Path(sys.argv[1])
path, inputs = str(folder / "model.onnx"), str(folder / "inputs.npz")
onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
np.savez(inputs, x=x)
if len(sys.argv) > 2:
    # What a job runs has no QuantizeLinear any more.
    answer = preparing.prepare(path, {}, str(folder / "prepared.onnx"))
    assert "Round" in answer["operators"] and "QuantizeLinear" not in answer["operators"], answer
    path = str(folder / "prepared.onnx")
perturbing.run(path, [inputs], [str(folder / "runs")], threads=1, seconds=30)
runs = perturbing.load(folder / "runs")
reference = sessions.run(sessions.open_session(path, threads=1), {"x": x})["y"]

def judged(build, runs):
    return comparing.compare({"y": reference}, {"y": build}, runs=runs)[0]["passed"]

builds = [run(np.float64, scales), run(np.float32, scales), run(np.float32, scales, wrong=True)]
told = [len(runs), *(judged(build, runs) for build in builds)]
"""


def test_steps_of_a_quantized_network_may_be_anywhere() -> None:
    program = """
def stepped(count):
    moved = smooth.copy()
    places = generator.choice(moved.size, count, replace=False)
    moved.reshape(-1)[places] += 0.02 * generator.choice((-1, 1), count).astype(np.float32)
    return moved

runs = [Run(ulps=1, outputs={"y": smooth}), *(Run(ulps=16, outputs={"y": stepped(200)}) for _ in range(3))]
def quantized(build, is_quantized=True):
    return comparing.compare({"y": smooth}, {"y": build}, runs=runs, quantized=is_quantized)[0]["passed"]

few = stepped(20)
row = smooth.copy()
row[1, 5] += 0.02
told = [quantized(few), quantized(few, False), quantized(smooth + np.float32(0.02)), quantized(row),
        quantized(stepped(2000)), quantized(smooth + np.float32(0.03) * (few != smooth))]
"""
    assert told(program) == [True, False, False, False, False, False]


@pytest.mark.parametrize("prepared", [(), ("prepared",)], ids=["as uploaded", "prepared"])
def test_a_quantized_network_may_round_other_integers_where_the_reference_does(
    tmp_path: Path, prepared: tuple[str, ...]
) -> None:
    assert inside.run(COMPARING + QUANTIZED, tmp_path, *prepared) == [16, True, True, False]


SUM = """
from pathlib import Path
import numpy as np
import onnx
from onnx import helper, numpy_helper
from tuner.engines.onnx.accuracy import perturbing

info = lambda name: helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [4, 8])
weights = [numpy_helper.from_array(np.float32(0.03), "scale"), numpy_helper.from_array(np.uint8(120), "zero")]
nodes = []
for number, name in enumerate(("x", "x", "sum")):
    if name == "sum":
        nodes.append(helper.make_node("Add", ["d0", "d1"], ["sum"]))
    nodes.append(helper.make_node("QuantizeLinear", [name, "scale", "zero"], [f"q{number}"]))
    nodes.append(helper.make_node("DequantizeLinear", [f"q{number}", "scale", "zero"], [f"d{number}"]))
graph = helper.make_graph(nodes, "g", [info("x")], [info("d2")], weights)
folder = Path(sys.argv[1])
onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), folder / "model.onnx")
np.savez(folder / "inputs.npz", x=np.random.default_rng(0).standard_normal((4, 8)).astype(np.float32))
inputs, runs = [str(folder / "inputs.npz")], [str(folder / "runs")]
told = len(perturbing.run(str(folder / "model.onnx"), inputs, runs, threads=1, seconds=30)["paths"])
"""


def test_moved_scales_stay_scalars_which_quantized_sums_need(tmp_path: Path) -> None:
    assert inside.run(SUM, tmp_path) == 16


def test_no_run_starts_that_may_end_too_late(
    reference: EngineSession, prepared: Path, inputs: list[Path], tmp_path: Path
) -> None:
    params = {"path": str(prepared), "inputs": [str(inputs[0])], "folders": [str(tmp_path / "runs")], "threads": 1}
    paths = reference.request("run_perturbed", {**params, "seconds": 0}, timeout=60)["paths"]
    assert len(paths) <= 1


def test_models_that_select_are_run_more_often_and_bounds_stay() -> None:
    program = """
from tuner.engines.onnx.accuracy import perturbing
from bench.planted_networks import lines, top_k, transformer
told = [perturbing.selects(make().graph) for make in (lines, top_k, transformer)]
values = np.float32([0, 1, 255, 0.5, np.inf])
told.append((perturbing.change(values, 1, generator) != values).tolist())
told.append(perturbing.change(np.arange(3), 1, generator).tolist())
"""
    assert told(program) == [True, True, False, [False, False, False, True, False], [0, 1, 2]]


def test_planted_faults_are_caught_and_right_builds_accepted() -> None:
    report = json.loads(asking.inside("onnx", "from bench import planted_suite; planted_suite.main()"))
    assert (report["wrong"], report["not_caught"]) == (50, [])
    assert (report["right"], report["not_accepted"]) == (75, [])
