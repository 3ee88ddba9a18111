"""The host's side of verifying, benchmarking, bundling and inspecting, with the real engines."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from domain import errors
from domain.artifacts import Variant
from domain.models import TensorSpec
from tests.support import models
from tests.support.tuner.engines.fixtures import Twin, home, interpreter, manifest
from tuner.host import catalogue, environments
from tuner.host.inspection import Inspector
from tuner.host.session import EngineSession
from tuner.results import benchmark, bundle, timing, verification

pytestmark = pytest.mark.engine

IMAGE = TensorSpec(name="image", dtype="float32", shape=(1, 3, 16, 16))


@pytest.fixture(scope="module")
def inspector() -> Inspector:
    return Inspector(spec=catalogue.get("onnx"), python=interpreter("onnx"))


@pytest.mark.smoke
def test_a_compiled_model_is_verified_timed_and_bundled(
    relay_twin: Twin, reference: EngineSession, prepared: Path, tmp_path: Path
) -> None:
    relay, compiled = relay_twin.session, relay_twin.untuned
    inputs = verification.seed_inputs(reference, [IMAGE], tmp_path / "inputs").paths
    expected = verification.run_reference(reference, prepared, inputs, tmp_path / "out", threads=1)
    verified = verification.verify(
        reference, relay,
        variant=Variant.UNTUNED, bundle=compiled, inputs=inputs, expected=expected, folder=tmp_path / "out",
        place={"threads": 1},
    )  # fmt: skip
    assert verified.passed
    assert all(error.max_rel < 1e-4 for error in verified.outputs)
    timings = timing.interleave(
        [
            timing.reference(reference, prepared, inputs[0], threads=1),
            timing.compiled(Variant.UNTUNED, relay, compiled, inputs[0], place={"threads": 1}),
        ],
        rounds=4,
    )
    report = benchmark.judge(timings, {Variant.UNTUNED: verified})
    assert report.published is Variant.UNTUNED
    assert 1e-7 < timings[Variant.UNTUNED].median < 0.1
    outputs = relay.request(
        "run",
        {"bundle": str(compiled), "inputs": None, "outputs": None, "threads": 1, "number": 1, "repeat": 0},
        timeout=60,
    )["outputs"]
    told = tuple(TensorSpec(name=o["name"], dtype=o["dtype"], shape=tuple(o["shape"])) for o in outputs)
    bundle.write(tmp_path / "b.tar", compiled=compiled, manifest=manifest(relay_twin, outputs=told), report=report)
    assert bundle.open_bundle(tmp_path / "b.tar", tmp_path / "opened").outputs == told


@pytest.mark.smoke
def test_wrong_outputs_fail_verification(
    relay_twin: Twin, reference: EngineSession, prepared: Path, tmp_path: Path
) -> None:
    inputs = verification.seed_inputs(reference, [IMAGE], tmp_path / "inputs", seeds=(0, 1)).paths
    expected = verification.run_reference(reference, prepared, inputs, tmp_path / "out", threads=1)
    verified = verification.verify(
        reference, relay_twin.session,
        variant=Variant.TUNED, bundle=relay_twin.untuned, inputs=inputs, expected=expected[::-1],
        folder=tmp_path / "out",
        place={"threads": 1}, seeds=(0, 1),
    )  # fmt: skip
    assert not verified.passed


def test_a_model_is_inspected_and_prepared_under_limits(inspector: Inspector, tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(models.small_network())
    facts = inspector.inspect(path)
    assert [spec.name for spec in facts.inputs] == ["image"]
    assert facts.operators["Conv"] >= 1
    ready = inspector.prepare(path, {"image": [1, 3, 16, 16]}, tmp_path / "prepared.onnx")
    assert ready.inputs == (IMAGE,)
    assert all(isinstance(size, int) for spec in ready.outputs for size in spec.shape)
    with pytest.raises(errors.ShapeRequired):
        inspector.prepare(path, {}, tmp_path / "x.onnx")
    with pytest.raises(errors.ShapeMismatch):
        inspector.prepare(path, {"image": [1, 3]}, tmp_path / "x.onnx")


def test_a_small_file_that_wants_40_gb_is_told_and_gets_none(inspector: Inspector, tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(models.memory_hog())
    modest = dataclasses.replace(inspector, memory_bytes=2 * 1024**3)
    for ask in (modest.inspect, lambda path: modest.prepare(path, {}, tmp_path / "x.onnx")):
        with pytest.raises(errors.InvalidModel, match="40 GB"):
            ask(path)


def test_the_doctor_finds_the_shipped_engines_healthy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And they leave nothing at home: ONNX Runtime would keep events for its makers there, TVM a folder."""
    engines = home()
    monkeypatch.setenv("HOME", str(tmp_path))
    for spec in (catalogue.ENGINES | catalogue.OPTIONAL).values():
        health = environments.doctor(spec, engines)
        assert health.problems == ()
        assert health.toolchain["engine"] == spec.name
        json.dumps(health.hello)
    assert list(tmp_path.rglob("*")) == []
