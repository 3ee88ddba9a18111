"""Builds in bf16 and int8: which products are narrow, what they compute, and which targets are refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import models
from tests.support.tuner.engines import asking
from tests.support.tuner.engines.fixtures import workload
from tests.support.tuner.engines.relax import networks
from tuner.host import hardware
from tuner.host.session import EngineSession

pytestmark = pytest.mark.engine

INSTRUCTIONS = {"bf16": "vdpbf16ps", "int8": "vpdpbusd"}
FEATURES = {"bf16": "avx512bf16", "int8": "avx512vnni"}


def needing(precision: str, *arguments: Any) -> Any:
    """A parameter set for processors that have the instruction."""
    missing = FEATURES[precision] not in hardware.device().key
    mark = pytest.mark.skipif(missing, reason=f"this processor has no {FEATURES[precision]}")
    return pytest.param(precision, *arguments, marks=mark)


PRECISIONS = [needing(precision) for precision in INSTRUCTIONS]
NARROW = """
import json, sys
from tuner.engines.relax import compiling, importing, schedules
from tuner.engines.relax.graph import lowering
importing.install()
path, target, precision, instruction = sys.argv[1:]
build = lowering.Lowering.of({"model": path, "target": target, "threads": 1, "precision": precision})
module = lowering.lower(importing.load(path), build)
names = [variable.name_hint for variable, _ in module.functions_items()]
kinds = {kind: sum(kind in name for name in names) for kind in ("narrow_conv2d", "narrow_matmul")}
finished = lowering.finish(schedules.apply(module, build.target), build.target)
executable = compiling._build(finished, build.target, "shared", compiling._Memory())
asm = "".join(each.inspect_source("asm") for each in executable.mod.imports)
called = [asm.count(f"tunesmith_{name}_") for name in ("product", "byte_product")]
print(json.dumps([kinds, asm.count(instruction), sum(called), asm.count("prefetcht")]))
"""
WIDTHS = """
import json, sys
import numpy as np
import tvm
from tvm import s_tir, te
from tuner.engines.relax import kernels, targets
from tuner.engines.relax.graph import narrowing
from tuner.engines.relax.graph.products import matrix_product
from tuner.engines.runtime.targets import native_cpu
numbers = narrowing.NUMBERS[sys.argv[1]]
target = targets.resolve(f"llvm -mcpu={native_cpu(tvm)}", 1)
random = np.random.default_rng(0)
depth = 3 * numbers.group
told = {}
for lanes in (1, 2, 3, 4, 6, 8, 16, 32, 64):
    shapes = (5, depth), (depth, lanes)
    if numbers.group == 2:
        left, right = (random.uniform(-1, 1, shape).astype("float32").view("uint32") >> 16 for shape in shapes)
        values = [(each << 16).view("float32") for each in (left, right)]
    else:
        left, right = random.integers(0, 256, shapes[0], "uint8"), random.integers(-128, 128, shapes[1], "int8")
        values = [each.astype("int32") for each in (left, right)]
        right = right.view("uint8").astype("uint32")
    bits = 32 // numbers.group
    packed = sum(right[place :: numbers.group] << bits * place for place in range(numbers.group))
    data, weights = te.placeholder((5, depth), numbers.stored), te.placeholder((3, lanes), "uint32")
    schedule = s_tir.Schedule(te.create_prim_func([data, weights, matrix_product(numbers, data, weights)]))
    row, column, group = schedule.get_loops(schedule.get_sblock("products"))
    schedule.reorder(row, group, column)
    schedule.vectorize(column)
    with target:
        library = tvm.tirx.build(kernels.finish(schedule.mod, target), target=target)
    found = tvm.runtime.tensor(np.zeros((5, lanes), numbers.sums))
    library["main"](*map(tvm.runtime.tensor, (left.astype(numbers.stored), packed.astype("uint32"))), found)
    told[lanes] = float(abs(found.numpy() - values[0] @ values[1]).max())
