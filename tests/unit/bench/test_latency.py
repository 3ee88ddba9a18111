from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench import latency

ROWS = [
    {"ort_ms": 2.0, "openvino_ms": 1.0, "untuned_ms": 4.0, "tuned_ms": 1.0},
    {"ort_ms": 1.0, "openvino_ms": None, "untuned_ms": 1.0, "tuned_ms": 2.0},
    {"ort_ms": 3.0, "openvino_ms": 1.0, "untuned_ms": 1.0, "tuned_ms": None},
]


def test_means_are_geometric_and_leave_out_what_was_not_measured() -> None:
    found = latency.summary(ROWS)
    assert found["geomean_vs_untuned"] == pytest.approx((4.0 * 0.5) ** 0.5)
    assert found["geomean_vs_ort"] == pytest.approx((2.0 * 0.5) ** 0.5)
    assert found["geomean_vs_openvino"] == pytest.approx(1.0)
    assert found["geomean_bf16_vs_ort"] is None


def test_what_was_tuned_is_found_again(tmp_path: Path) -> None:
    folder = tmp_path / "some-model"
    (folder / "bundle-f32").mkdir(parents=True)
    (folder / "job-f32.json").write_text(json.dumps({"state": "succeeded"}))
    (folder / "job-bf16.json").write_text(json.dumps({"state": "failed"}))
    assert latency.is_tuned(tmp_path, "some-model", "f32")
    assert not latency.is_tuned(tmp_path, "some-model", "int8")
    assert latency.bundles(tmp_path, "some-model") == {
        "bf16": (None, {"state": "failed"}),
        "f32": (folder / "bundle-f32", {"state": "succeeded"}),
    }
