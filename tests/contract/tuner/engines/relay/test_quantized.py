"""Quantized networks in relay, which builds in float32 and fp16 alone."""

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