print(json.dumps(told))
"""
GROUPED = """
import json, sys
from tuner.engines.relax import importing
from tuner.engines.relax.graph import lowering
importing.install()
told = []
for precision in ("f32", "bf16"):
    build = lowering.Lowering.of(
        {"model": sys.argv[1], "target": sys.argv[2], "threads": 1, "precision": precision, "rewrite": True}
    )
    found = [
        [int(size) for size in function.params[1].shape]
        for name, function in lowering.lower(importing.load(sys.argv[1]), build).functions_items()
        if "filtered" in name.name_hint
    ]
    told.append(found)
print(json.dumps(told))
"""
READ = """
import json, sys
from tuner.engines.relax import importing
from tuner.engines.relax.graph import lowering
importing.install()
build = lowering.Lowering.of({"model": sys.argv[1], "target": sys.argv[2], "threads": 1, "rewrite": True})
module = lowering.lower(importing.load(sys.argv[1]), build)
functions = {name.name_hint: each for name, each in module.functions_items() if "conv2d" in name.name_hint}
print(json.dumps({name: str(each.params[0].dtype) for name, each in functions.items()}))
"""
ROUNDED = """
import json, sys
from tuner.engines.relax import compiling, importing, schedules
from tuner.engines.relax.graph import lowering
importing.install()
build = lowering.Lowering.of({"model": sys.argv[1], "target": sys.argv[2], "threads": 1})
scheduled = schedules.apply(lowering.lower(importing.load(sys.argv[1]), build), build.target)
executable = compiling._build(lowering.finish(scheduled, build.target), build.target, "shared", compiling._Memory())
lines = "".join(each.inspect_source("asm") for each in executable.mod.imports).splitlines()
print(json.dumps([line for line in lines if "vrndscale" in line or "vround" in line]))
"""
TARGET = "llvm -mcpu=znver4"


def test_products_that_fit_are_narrow_and_use_the_instruction(reference: EngineSession, tmp_path: Path) -> None:
    """Also where this processor has none."""
    model = tmp_path / "model.onnx"
    model.write_bytes(networks.narrow_products())
    kinds, instructions, calls, _ = asking.told_inside("relax", NARROW, model, TARGET, "bf16", "vdpbf16ps")
    assert kinds == {"narrow_conv2d": 4, "narrow_matmul": 3}
    assert instructions > 100
    assert calls == 0
    # The product of two tensors stays in float32. Two of constants are one function: preparing removes the mark.
    _, quantized = _quantized(reference, networks.narrow_products(), tmp_path)
    kinds, instructions, calls, _ = asking.told_inside("relax", NARROW, quantized, TARGET, "int8", "vpdpbusd")
    assert kinds == {"narrow_conv2d": 4, "narrow_matmul": 2}
    assert instructions > 50
    assert calls == 0


def test_layers_that_the_onnx_engine_marks_stay_in_float32(reference: EngineSession, tmp_path: Path) -> None:
    path, marked = tmp_path / "model.onnx", tmp_path / "marked.onnx"
    path.write_bytes(models.outlying_network())
    given = [asking.make_inputs(reference, [{"name": "x", "dtype": "float32", "shape": [4, 16]}], tmp_path)]
    whole = asking.narrow(reference, path, given, marked, max_rel=10.0)["share"] * 10
    kept = asking.narrow(reference, path, given, marked, max_rel=whole)["kept"]
    assert 0 < len(kept) < 4
    kinds = [asking.told_inside("relax", NARROW, each, TARGET, "bf16", "vdpbf16ps")[0] for each in (path, marked)]
    assert [each["narrow_matmul"] for each in kinds] == [4, 4 - len(kept)]


def test_large_weights_of_narrow_products_are_prefetched(tmp_path: Path) -> None:
    model = tmp_path / "model.onnx"
    model.write_bytes(networks.dense(rows=16, inner=512, columns=1536))
    for cpu, is_prefetched in (("znver4", False), ("znver5", True)):
        _, instructions, _, prefetches = asking.told_inside(
            "relax", NARROW, model, f"llvm -mcpu={cpu}", "bf16", "vdpbf16ps"
        )
        assert (instructions > 0, prefetches > 0) == (True, is_prefetched)


def test_grouped_convolutions_are_filtered_as_in_float32(reference: EngineSession, tmp_path: Path) -> None:
    model, _ = asking.prepare(reference, networks.filterable_groups(), tmp_path)
    wide, narrow = asking.told_inside("relax", GROUPED, model, TARGET)
    assert wide == narrow != []


@pytest.mark.parametrize("precision", PRECISIONS)
def test_vectors_of_every_width_are_multiplied(precision: str) -> None:
    """Searches also propose vectors for which there is no instruction."""
    assert max(asking.told_inside("relax", WIDTHS, precision).values()) < 1e-6


@pytest.mark.parametrize(("precision", "threads"), [needing("bf16", 1), needing("bf16", 2)])
def test_products_are_those_of_rounded_operands(
    relax: EngineSession, reference: EngineSession, place: dict[str, Any], tmp_path: Path, precision: str, threads: int
) -> None:
    """With and without records, rewritten and not; what is marked or grouped is as precise as float32.

    Rewriting fills vectors with zero columns, so that more products are narrow.
    """
    specs = asking.prepare(reference, networks.narrow_products(), tmp_path)[1]
    # Preparing removes conversions that change nothing, and so the mark.
    model, rounded = tmp_path / "model.onnx", tmp_path / "rounded.onnx"
    rounded.write_bytes(networks.narrow_products(is_rounded=True))
    inputs = asking.make_inputs(reference, specs, tmp_path)
    own = {**place, "model": str(model), "threads": threads, "precision": precision, "rewrite": False}
    for more, bundle in _built(relax, own, tmp_path):
        actual = asking.run(relax, bundle, inputs, tmp_path / "actual.npz")
        compared = asking.compare_with_model(reference, rounded, inputs, actual)
        errors = {each["output"]: each["max_rel"] for each in compared}
        assert len(errors) == 9
        assert errors.pop("thin") < (2e-2 if "rewrite" in more else 2e-6)
        assert max(errors.values()) < 2e-6, errors


@pytest.mark.parametrize(("precision", "threads"), [needing("int8", 1), needing("int8", 2)])
def test_quantized_models_compute_what_onnx_runtime_computes(
    relax: EngineSession,
    reference: EngineSession,
    place: dict[str, Any],
    tmp_path: Path,
    precision: str,
    threads: int,
) -> None:
    """With and without records, rewritten and not, with zero points at the borders of images."""
    specs, model = _quantized(reference, networks.narrow_products(), tmp_path)
    inputs = asking.make_inputs(reference, specs, tmp_path)
    own = {**place, "model": str(model), "threads": threads, "precision": precision, "rewrite": False}
    for _, bundle in _built(relax, own, tmp_path):
        actual = asking.run(relax, bundle, inputs, tmp_path / "actual.npz")
        errors = [each["max_rel"] for each in asking.compare_with_model(reference, model, inputs, actual)]
        assert len(errors) == 9
        assert max(errors) < 2e-6, errors


@pytest.mark.parametrize("precision", [needing("int8")])
def test_quantized_models_compute_in_bytes_where_they_may_be_rewritten(
    relax: EngineSession, reference: EngineSession, place: dict[str, Any], tmp_path: Path, precision: str
) -> None:
    """Nothing is narrowed that the model itself does not narrow."""
    specs = asking.prepare(reference, networks.signed_bytes(), tmp_path)[1]
    # Preparing would replace some of these operators.
    model, inputs = tmp_path / "model.onnx", asking.make_inputs(reference, specs, tmp_path)
    names = []
    for number, more in enumerate(({"rewrite": False}, {}, {"precision": precision}, {"rewrite": False})):
        own = {**place, "model": str(model), "rewrite": True, "precision": "f32", "records": None, **more}
        tasks = relax.request("extract", {**own, "out_dir": str(tmp_path)}, timeout=120)["tasks"]
        names.append([task["name"] for task in tasks])
        assert sum("narrow" in name for name in names[-1]) == (0 if "rewrite" in more else 2), names
        bundle = tmp_path / f"bundle-{number}"
        relax.request("compile", {**own, "out_dir": str(bundle)}, timeout=120)
        actual = asking.run(relax, bundle, inputs, tmp_path / f"{number}.npz")
        [output] = asking.compare_with_model(reference, model, inputs, actual)
        assert output["max_rel"] < 1e-5
    assert names[0] == names[3], "builds do not change what others import"


@pytest.mark.parametrize("is_replaced", [False, True])
def test_depthwise_convolutions_read_bytes(reference: EngineSession, tmp_path: Path, is_replaced: bool) -> None:
    """In both forms of quantized models: that of users, and that which preparing replaces."""
    network = networks.quantized_operators(is_signed=True) if is_replaced else networks.signed_bytes()
    model = tmp_path / "uploaded.onnx"
    model.write_bytes(network)
    prepared = asking.prepare(reference, network, tmp_path)[0] if is_replaced else model
    read = asking.told_inside("relax", READ, prepared, TARGET)
    assert [dtype for name, dtype in read.items() if "narrow" not in name] == ["uint8"], read


def test_rounding_has_whole_vectors(tmp_path: Path) -> None:
    model = tmp_path / "model.onnx"
    model.write_bytes(networks.rounding())
    lines = asking.told_inside("relax", ROUNDED, model, TARGET)
    assert lines
    assert all("%zmm" in line for line in lines), lines


@pytest.mark.parametrize(("precision", "is_signed"), [needing("int8", True), needing("int8", False)])
def test_operators_of_bytes_compute_in_bytes_where_they_may_be_rewritten(
    relax: EngineSession,
    reference: EngineSession,
    place: dict[str, Any],
    tmp_path: Path,
    precision: str,
    is_signed: bool,
) -> None:
    """Preparing replaces them by float32 ones of the same integers, without conversions to bytes between them."""
    network = networks.quantized_operators(is_signed=is_signed)
    model, specs = asking.prepare(reference, network, tmp_path)
    inputs = asking.make_inputs(reference, specs, tmp_path)
    for rewrite, more in ((True, {}), (True, {"precision": precision}), (False, {})):
        own = {**place, "model": str(model), "precision": "f32", "rewrite": rewrite, "records": None, **more}
        tasks = relax.request("extract", {**own, "out_dir": str(tmp_path)}, timeout=120)["tasks"]
        assert sum("narrow" in task["name"] for task in tasks) == (2 if rewrite else 0)
        bundle = tmp_path / f"bundle-{rewrite}-{own['precision']}"
        relax.request("compile", {**own, "out_dir": str(bundle)}, timeout=120)
        actual = asking.run(relax, bundle, inputs, tmp_path / "actual.npz")
        [output] = asking.compare_with_model(reference, tmp_path / "model.onnx", inputs, actual)
        assert output["max_rel"] < 1e-6


UNUSUAL = """
import json, sys
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from tuner.engines.relax import importing
from tuner.engines.relax.graph import lowering
importing.install()
SCALE = np.float32(0.5)


