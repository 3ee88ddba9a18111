"""Products of bfloat16 numbers: what they compute, who gets them, and who is told that there are none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.contract.tuner.engines.relay.test_searching import inside_all
from tests.support import models
from tests.support.tuner.engines import asking
from tuner.host import hardware
from tuner.host.session import EngineSession

pytestmark = pytest.mark.engine

has_instructions = pytest.mark.skipif(
    "avx512bf16" not in hardware.device().key, reason="this processor has no AVX512-BF16"
)
OPERATORS = """
import numpy as np
from tuner.engines.relay import corrections
from tuner.engines.relay.templates import bf16_narrowing, installing
from tvm import relay
from tvm.contrib import graph_executor
corrections.install()
installing.install()
RANDOM = np.random.default_rng(0)
TARGET = targets.resolve(f"llvm -mcpu={native_cpu(tvm)}", 1)

def constant(*shape):
    return relay.const(RANDOM.uniform(-1, 1, shape).astype("float32"))

def convolved(data, channels, filters, size, **how):
    kernel = constant(filters, channels, *size)
    product = relay.nn.conv2d(data, kernel, channels=filters, kernel_size=size, **how)
    return relay.nn.relu(relay.nn.bias_add(product, constant(filters)))

image, rows = relay.var("image", shape=(1, 3, 14, 13)), relay.var("rows", shape=(6, 34))
stacked = relay.reshape(relay.concatenate([rows] * 4, 0), (3, 8, 34))
first = convolved(image, 3, 32, (3, 3), padding=(1, 1))
pooled = relay.nn.max_pool2d(first, (2, 2), strides=(2, 2))
outputs = {
    "odd channels": first,
    "1x1": convolved(first, 32, 40, (1, 1)),
    "strided, padded on two sides": convolved(pooled, 32, 24, (3, 3), strides=(2, 2), padding=(0, 1, 2, 0)),
    "dilated": convolved(pooled, 32, 48, (3, 2), padding=(2, 1), dilation=(2, 2)),
    "concatenated": convolved(relay.concatenate([pooled, convolved(pooled, 32, 8, (1, 1))], 1), 40, 8, (1, 1)),
    "added to what a product takes": relay.add(first, convolved(first, 32, 32, (3, 3), padding=(1, 1))),
    "dense": relay.nn.bias_add(relay.nn.dense(rows, constant(24, 34)), constant(24)),
    "matrices, one by another": relay.nn.batch_matmul(stacked, relay.tile(stacked, (1, 3, 1))),
    "one row": relay.nn.dense(relay.nn.batch_flatten(pooled), constant(80, 32 * 7 * 6)),
    "marked to stay": relay.nn.dense(relay.cast(rows, "float32"), constant(24, 34)),
    "marked and reshaped": relay.nn.dense(relay.reshape(relay.cast(stacked, "float32"), (24, 34)), constant(24, 34)),
    "other dense": relay.nn.dense(rows, constant(7, 34)),
}
body = relay.Tuple(list(outputs.values()))
plain = relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function([image, rows], body)))
taken = {"image": (1, 3, 14, 13), "rows": (6, 34)}
values = {name: RANDOM.uniform(-1, 1, shape).astype("float32") for name, shape in taken.items()}

def run(module):
    with tvm.transform.PassContext(opt_level=3):
        library = relay.build(module, target=TARGET)
    executor = graph_executor.GraphModule(library["default"](tvm.cpu()))
    executor.run(**values)
    found = [executor.get_output(place).numpy() for place in range(len(outputs))]
    return found, library.get_lib().get_source("asm").count("vdpbf16ps")

expected, none = run(plain)
actual, some = run(bf16_narrowing.narrow(plain))
apart = {
    name: float(abs(wanted - found).max() / abs(wanted).max())
    for name, wanted, found in zip(outputs, expected, actual)
}
print(json.dumps({"apart": apart, "instructions": [none, some]}))
"""
SCHEDULES = """
from tuner.engines.relay import comparing
from tvm.autotvm.measure import MeasureInput, MeasureResult
comparing.set_up()
PLACE = f"llvm -mcpu={native_cpu(tvm)}"
TARGET = targets.resolve(PLACE, 1)

def tensors(*shapes):
    return tuple(("TENSOR", shape, "bfloat16") for shape in shapes)

