"""Quantized networks in relay: what they compute, with which instructions, and what may be tuned of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support import models
from tests.support.tuner.engines import asking
from tuner.host import hardware
from tuner.host.session import EngineSession

pytestmark = pytest.mark.engine

has_instructions = pytest.mark.skipif(
    "avx512vnni" not in hardware.device().key, reason="this processor has no AVX512-VNNI"
)
SERVER = "llvm -mcpu=cascadelake"
"""Has VNNI, whatever this machine has."""


@pytest.fixture(scope="module")
def quantized(
    reference: EngineSession, prepared: Path, inputs: list[Path], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    path = tmp_path_factory.mktemp("quantized") / "quantized.onnx"
    asking.quantize(reference, prepared, inputs, path)
    return path


@has_instructions
@pytest.mark.parametrize("tuner", [None, "autotvm"])
def test_int8_computes_what_onnx_runtime_computes_in_int8(
    relay: EngineSession,
    reference: EngineSession,
    place: dict[str, Any],
    prepared: Path,
    quantized: Path,
    inputs: list[Path],
    tmp_path: Path,
    tuner: str | None,
) -> None:
    build = {**place, "model": str(quantized), "tuner": tuner, "precision": "int8", "options": {}}
    lines = asking.trial_lines(relay, build, tmp_path) if tuner else []
    params = {**build, "records": asking.write_lines(tmp_path / "records", lines), "out_dir": str(tmp_path / "bundle")}
    built = relay.request("compile", params, timeout=120)
    assert bool(built["records"]) == bool(tuner)
    if tuner:
        assert {json.loads(line)["input"][1] for line in lines} >= {"conv2d_NCHWc_bytes.x86"}
        audited = relay.request("audit", {**params, "runner": None}, timeout=120)
        assert (audited["wrong"], audited["failed"]) == ([], [])
        assert audited["checked"]
    actual = asking.run(relay, tmp_path / "bundle", inputs[0], tmp_path / "a.npz")
    same, near = (
        asking.compare_with_model(reference, model, inputs[0], actual, precision="int8", model=str(prepared))[0]
        for model in (quantized, prepared)
    )
    assert same["max_rel"] < 1e-5
    assert near["passed"]
    assert near["agreed"] == near["rows"] == 1


@has_instructions
@pytest.mark.parametrize("tuner", [None, "autotvm"])
def test_quantized_models_compute_in_bytes_where_they_may_be_rewritten(
    relay: EngineSession,
    reference: EngineSession,
    place: dict[str, Any],
    quantized: Path,
    inputs: list[Path],
    tmp_path: Path,
    tuner: str | None,
) -> None:
    """Nothing is narrowed that the model itself does not narrow."""
    build = {**place, "model": str(quantized), "tuner": tuner, "precision": "f32", "options": {}, "rewrite": True}
    lines = asking.trial_lines(relay, build, tmp_path) if tuner else []
    assert ("conv2d_NCHWc_bytes.x86" in {json.loads(line)["input"][1] for line in lines}) == bool(tuner)
    results = []
    for precision in ("f32", "int8"):
        bundle = tmp_path / precision
        records = asking.write_lines(tmp_path / "records", lines)
        params = {**build, "precision": precision, "records": records, "out_dir": str(bundle)}
        assert bool(relay.request("compile", params, timeout=120)["records"]) == bool(tuner)
        results.append(asking.run(relay, bundle, inputs[0], tmp_path / f"{precision}.npz"))
    [output] = asking.compare_with_model(reference, quantized, inputs[0], results[0])
    assert output["passed"]
    [difference] = asking.compare(reference, *results)
    assert difference["max_abs"] == 0


@has_instructions
@pytest.mark.parametrize("columns", [48, 24])
@pytest.mark.parametrize("tuner", [None, "autotvm"])
def test_products_of_more_dimensions_are_integer_too(
    relay: EngineSession,
    reference: EngineSession,
    place: dict[str, Any],
    tmp_path: Path,
    tuner: str | None,
    columns: int,
) -> None:
    plain, path = tmp_path / "plain.onnx", tmp_path / "quantized.onnx"
    plain.write_bytes(models.dense_network(columns=columns))
    spec = {"name": "x", "dtype": "float32", "shape": [2, 8, 32]}
    given = [asking.make_inputs(reference, [spec], tmp_path / str(seed), seed=seed) for seed in (0, 1)]
    assert asking.quantize(reference, plain, given, path)["quantized"]
    build = {**place, "model": str(path), "tuner": tuner, "precision": "int8", "options": {}}
    lines = asking.trial_lines(relay, build, tmp_path) if tuner else []
    assert {json.loads(line)["input"][1] for line in lines} == ({"dense_pack_bytes.x86"} if tuner else set())
    params = {**build, "records": asking.write_lines(tmp_path / "records", lines), "out_dir": str(tmp_path / "bundle")}
    relay.request("compile", params, timeout=120)
    actual = asking.run(relay, tmp_path / "bundle", given[0], tmp_path / "a.npz")
    [output] = asking.compare_with_model(reference, path, given[0], actual, precision="int8")
    assert output["max_rel"] < 1e-5
    if tuner:
        audited = relay.request("audit", {**params, "runner": None}, timeout=120)
        assert (audited["wrong"], audited["failed"]) == ([], [])
        assert audited["checked"]


@has_instructions
@pytest.mark.parametrize("tuner", [None, "autotvm"])
def test_depthwise_convolutions_of_bytes_have_the_blocks_of_others(
    relay: EngineSession, reference: EngineSession, place: dict[str, Any], tmp_path: Path, tuner: str | None
) -> None:
    plain, path = tmp_path / "plain.onnx", tmp_path / "quantized.onnx"
    plain.write_bytes(models.depthwise_network())
    spec = {"name": "image", "dtype": "float32", "shape": [1, 8, 10, 10]}
    given = [asking.make_inputs(reference, [spec], tmp_path / str(seed), seed=seed) for seed in (0, 1)]
    _quantize_all(plain, path, given)
    build = {**place, "model": str(path), "tuner": tuner, "precision": "int8", "options": {}}
    lines = asking.trial_lines(relay, build, tmp_path) if tuner else []
    params = {**build, "records": asking.write_lines(tmp_path / "records", lines), "out_dir": str(tmp_path / "bundle")}
    relay.request("compile", params, timeout=120)
    actual = asking.run(relay, tmp_path / "bundle", given[0], tmp_path / "a.npz")
    [output] = asking.compare_with_model(reference, path, given[0], actual, precision="int8")
    # Numbers between two bytes may be rounded to either.
    assert output["max_rel"] < 0.02
    if not tuner:
        nodes = json.loads((tmp_path / "bundle" / "mod.json").read_text())["nodes"]
        between = [node["name"] for node in nodes if "layout_transform" in node["name"]]
        # Of the image, with its rounding, and of the result.
        assert len(between) == 2, between


def test_byte_products_are_in_the_code(
    relay: EngineSession, place: dict[str, Any], quantized: Path, tmp_path: Path
) -> None:
    build = {**place, "target": SERVER, "model": str(quantized), "tuner": None, "precision": "int8", "options": {}}
    relay.request("compile", {**build, "records": None, "out_dir": str(tmp_path)}, timeout=120)
    # EVEX.66.0F38.W0 50 /r: vpdpbusd on 256 or 512 bits, whichever registers.
    code = (tmp_path / "mod.so").read_bytes()
    assert any(
        code[place] == 0x62 and code[place + 1] & 0x07 == 0x02 and code[place + 2] & 0x83 == 0x01
        and code[place + 3] & 0x60 in (0x20, 0x40) and code[place + 4] == 0x50
        for place in range(len(code) - 5)
    )  # fmt: skip


def test_engines_say_which_precisions_a_target_has(relay: EngineSession, prepared: Path) -> None:
    def precisions(target: str) -> list[str]:
        params = {"model": str(prepared), "target": target, "threads": 1}
        found: list[str] = relay.request("check", params, timeout=60)["precisions"]
        return found

    assert precisions("llvm -mcpu=skylake-avx512") == ["f32"]
    assert precisions(SERVER) == ["f32", "int8"]
    assert precisions("llvm -mcpu=sapphirerapids") == ["f32", "bf16", "fp16", "int8"]


@pytest.mark.parametrize(
    ("method", "change", "said"),
    [
        ("extract", {"target": "llvm -mcpu=skylake-avx512"}, "lacks instructions for products of bytes"),
        ("extract", {"tuner": "ansor"}, "ansor tuner has no schedules for int8"),
        ("compile", {"tuner": None}, "needs a quantized model"),
    ],
)
def test_what_int8_is_not_for(
    relay: EngineSession,
    place: dict[str, Any],
    prepared: Path,
    quantized: Path,
    tmp_path: Path,
    method: str,
    change: dict[str, Any],
    said: str,
) -> None:
    model = quantized if method == "extract" else prepared
    build = {**place, "target": SERVER, "model": str(model), "precision": "int8", "options": {}, "records": None}
    refused = asking.refusal(relay, method, {**build, "tuner": "autotvm", "out_dir": str(tmp_path), **change})
    assert said in refused.message
    assert method == "compile" or (refused.engine_code, bool(refused.hint)) == ("unsupported_dtype", True)


QUANTIZE = """
import sys
import numpy as np
from onnxruntime.quantization import QuantType, quantize_static
source, target, *given = sys.argv[1:]
rows = iter([dict(np.load(each)) for each in given])
class Rows:
    def get_next(self):
        return next(rows, None)
quantize_static(source, target, Rows(), per_channel=True, activation_type=QuantType.QUInt8,
                weight_type=QuantType.QInt8, extra_options={"QuantizeBias": False})
print("null")
"""


def _quantize_all(model: Path, target: Path, inputs: list[Path]) -> None:
    """Quantize every operator, as users may; our own quantization leaves depthwise convolutions in float32."""
    asking.told_inside("onnx", QUANTIZE, model, target, *inputs)