def network(nodes, tensors, shape, result, kind=TensorProto.FLOAT):
    inputs = [helper.make_tensor_value_info("x", kind, shape)]
    outputs = [helper.make_tensor_value_info("y", kind, result)]
    graph = helper.make_graph(nodes, "g", inputs, outputs, [numpy_helper.from_array(v, n) for n, v in tensors.items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)


def read(name, result, zero="z", scale="s", **how):
    return helper.make_node("DequantizeLinear", [name, scale, zero], [result], **how)


def rounded(dtype="float32"):
    values = {"s": SCALE.astype(dtype), "z": np.uint8(3), "w0": np.int8(0)}
    return [helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]), read("q", "d")], values


def product(weights, scales, shape, result, dtype="float32", **how):
    nodes, tensors = rounded(dtype)
    tensors |= {"w": weights, "ws": scales.astype(dtype), "wz": np.zeros(scales.shape, weights.dtype)}
    nodes += [read("w", "wd", "wz", "ws", **how), helper.make_node("MatMul", ["d", "wd"], ["y"])]
    return network(nodes, tensors, shape, result, TensorProto.FLOAT16 if dtype == "float16" else TensorProto.FLOAT)


bytes_ = np.arange(64, dtype=np.int8).reshape(8, 8)
branch = lambda name: helper.make_graph(
    [helper.make_node("Mul", ["d", "s"], [name])], name, [], [helper.make_tensor_value_info(name, 1, [4, 8])]
)
nodes, tensors = rounded()
nodes += [helper.make_node("ReduceMax", ["d"], ["most"], keepdims=0), helper.make_node("Greater", ["most", "s"], ["c"])]
nodes.append(helper.make_node("If", ["c"], ["y"], then_branch=branch("a"), else_branch=branch("b")))
models = {
    "vector": product(bytes_[0], np.ones(8, "float32"), [8, 8], [8], axis=0),
    "scales of the depth": product(bytes_, np.ones(8, "float32"), [4, 8], [4, 8], axis=0),
    "scales of columns": product(bytes_, np.ones(8, "float32"), [4, 8], [4, 8], axis=1),
    "float16": product(bytes_, np.ones(8, "float32"), [4, 8], [4, 8], "float16", axis=1),
    "branches": network(nodes, tensors, [4, 8], [4, 8]),
}
told = {}
for name, model in models.items():
    path = f"{sys.argv[1]}/{name}.onnx"
    onnx.save(model, path)
    build = lowering.Lowering.of({"model": path, "target": sys.argv[2], "threads": 1, "rewrite": True})
    found = lowering.lower(importing.load(path), build).functions_items()
    told[name] = sum("narrow" in variable.name_hint for variable, _ in found)
