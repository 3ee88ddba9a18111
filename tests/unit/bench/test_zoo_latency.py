from __future__ import annotations

import argparse
import contextlib
import json
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import bench.__main__
from bench import latency, rows, zoo, zoo_latency

FACTS = {"commit": "abc", "cpu": "a CPU", "threads": 1, "seconds": 300.0, "tuner": "auto", "without": []}
MEASURED: dict[str, Any] = {
    "ort_ms": 2.0, "openvino_ms": 1.5, "untuned_ms": 3.0, "untuned": {"relay": 3.0, "relax": 9.0},
    "tuned_ms": 3.0, "published_ms": 1.6,
    "load_ms": {"reference": 30.0, "tuned f32": 2.0}, "peak_mb": {"reference": 90.0},
    "intervals_ms": {"openvino f32": (1.4, 1.6), "tuned f32": (2.9, 3.1), "published f32": (1.5, 1.75)},
    "ratios": {
        "tuned f32": {"reference": {"ratio": 0.66}, "openvino f32": {"ratio": 0.5}},
        "published f32": {
            "reference": {"ratio": 1.2, "interval": (1.1, 1.3)}, "openvino f32": {"ratio": 0.93, "interval": (0.9, 1)},
        },
    },
    "jobs": {
        "f32": {
            "budget": {"seconds": 300.0}, "run_seconds": 480.0, "trials": 900,
            "report": {"runtime": "openvino", "runtime_version": "2026.4", "summary": "a sentence"},
        }
    },
    "noisy": False, "reasons": (), "problems": [],
}  # fmt: skip

FASTER = {
    name: {"reference": {"ratio": 2.0}, "openvino f32": {"ratio": 1.5, "interval": None}}
    for name in ("tuned f32", "published f32")
}


def _row(model: str = "minilm", *, part: str = "seen", measured: dict[str, Any] | None = None, **facts: Any) -> Any:
    found = zoo_latency.columns(MEASURED if measured is None else measured)
    return {"model": model, "part": part, **found, **FACTS, **facts}


def test_a_row_compares_the_library_and_the_published_bundle_with_the_better_runtime() -> None:
    row = zoo_latency.columns(MEASURED)
    assert (row["vs_ort"], row["vs_better"]) == (0.66, 0.5)
    assert (row["published_vs_better"], row["published_vs_better_interval"]) == (0.93, (0.9, 1))
    assert (row["untuned_relay_ms"], row["untuned_relax_ms"]) == (3.0, 9.0)
    assert (row["runtime"], row["budget_seconds"], row["job_seconds"]) == ("openvino", 300.0, 480.0)
    assert row["load_ms"]["ort"] == 30.0
    assert row["load_ms"]["compiled"] == 2.0
    assert row["peak_mb"]["untuned_relay"] is None


def test_a_row_keeps_the_operators_that_lose_most() -> None:
    operators = [
        {
            "name": f"conv {position}", "kernels": ["a"], "seconds": 1e-3, "reference_seconds": 5e-4,
            "openvino_seconds": None, "share": 0.51234, "bound": "compute",
        }
        for position in range(7)
    ]  # fmt: skip
    profile = {
        "seconds": 7.5e-3, "reference_seconds": 4e-3, "openvino_seconds": None, "outside": 5e-4, "operators": operators,
    }  # fmt: skip
    job = MEASURED["jobs"]["f32"] | {"profile": profile}
    audit = zoo_latency.columns({**MEASURED, "jobs": {"f32": job}})["audit"]
    assert sum(each["ms"] for each in audit["largest"]) + audit["rest_ms"] + audit["outside_ms"] == audit["ms"] == 7.5
    assert (audit["largest"][0]["name"], audit["largest"][0]["share"]) == ("conv 0", 0.512)
    assert zoo_latency.columns(MEASURED)["audit"] is None


def test_a_model_without_a_library_counts_half_and_one_without_a_reference_not_at_all() -> None:
    failed = zoo_latency.columns({"ort_ms": 2.0, "openvino_ms": None})
    assert (failed["vs_ort"], failed["vs_better"], failed["published_vs_better"]) == (0.5, 0.5, 0.5)
    missing = zoo_latency.columns({})
    assert missing["vs_ort"] is None
    found = zoo_latency.summary(
        [_row(measured={**MEASURED, "ratios": FASTER}), {**_row(), **failed}, {**_row(), **missing}]
    )
    assert (found["models"], found["not_counted"], found["without_compiled"]) == (2, 1, 1)
    assert found["geomean_vs_ort"] == pytest.approx((2.0 * 0.5) ** 0.5)
    assert found["geomean_vs_better"] == pytest.approx((1.5 * 0.5) ** 0.5)
    assert (found["at_least_0.95_of_better"], found["faster_than_both"]) == (1, 1)
    assert found["won"] == {"openvino": 1, "none": 1}


def test_a_table_never_mixes_commits_cpus_or_settings() -> None:
    kept = [
        _row("minilm"), _row("magika", part="unseen"), _row("minilm", commit="def"), _row("minilm", cpu="another"),
        _row("minilm", threads=2), _row("minilm", without=["in-network"]),
    ]  # fmt: skip
    found = zoo_latency.report(kept, FACTS)
    assert [row["model"] for row in found["rows"]] == ["minilm", "magika"]
    assert found["left_out"] == {"other_commit_or_cpu": 2, "other_settings": 2}
    assert {part: found["summary"][part]["models"] for part in found["summary"]} == {"all": 2, "seen": 1, "unseen": 1}


