"""``./run bench operators`` with the real engines, for operators that some engine does not compile as they are."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench import operators
from tests.support.tuner.engines.fixtures import home

_NAMES = ("Attention", "CumSum", "ReduceLogSum", "RotaryEmbedding", "STFT")


@pytest.mark.engine
@pytest.mark.timeout(600)
def test_operators_compute_on_both_engines_what_onnx_runtime_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TUNESMITH_HOME", str(home()))
    rows = tmp_path / "rows.json"
    assert operators.main(["--operators", *_NAMES, "--cases", "2", "--rows", str(rows), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["operators"] == []
    assert report["summary"] == {name: {"all": len(_NAMES), "some": 0, "none": 0} for name in operators.ENGINES}
    kept = json.loads(rows.read_text())
    assert {row["opset"] for row in kept if row["operator"] == "Attention"} == {23}
    assert len(kept) == len({(row["case"], row["engine"]) for row in kept}) > len(_NAMES)