print(json.dumps(told))
"""


def test_unusual_quantized_models_are_built_as_they_are(tmp_path: Path) -> None:
    told = asking.told_inside("relax", UNUSUAL, tmp_path, TARGET)
    assert told == {"vector": 0, "scales of the depth": 0, "scales of columns": 1, "float16": 0, "branches": 0}


def test_functions_that_differ_in_scales_are_one_task(
    relax: EngineSession, reference: EngineSession, place: dict[str, Any], tmp_path: Path
) -> None:
    _, model = _quantized(reference, networks.stacked_convolutions(), tmp_path)
    own = {**place, "target": TARGET, "model": str(model), "precision": "int8", "out_dir": str(tmp_path)}
    tasks = relax.request("extract", own, timeout=120)["tasks"]
    # The last one does not round its result.
    assert sorted(task["weight"] for task in tasks if "narrow_conv2d" in task["name"]) == [1, 2]


@pytest.mark.parametrize("precision", [needing("int8")])
def test_products_of_bytes_are_chained_with_depthwise_convolutions_in_float32(
    relax: EngineSession, reference: EngineSession, place: dict[str, Any], tmp_path: Path, precision: str
) -> None:
    specs, model = _quantized(reference, networks.bottlenecks(), tmp_path)
    inputs = asking.make_inputs(reference, specs, tmp_path)
    own = {**place, "model": str(model), "precision": precision, "rewrite": True}
    tasks = relax.request("extract", {**own, "out_dir": str(tmp_path)}, timeout=120)["tasks"]
    chained = [task for task in tasks if task["name"].startswith("chained_narrow")]
    assert len(chained) == 5
    _, trials = asking.tune(relax, workload(own, chained[0], tmp_path), tmp_path / "spool.jsonl", trials=64)
    assert all(trial["error"] is None for trial in trials), trials
    records = asking.write_lines(tmp_path / "records.jsonl", [trials[-1]["schedule"]])
    for known in (None, records):
        bundle = tmp_path / f"bundle-{known is None}"
        answer = relax.request("compile", {**own, "records": known, "out_dir": str(bundle)}, timeout=120)
        assert len(answer["records"]) == (known is not None)
        actual = asking.run(relax, bundle, inputs, tmp_path / "actual.npz")
        errors = [each["max_rel"] for each in asking.compare_with_model(reference, model, inputs, actual)]
        # Cheaper exponentials round some numbers the other way, by one step.
        assert max(errors) < 2e-2


def _built(relax: EngineSession, own: dict[str, Any], folder: Path) -> Iterator[tuple[dict[str, Any], Path]]:
    """Bundles without and with records, and rewritten, each with what was asked for."""
    lines = asking.trial_lines(relax, own, folder, trials=4)
    records = asking.write_lines(folder / "records.jsonl", lines)
    for number, more in enumerate(({}, {"records": records}, {"rewrite": True})):
        bundle = folder / f"bundle-{number}"
        answer = relax.request("compile", {**own, "records": None, "out_dir": str(bundle), **more}, timeout=120)
        assert bool(answer["records"]) == ("records" in more)
        yield more, bundle


def _quantized(reference: EngineSession, network: bytes, folder: Path) -> tuple[list[dict[str, Any]], Path]:
    """Specifications of a network's inputs, and its quantized model."""
    model, specs = asking.prepare(reference, network, folder)
    given = [asking.make_inputs(reference, specs, folder / str(seed), seed=seed) for seed in (1, 2)]
    asking.quantize(reference, model, given, folder / "quantized.onnx")
    return specs, folder / "quantized.onnx"


