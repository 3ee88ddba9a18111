from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bench import equality, runtime


def _row(model: str, engine: str, equal: dict[str, bool] | None, *, built: bool = True) -> dict[str, Any]:
    return {"model": model, "engine": engine, "built": built, "equal": equal, "memory_beyond_bytes": 3_000_000}


ROWS = [
    _row("ppocr-cls", "relay", {"1": True, "2": True}),
    _row("ppocr-cls", "relax", {"1": True, "2": False}),
    _row("crnn-ocr", "relay", None),
    _row("crnn-ocr", "relax", None, built=False),
]


def test_models_with_unequal_outputs_are_named() -> None:
    counts = {"libraries": 1, "most_memory_beyond_bytes": 3_000_000}
    assert equality.summary(ROWS) == {
        "relay": {"built": 2, "equal": 1, "unequal": [], **counts},
        "relax": {"built": 1, "equal": 0, "unequal": ["ppocr-cls"], **counts},
    }


def test_finished_rows_are_kept_and_others_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = tmp_path / "rows.json"
    rows.write_text(json.dumps(ROWS[:1]))
    asked: list[tuple[str, list[str]]] = []

    def compared(model: Any, engines: list[str], *_: Any) -> list[dict[str, Any]]:
        asked.append((model.name, engines))
        return [_row(model.name, engine, {"1": True, "2": True}) for engine in engines]

    monkeypatch.setenv("TUNESMITH_HOME", str(tmp_path))
    monkeypatch.setattr(equality, "_compared", compared)
    monkeypatch.setattr(runtime, "harness", lambda folder: folder)
    for _ in range(2):
        assert equality.main(["--models", "ppocr-cls", "crnn-ocr", "--rows", str(rows)]) == 0
    assert asked == [("ppocr-cls", ["relax"]), ("crnn-ocr", ["relay", "relax"])]
    assert '"equal": 2' in capsys.readouterr().out
