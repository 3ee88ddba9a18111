"""Relay builds in float32 and fp16 alone, quantized networks too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support import models
from tests.support.tuner.engines import asking
from tuner.host.session import EngineSession

pytestmark = pytest.mark.engine

SERVERS = ("llvm -mcpu=cascadelake", "llvm -mcpu=sapphirerapids")
"""Have VNNI, and one of them AMX, whatever this machine has."""


def _compiled(relay: EngineSession, place: dict[str, Any], model: Path, folder: Path, **more: Any) -> Path:
    asking.build(relay, place, folder, model=str(model), tuner=None, options={}, precision="f32", **more)
    return folder


@pytest.mark.parametrize("rewrite", [False, True])
def test_pairs_are_computed_in_float32(
    relay: EngineSession,
    reference: EngineSession,
    place: dict[str, Any],
    prepared: Path,
    inputs: list[Path],
    tmp_path: Path,
    rewrite: bool,
) -> None:
    model = tmp_path / "quantized.onnx"
    asking.quantize(reference, prepared, inputs, model)
    bundle = _compiled(relay, place, model, tmp_path / "bundle", rewrite=rewrite)
    assert asking.agrees(relay, bundle, reference, model, inputs[0], tmp_path)


@pytest.mark.parametrize("name", ["quantized_convolution", "quantized_batches"])
@pytest.mark.parametrize("rewrite", [False, True])
def test_operators_of_bytes_compute_what_onnx_runtime_computes(
    relay: EngineSession, reference: EngineSession, place: dict[str, Any], tmp_path: Path, name: str, rewrite: bool
) -> None:
    """Preparing would replace these, but not all that users upload. TVM's own schedules of them end the process."""
    model = tmp_path / "model.onnx"
    model.write_bytes(getattr(models, name)())
    for target in SERVERS:
        _compiled(relay, place, model, tmp_path / "other", target=target, rewrite=rewrite)
    specs = asking.prepare(reference, model.read_bytes(), tmp_path)[1]
    inputs = asking.make_inputs(reference, specs, tmp_path)
    bundle = _compiled(relay, place, model, tmp_path / "bundle", rewrite=rewrite)
    actual = asking.run(relay, bundle, inputs, tmp_path / "actual.npz")
    [output] = asking.compare_with_model(reference, model, inputs, actual)
    # A step of the result's bytes, if TVM rounds a number between two of them otherwise.
    assert output["max_abs"] < 0.291


def test_engines_say_which_precisions_a_target_has(relay: EngineSession, prepared: Path) -> None:
    def precisions(target: str) -> list[str]:
        params = {"model": str(prepared), "target": target, "threads": 1}
        found: list[str] = relay.request("check", params, timeout=60)["precisions"]
        return found

    assert [precisions(target) for target in SERVERS] == [["f32"], ["f32", "fp16"]]


@pytest.mark.parametrize("precision", ["bf16", "int8"])
def test_narrow_precisions_are_left_to_relax(
    relay: EngineSession, place: dict[str, Any], tmp_path: Path, precision: str
) -> None:
    own = {**place, "precision": precision, "out_dir": str(tmp_path), "records": None}
    for method, tuner in (("compile", None), ("extract", "autotvm"), ("extract", "ansor"), ("compile", "ansor")):
        refused = asking.refusal(relay, method, {**own, "tuner": tuner})
        assert refused.engine_code == "unsupported_dtype"
        assert f"no schedules for {precision}" in refused.message
        assert "metaschedule" in str(refused.hint)


@pytest.mark.parametrize("tuner", [None, "autotvm", "ansor"])
def test_fp16_agrees_with_the_reference_within_its_tolerance(
    relay: EngineSession,
    reference: EngineSession,
    place: dict[str, Any],
    inputs: list[Path],
    tmp_path: Path,
    tuner: str | None,
) -> None:
    half = {**place, "tuner": tuner, "precision": "fp16", "options": {}}
    lines = asking.trial_lines(relay, half, tmp_path, trials=1) if tuner else []
    records = asking.write_lines(tmp_path / "records", lines)
    built = relay.request("compile", {**half, "records": records, "out_dir": str(tmp_path / "b")}, timeout=120)
    assert bool(built["records"]) == bool(tuner)
    actual = asking.run(relay, tmp_path / "b", inputs[0], tmp_path / "a.npz")
    # Inputs went in and outputs came out as float32.
    [output] = asking.compare_with_model(reference, place["model"], inputs[0], actual, precision="fp16")
    assert (output["passed"], output["dtype"]) == (True, "float32"), output
    # Eleven bits of a float16: what computed in float32 would come nearer.
    assert output["max_abs"] > 1e-6


def test_autotvm_knows_workloads_by_their_dtype(
    relay: EngineSession, place: dict[str, Any], tasks: list[dict[str, Any]]
) -> None:
    half = relay.request("extract", {**place, "precision": "fp16"}, timeout=120)["tasks"]
    assert len(half) == len(tasks)
    assert all("float16" in task["workload_key"] for task in half)
    assert not {task["workload_key"] for task in half} & {task["workload_key"] for task in tasks}