def test_work_of_narrow_products_is_counted_like_that_of_others(
    relax: EngineSession, reference: EngineSession, place: dict[str, Any], tmp_path: Path
) -> None:
    network = networks.dense(rows=16, inner=64, columns=192)
    model, _ = asking.prepare(reference, network, tmp_path)
    _, quantized = _quantized(reference, network, tmp_path)
    found = []
    for precision, path in (("f32", model), ("bf16", model), ("int8", quantized)):
        own = {**place, "target": TARGET, "model": str(path), "precision": precision, "out_dir": str(tmp_path)}
        tasks = relax.request("extract", own, timeout=120)["tasks"]
        found.append(max(task["flop"] for task in tasks))
    assert found[0] == found[1]
    # The scales are multiplied, too.
    assert found[0] < found[2] < 1.1 * found[0]


def test_targets_without_the_instruction_are_refused(
    relax: EngineSession, reference: EngineSession, tmp_path: Path
) -> None:
    model, _ = asking.prepare(reference, networks.dense(), tmp_path)
    params = {"model": str(model), "threads": 1, "out_dir": str(tmp_path), "precision": "bf16", "records": None}
    refused = asking.refusal(relax, "compile", {**params, "target": "llvm -mcpu=haswell"})
    assert (refused.engine_code, "lacks instructions" in refused.message) == ("unsupported_dtype", True)
    assert "znver4" in str(refused.hint)
    for target, offered in (("llvm -mcpu=haswell", ["f32"]), (TARGET, ["f32", "bf16", "int8"])):
        answer = relax.request("check", {"model": str(model), "target": target, "threads": 1}, timeout=60)
        assert answer["precisions"] == offered
    refused = asking.refusal(relax, "compile", {**params, "target": TARGET, "precision": "int8"})
    assert (refused.engine_code, "needs a quantized model" in refused.message) == ("unsupported_dtype", True)
