"""OpenVINO in bf16, and both runtimes on a quantized model, as candidates for what runs a bundle."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from domain.models import TensorSpec
from tests.support.tuner.engines import asking
from tests.support.tuner.engines.fixtures import start
from tuner.host.session import EngineSession
from tuner.results import bundle
from tuner.results.manifest import Manifest, OtherRuntime

pytestmark = pytest.mark.engine


def ran(session: EngineSession, model: Path, inputs: Path, folder: Path, runtime: str, **options: str) -> Path:
    """The results of a runtime with these options on a model, from a folder as the worker writes it."""
    folder.mkdir()
    (folder / bundle.PREPARED).symlink_to(model)
    facts = Manifest(
        model_digest="ab" * 32, model_name="small", variant=runtime, target="llvm", threads=1, device_key="any",
        toolchain={"engine": runtime}, precision="f32", created_by="a test",
        inputs=(TensorSpec(name="image", dtype="float32", shape=(1, 3, 16, 16)),),
        outputs=(TensorSpec(name="scores", dtype="float32", shape=(1, 5)),),
        runtime=OtherRuntime(name=runtime, version="1", model=bundle.PREPARED, threads=1, options=options),
        files={bundle.PREPARED: bundle.file_digest(model)},
    )  # fmt: skip
    (folder / bundle.MANIFEST).write_text(json.dumps(asdict(facts)))
    params = {"bundle": str(folder), "inputs": str(inputs), "outputs": str(folder / "y.npz"), "threads": 1}
    session.request("run", {**params, "runtime": runtime}, timeout=60)
    return folder / "y.npz"


def error_of(reference: EngineSession, expected: Path, actual: Path) -> Any:
    [output] = asking.compare(reference, expected, actual)
    return output["max_rel"]


def test_openvino_computes_in_bf16_where_the_cpu_has_it(
    reference: EngineSession, prepared: Path, inputs: list[Path], engine_logs: Path, tmp_path: Path
) -> None:
    has = "avx512_bf16" in Path("/proc/cpuinfo").read_text() or "amx_bf16" in Path("/proc/cpuinfo").read_text()
    with start("openvino", engine_logs / "openvino-narrow.log") as session:
        assert ("bf16" in session.hello["precisions"]) == has
        if not has:
            return
        wide, narrow = (
            ran(session, prepared, inputs[0], tmp_path / hint, "openvino", INFERENCE_PRECISION_HINT=hint)
            for hint in ("f32", "bf16")
        )
    assert 1e-4 < error_of(reference, wide, narrow) < 0.05


def test_both_runtimes_run_a_quantized_model(
    reference: EngineSession, prepared: Path, inputs: list[Path], engine_logs: Path, tmp_path: Path
) -> None:
    quantized = tmp_path / bundle.QUANTIZED
    asking.quantize(reference, prepared, inputs, quantized)
    with (
        start("openvino", engine_logs / "openvino-int8.log") as openvino,
        start("library", engine_logs / "onnxruntime-int8.log") as library,
    ):
        wide = ran(library, prepared, inputs[0], tmp_path / "f32", "onnxruntime")
        theirs = ran(library, quantized, inputs[0], tmp_path / "onnxruntime", "onnxruntime")
        others = ran(openvino, quantized, inputs[0], tmp_path / "openvino", "openvino", INFERENCE_PRECISION_HINT="f32")
    for narrow in (theirs, others):
        assert 1e-4 < error_of(reference, wide, narrow) < 0.1
