"""Timing of a real model: ONNX Runtime and the untuned builds of both engines."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import latency, zoo
from tests.support.tuner.engines.fixtures import home
from tuner.host import catalogue, environments


@pytest.mark.engine
@pytest.mark.timeout(900)
def test_every_side_is_opened_verified_and_timed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(latency, "_BENCHMARK_SECONDS", 2.0)
    pythons = {name: environments.interpreter(spec, home()) for name, spec in catalogue.ENGINES.items()}
    # OpenVINO is missing in this environment, which is a problem of its sides alone.
    found = latency.measure(
        latency.Model(
            name="ppocr-cls", path=zoo.fetch(zoo.MODELS["ppocr-cls"], home()),
            shapes=zoo.MODELS["ppocr-cls"].input_shapes,
        ),
        {"f32": (None, {"failure": {"code": "no_tuner"}})},
        latency.Pythons(home=home(), of_engine={**pythons, "openvino": pythons["onnx"]}),
        tmp_path, threads=1,
    )  # fmt: skip
    assert found["verifications"] == {"untuned relay": True, "untuned relax": True}
    assert found["openvino_ms"] is None
    assert found["tuned_ms"] is None
    assert "no_tuner" in found["problems"][-1]
    assert any(problem.startswith("openvino f32: ") for problem in found["problems"])
    assert 0 < found["ort_ms"] < 1000
    assert 0 < found["untuned_ms"] < 1000
    sides = {"reference", "untuned relay", "untuned relax"}
    assert set(found["load_ms"]) == set(found["peak_mb"]) == set(found["intervals_ms"]) == sides
    low, high = found["ratios"]["untuned relay"]["reference"]["interval"]
    assert low <= found["ratios"]["untuned relay"]["reference"]["ratio"] <= high
    # A library needs neither ONNX Runtime nor TVM.
    assert found["peak_mb"]["untuned relay"] < found["peak_mb"]["reference"]
    assert found["load_ms"]["untuned relay"] < found["load_ms"]["reference"]
