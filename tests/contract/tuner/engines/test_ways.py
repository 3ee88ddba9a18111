"""The ways to run a library that the benchmark compares, on a small network."""

from __future__ import annotations

import math
import shutil
from pathlib import Path
from typing import Any

import pytest

from bench import runtime
from tests.support.tuner.engines import asking
from tests.support.tuner.engines.fixtures import Twin, home


@pytest.mark.engine
def test_all_ways_compute_the_same_and_are_measured(
    relay_twin: Twin, prepared: Path, inputs: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"_OVERHEAD_RUNS": 5, "_PACED_RUNS": 2, "_PACED_RATE": 100, "_LEAST_SLICES": 2}.items():
        monkeypatch.setattr(runtime, name, value)
    bundle = tmp_path / "bundle"
    asking.build(relay_twin.session, relay_twin.place, bundle, tuner=None, format="onnx")
    shutil.copyfile(prepared, bundle / "prepared.onnx")
    given = shutil.copy(inputs[0], tmp_path / "inputs.npz")
    facts = runtime.measure("relay", bundle, given, runtime.harness(tmp_path), home(), [1], 0.1)
    assert facts["equal_by_way"] == {"c": True, "python": True, "operator": True}
    assert facts["threads"]["1"]["ms"].keys() == {"c", "python", "operator", "onnxruntime", "tvm"}
    assert all(math.isfinite(number) for number in _numbers(facts))
    assert facts["weight_bytes"] < facts["library_bytes"] < 1_000_000


def _numbers(value: Any) -> list[float]:
    if isinstance(value, dict):
        return [number for each in value.values() for number in _numbers(each)]
    return [float(value)]
