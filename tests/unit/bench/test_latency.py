from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench import latency
from worker.settings import WorkerSettings

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


def test_a_service_runs_without_the_named_parts_of_the_search_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []

    @contextlib.contextmanager
    def running(*_: Any, **__: Any) -> Iterator[None]:
        seen.append(WorkerSettings().search_without)
        yield

    monkeypatch.setattr(latency.hosting, "running", running)
    monkeypatch.setenv("TUNESMITH_SEARCH_WITHOUT", "hand-over")
    for without in (["in-network", "hand-over"], []):
        with latency.service(tmp_path, tmp_path, without=without):
            pass
    assert seen == ["in-network,hand-over", ""]
    assert os.environ["TUNESMITH_SEARCH_WITHOUT"] == "hand-over"
