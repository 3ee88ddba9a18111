"""Builds in bf16: which products are narrow, what they compute, and which targets are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.tuner.engines import asking
from tests.support.tuner.engines.relax import networks
from tuner.host import hardware
from tuner.host.session import EngineSession

pytestmark = pytest.mark.engine

has_instruction = pytest.mark.skipif(
    "avx512bf16" not in hardware.device().key, reason="this processor has no AVX512-BF16"
)
NARROW = """
import json, sys
from tuner.engines.relax import compiling, importing, lowering, schedules
from tuner.engines.runtime.workspaces import Workspaces
from tuner.engines.relax.release import RELEASE
importing.install()
path, target = sys.argv[1:]
build = lowering.Lowering.of({"model": path, "target": target, "threads": 1, "precision": "bf16"})
module = lowering.lower(importing.load(path), build)
names = [variable.name_hint for variable, _ in module.functions_items()]
kinds = {kind: sum(kind in name for name in names) for kind in ("narrow_conv2d", "narrow_matmul")}
finished = lowering.finish(schedules.apply(module, build.target), build.target)
executable = compiling._build(finished, build.target, "shared", Workspaces(RELEASE))
asm = "".join(each.inspect_source("asm") for each in executable.mod.imports)
print(json.dumps([kinds, asm.count("vdpbf16ps"), asm.count("tunesmith_pairs"), asm.count("prefetcht")]))
"""
WIDTHS = """
import json
import numpy as np
import tvm
from tvm import s_tir, te
from tuner.engines.relax import kernels, pairs, targets
from tuner.engines.runtime.targets import native_cpu
target = targets.resolve(f"llvm -mcpu={native_cpu(tvm)}", 1)
random = np.random.default_rng(0)
told = {}
for lanes in (1, 2, 3, 4, 6, 8, 16, 32, 64):
    shapes = (5, 6), (6, lanes)
    left, right = (random.uniform(-1, 1, shape).astype("float32").view("uint32") >> 16 for shape in shapes)
    packed = right[0::2] | right[1::2] << 16
    data, weights = te.placeholder((5, 6), "uint16"), te.placeholder((3, lanes), "uint32")
    schedule = s_tir.Schedule(te.create_prim_func([data, weights, pairs.matrix_product(data, weights)]))
    row, column, pair = schedule.get_loops(schedule.get_sblock("products"))
    schedule.reorder(row, pair, column)
    schedule.vectorize(column)
    with target:
        library = tvm.tirx.build(kernels.finish(schedule.mod, target), target=target)
    found = tvm.runtime.tensor(np.zeros((5, lanes), "float32"))
    library["main"](tvm.runtime.tensor(left.astype("uint16")), tvm.runtime.tensor(packed), found)
    expected = (left << 16).view("float32") @ (right << 16).view("float32")
    told[lanes] = float(abs(found.numpy() - expected).max())
print(json.dumps(told))
"""
GROUPED = """
import json, sys
from tuner.engines.relax import importing, lowering
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
TARGET = "llvm -mcpu=znver4"


def test_products_that_fit_are_narrow_and_use_the_instruction(tmp_path: Path) -> None:
    """Also where this processor has none."""
    model = tmp_path / "model.onnx"
    model.write_bytes(networks.narrow_products())
    kinds, instructions, calls, _ = asking.told_inside("relax", NARROW, model, TARGET)
    assert kinds == {"narrow_conv2d": 4, "narrow_matmul": 3}
    assert instructions > 100
    assert calls == 0


def test_large_weights_of_narrow_products_are_prefetched(tmp_path: Path) -> None:
    model = tmp_path / "model.onnx"
    model.write_bytes(networks.dense(rows=16, inner=512, columns=1536))
    for cpu, is_prefetched in (("znver4", False), ("znver5", True)):
        _, instructions, _, prefetches = asking.told_inside("relax", NARROW, model, f"llvm -mcpu={cpu}")
        assert (instructions > 0, prefetches > 0) == (True, is_prefetched)


def test_grouped_convolutions_are_filtered_as_in_float32(reference: EngineSession, tmp_path: Path) -> None:
    model, _ = asking.prepare(reference, networks.filterable_groups(), tmp_path)
    wide, narrow = asking.told_inside("relax", GROUPED, model, TARGET)
    assert wide == narrow != []


@has_instruction
def test_vectors_of_every_width_are_multiplied() -> None:
    """Searches also propose vectors for which there is no instruction."""
    assert max(asking.told_inside("relax", WIDTHS).values()) < 1e-6


@has_instruction
@pytest.mark.parametrize("threads", [1, 2])
def test_products_are_those_of_rounded_operands(
    relax: EngineSession, reference: EngineSession, place: dict[str, Any], tmp_path: Path, threads: int
) -> None:
    """With and without records, rewritten and not; what is marked or grouped is as precise as float32.

    Rewriting fills vectors with zero columns, so that more products are narrow.
    """
    specs = asking.prepare(reference, networks.narrow_products(), tmp_path)[1]
    # Preparing removes conversions that change nothing, and so the mark.
    model, rounded = tmp_path / "model.onnx", tmp_path / "rounded.onnx"
    rounded.write_bytes(networks.narrow_products(is_rounded=True))
    inputs = asking.make_inputs(reference, specs, tmp_path)
    own = {**place, "model": str(model), "threads": threads, "precision": "bf16", "rewrite": False}
    lines = asking.trial_lines(relax, own, tmp_path, trials=4)
    records = asking.write_lines(tmp_path / "records.jsonl", lines)
    for number, more in enumerate(({}, {"records": records}, {"rewrite": True})):
        bundle = tmp_path / f"bundle-{number}"
        answer = relax.request("compile", {**own, "records": None, "out_dir": str(bundle), **more}, timeout=120)
        assert bool(answer["records"]) == ("records" in more)
        actual = asking.run(relax, bundle, inputs, tmp_path / "actual.npz")
        compared = asking.compare_with_model(reference, rounded, inputs, actual)
        errors = {each["output"]: each["max_rel"] for each in compared}
        assert len(errors) == 9
        assert errors.pop("thin") < (2e-2 if "rewrite" in more else 2e-6)
        assert max(errors.values()) < 2e-6, errors


@has_instruction
def test_work_of_narrow_products_is_counted_like_that_of_others(
    relax: EngineSession, reference: EngineSession, place: dict[str, Any], tmp_path: Path
) -> None:
    model, _ = asking.prepare(reference, networks.dense(rows=16, inner=64, columns=192), tmp_path)
    found = []
    for precision in ("f32", "bf16"):
        own = {**place, "model": str(model), "precision": precision, "out_dir": str(tmp_path)}
        found.append(relax.request("extract", own, timeout=120)["tasks"][0]["flop"])
    assert found[0] == found[1]


def test_targets_without_the_instruction_are_refused(
    relax: EngineSession, reference: EngineSession, tmp_path: Path
) -> None:
    model, _ = asking.prepare(reference, networks.dense(), tmp_path)
    params = {"model": str(model), "threads": 1, "out_dir": str(tmp_path), "precision": "bf16", "records": None}
    refused = asking.refusal(relax, "compile", {**params, "target": "llvm -mcpu=haswell"})
    assert (refused.engine_code, "lacks instructions" in refused.message) == ("unsupported_dtype", True)
    assert "znver4" in str(refused.hint)
    for target, offered in (("llvm -mcpu=haswell", ["f32"]), (TARGET, ["f32", "bf16"])):
        answer = relax.request("check", {"model": str(model), "target": target, "threads": 1}, timeout=60)
        assert answer["precisions"] == offered