told = []
for name, arguments in (
    (
        "conv2d_NCHWc_bf16.x86",
        (*tensors((1, 24, 9, 8), (48, 24, 3, 3)), (1, 1), (1, 1, 1, 1), (1, 1), "NCHW", "NCHW", "float32"),
    ),
    ("dense_pack_bf16.x86", (*tensors((12, 34), (48, 34)), None, "float32")),
    ("batch_matmul_bf16.x86", tensors((3, 12, 34), (3, 48, 34))),
):
    own = workloads.create(name, arguments, TARGET)
    for index in (1, len(own.config_space) - 1):
        pair = MeasureInput(TARGET, own, own.config_space.get(index)), MeasureResult((1e-6,), 0, 0.0, 0.0)
        told.append(comparing.compare_autotvm(autotvm.record.encode(*pair), PLACE, 1))
print(json.dumps(told))
"""


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    return inside_all(OPERATORS, SCHEDULES, folder=tmp_path_factory.mktemp("bf16"))


@has_instructions
def test_products_agree_with_float32_within_their_precision(told: list[Any]) -> None:
    operators = told[0]
    wide = {operators["apart"].pop(name) for name in ("other dense", "marked to stay", "marked and reshaped")}
    assert wide == {0.0}  # Left as they were; the first fills no lanes with seven columns.
    assert all(1e-6 < share < 2e-2 for share in operators["apart"].values()), operators["apart"]
    none, some = operators["instructions"]
    assert none == 0
    assert some > 0


def test_layers_that_the_onnx_engine_marks_stay_in_float32(reference: EngineSession, tmp_path: Path) -> None:
    path, marked = tmp_path / "model.onnx", tmp_path / "marked.onnx"
    path.write_bytes(models.outlying_network())
    given = [asking.make_inputs(reference, [{"name": "x", "dtype": "float32", "shape": [4, 16]}], tmp_path)]
    whole = asking.narrow(reference, path, given, marked, max_rel=10.0)["share"] * 10
    kept = asking.narrow(reference, path, given, marked, max_rel=whole)["kept"]
    assert 0 < len(kept) < 4
    program = """
import json, sys
from tvm import relay
from tuner.engines.relay import mixed_precision
told = []
for path in sys.argv[1:]:
    dtypes = []
    def visit(each):
        if isinstance(each, relay.Call) and each.op.name == "nn.dense":
            dtypes.append(each.args[0].checked_type.dtype)
    relay.analysis.post_order_visit(mixed_precision.load(path, "bf16", rewrite=True).module["main"].body, visit)
    told.append(dtypes.count("bfloat16"))
print(json.dumps(told))
"""
    assert asking.told_inside("relay", program, path, marked) == [4, 4 - len(kept)]


@has_instructions
def test_schedules_compute_what_the_default_one_computes(told: list[Any]) -> None:
    assert len(told[1]) == 6
    assert all(comparison["wrong"] is False for comparison in told[1]), told[1]


@has_instructions
def test_a_build_takes_records_of_bfloat16(
    relay: EngineSession,
    reference: EngineSession,
    place: dict[str, Any],
    inputs: list[Path],
    tmp_path: Path,
) -> None:
    narrow = {**place, "tuner": "autotvm", "precision": "bf16", "options": {}}
    lines = asking.trial_lines(relay, narrow, tmp_path)
    names = {json.loads(line)["input"][1] for line in lines}
    assert "conv2d_NCHWc_bf16.x86" in names
    params = {**narrow, "records": asking.write_lines(tmp_path / "records", lines)}
    built = relay.request("compile", {**params, "out_dir": str(tmp_path / "bundle")}, timeout=120)
    assert {json.loads(line)["input"][1] for line in built["records"]} == names
    audited = relay.request("audit", {**params, "runner": None}, timeout=120)
    assert (audited["checked"], audited["wrong"], audited["failed"]) == (len(built["records"]), [], [])
    actual = asking.run(relay, tmp_path / "bundle", inputs[0], tmp_path / "a.npz")
    [output] = asking.compare_with_model(reference, place["model"], inputs[0], actual, precision="bf16")
    assert (output["passed"], output["dtype"]) == (True, "float32"), output
    assert output["max_abs"] > 1e-6


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"target": "llvm -mcpu=znver3"}, "lacks instructions for bfloat16"),
        ({"target": "llvm -mcpu=znver4", "tuner": "ansor"}, "ansor tuner has no schedules for b"),
    ],
)
def test_bfloat16_is_refused_where_nothing_multiplies_it(
    relay: EngineSession, place: dict[str, Any], tmp_path: Path, changed: dict[str, str], told: str
) -> None:
    for method in ("extract", "compile"):
        params = {**place, "precision": "bf16", "out_dir": str(tmp_path), "records": None, **changed}
        refused = asking.refusal(relay, method, params)
        assert (refused.engine_code, told in refused.message) == ("unsupported_dtype", True)
        assert refused.hint
