"""``./run bench coverage --quick`` with the real engines."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench import coverage
from tests.support.tuner.engines.fixtures import home


@pytest.mark.engine
@pytest.mark.timeout(1200)
def test_the_quick_models_are_verified_and_tuned_on_both_engines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TUNESMITH_HOME", str(home()))
    rows = tmp_path / "rows.json"
    assert coverage.main(["--quick", "--trials", "2", "--tasks", "1", "--rows", str(rows), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["summary"] == dict.fromkeys(("models", "imports", "verified", "tuned"), len(coverage.QUICK))
    assert report["rows"] == json.loads(rows.read_text())
    for row in report["rows"]:
        assert (row["verified"], row["tuned"], row["reason"]) == (True, True, None), row
        assert row["commit"]
        assert row["cpu"]
        assert row["seconds"] > row["verify_seconds"] > 0
        assert 100 < row["peak_mb"] < 8000