def test_a_page_shows_rows_with_intervals_and_why_others_have_none() -> None:
    failed = {**_row("magika", part="unseen"), **zoo_latency.columns({}), "reason": "the job is hung"}
    head, rule, minilm, magika = zoo_latency.markdown([_row(), failed]).splitlines()
    assert head.count("|") == rule.count("|") == minilm.count("|") == magika.count("|")
    assert minilm == "| minilm | 2.00 | 1.50 | 3.00 | 3.00 | 0.50 | 0.93 (0.90 to 1.00) | 480 s |"
    assert magika == "| magika, unseen |  |  |  |  | the job is hung |  |  |"


def test_the_page_of_measurements_shows_the_rows_that_are_kept() -> None:
    page = (latency._ROWS.parent / "measurements.md").read_text()
    kept = set(zoo_latency.markdown(rows.read(latency._ROWS)).splitlines())
    shown = [line for line in page.splitlines() if line.endswith(" s |") and line.startswith("| ")]
    tables = [line for line in shown if line.split(" | ")[0].removeprefix("| ").removesuffix(", unseen") in zoo.MODELS]
    assert len(tables) >= 10
    assert set(tables) <= kept


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TUNESMITH_HOME", str(tmp_path))
    monkeypatch.setattr(zoo_latency.environments, "install", lambda *_, **__: Path("python"))
    monkeypatch.setattr(zoo_latency.rows, "commit", lambda: "abc")
    monkeypatch.setattr(zoo, "part", lambda _: ["magika", "minilm"])
    return tmp_path


def test_an_interrupted_run_continues_and_a_model_that_fails_costs_its_row(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tuned: list[str] = []

    def fetch(model: zoo.ZooModel, home: Path) -> Path:
        if model.name == "magika":
            raise ValueError("not the file that was pinned")
        return home / "model.onnx"

    def tune(folder: Path, model: latency.Model, order: latency.Order) -> dict[str, Any]:
        tuned.append(model.name)
        if len(tuned) == 1:
            raise KeyboardInterrupt
        return {"state": "hung", "failure": None}

    monkeypatch.setattr(zoo, "fetch", fetch)
    monkeypatch.setattr(latency, "tune", tune)
    monkeypatch.setattr(latency, "service", lambda *_, **__: contextlib.nullcontext())
    monkeypatch.setattr(latency.Pythons, "of", lambda home: latency.Pythons(home=home, of_engine={}))
    monkeypatch.setattr(latency, "measure", lambda *_, **__: {"ort_ms": 2.0})
    arguments = ["--zoo", "seen", "--rows", str(home / "rows.json"), "--seconds", "60"]
    with pytest.raises(KeyboardInterrupt):
        latency.main(arguments)
    assert [row["model"] for row in json.loads((home / "rows.json").read_text())] == ["magika"]
    assert latency.main(arguments) == latency.main(arguments) == 0
    assert tuned == ["minilm", "minilm"]
    first, second = json.loads((home / "rows.json").read_text())
    assert (first["reason"], first["vs_ort"]) == ("ValueError: not the file that was pinned", None)
    assert (second["reason"], second["vs_ort"], second["seconds"]) == ("the job is hung", 0.5, 60.0)


def test_rows_are_measured_again_on_request_and_of_some_models_alone(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    measured: list[str] = []

    def row(model: zoo.ZooModel, options: argparse.Namespace, home: Path) -> dict[str, Any]:
        measured.append(model.name)
        return {"model": model.name, "part": "seen", "reason": None, **zoo_latency.columns(MEASURED)}

    monkeypatch.setattr(zoo_latency, "_row", row)
    arguments = ["--zoo", "seen", "--budget", "default", "--rows", str(home / "rows.json")]
    latency.main(arguments)
    assert json.loads(capsys.readouterr().out)["summary"]["all"]["models"] == 2
    latency.main([*arguments, "--again"])
    assert measured == ["magika", "minilm"] * 2
    assert len(json.loads((home / "rows.json").read_text())) == 2
    assert json.loads((home / "rows.json").read_text())[0]["seconds"] is None
    capsys.readouterr()
    latency.main([*arguments, "--again", "--models", "minilm"])
    assert measured[4:] == ["minilm"]
    assert json.loads(capsys.readouterr().out)["summary"]["all"]["models"] == 1
    latency.main([*arguments, "--of", "another"])
    assert json.loads(capsys.readouterr().out)["rows"] == []
    latency.main([*arguments, "--of", rows.commit()])
    assert len(json.loads(capsys.readouterr().out)["rows"]) == 2
    assert len(measured) == 5


def test_a_stopped_run_is_not_a_failure_of_its_model(monkeypatch: pytest.MonkeyPatch) -> None:
    def measure(_: object) -> int:
        try:
            signal.raise_signal(signal.SIGTERM)
        except zoo_latency._FAILURES:
            return 0
        return 0

    loader = SimpleNamespace(import_module=lambda _: SimpleNamespace(main=measure))
    monkeypatch.setattr(bench.__main__, "importlib", loader)
    monkeypatch.setattr("sys.argv", ["bench", "latency"])
    before = signal.getsignal(signal.SIGTERM)
    try:
        assert bench.__main__.main() == 128 + signal.SIGTERM
    finally:
        signal.signal(signal.SIGTERM, before)
