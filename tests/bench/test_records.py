from __future__ import annotations

import json

import pytest

from bench import records

SMALL = [
    "--records",
    "400",
    "--workloads",
    "60",
    "--workers",
    "4",
    "--queued",
    "12",
    "--finished",
    "3",
    "--repeat",
    "5",
]


def test_every_question_is_timed_of_a_store_and_of_a_fleet(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "_GENERATED", 200)
    assert records.main([*SMALL, "--databases", "sqlite"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["records"] == 400
    found = report["databases"]["sqlite"]
    assert found["bytes"] > 100_000
    for name, times in {**found["milliseconds"], **found["fleet_milliseconds"]}.items():
        assert 0 < times["median"] <= times["p99"], name
    signs = found["fleet_milliseconds"]["a worker's sign of life"]
    assert signs["a_second"] == 0.4, "four workers, each every ten seconds"
    assert signs["connections_busy"] == pytest.approx(0.4 * signs["median"] / 1e3, abs=1e-3)
