from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from bench import coverage, zoo

RELAY, RELAX = "relay + autotvm", "relax + metaschedule"


def _row(model: str, route: str, *, verified: bool = True, tuned: bool = True, reason: str | None = None) -> Any:
    found = {"imports": True, "verified": verified, "tuned": tuned, "reason": reason, "seconds": 2.5, "peak_mb": 300}
    return {"model": model, "route": route, **found, "commit": "abc", "cpu": "a CPU"}


ROWS = [
    _row("ppocr-cls", RELAY),
    _row("ppocr-cls", RELAX, tuned=False, reason="nothing in it can be tuned"),
    _row("crnn-ocr", RELAY),
    _row(
        "crnn-ocr", RELAX, verified=False, tuned=False, reason="unsupported_operators: TVM cannot import: LSTM | <1×>"
    ),
]


def _failure(error: str, message: str | None) -> dict[str, Any]:
    return {"error": error, "error_message": message}


def test_failures_are_counted_by_kind_with_the_first_message() -> None:
    trials = [
        _failure("run_timeout", None),
        _failure("invalid_schedule", "Check failed: (x)\n  0: somewhere"),
        _failure("invalid_schedule", "Check failed: (y)"),
    ]
    told = coverage.why_none_worked(trials)
    assert told == "every trial failed: 2 invalid_schedule, 1 run_timeout; the first: Check failed: (x)"


def test_failures_without_a_message_are_counted_all_the_same() -> None:
    assert coverage.why_none_worked([_failure("run_timeout", None)]) == "every trial failed: 1 run_timeout"
    assert coverage.why_none_worked([]) == "no trial was made"


def test_the_page_counts_models_and_says_why_some_failed() -> None:
    page = coverage.page(ROWS)
    assert "| measured | 2 | 2 |\n| imports | 2 | 2 |\n| verified | 2 | 1 |\n| tuned | 2 | 0 |" in page
    assert f"* crnn-ocr, {RELAX}: unsupported_operators: TVM cannot import: LSTM \\| &lt;1×>" in page
    assert f"* ppocr-cls, {RELAX}: nothing in it can be tuned" in page
    assert f"Of {len(zoo.MODELS)} models, 2 were measured and 2 are verified on some engine" in page


def test_the_page_of_the_repository_is_that_of_its_table() -> None:
    assert coverage._PAGE.read_text() == coverage.page(coverage.read_table(coverage._TABLE.read_text()))


def test_the_table_has_a_line_for_each_model_and_route() -> None:
    lines = list(csv.DictReader(coverage.table(ROWS[::-1]).splitlines()))
    assert [(line["model"], line["route"]) for line in lines] == [(row["model"], row["route"]) for row in ROWS]
    assert (lines[0]["family"], lines[0]["part"], lines[0]["peak_mb"]) == ("OCR", "seen", "300")


def test_rows_of_the_table_are_read_as_they_were_written() -> None:
    written = coverage.table(ROWS)
    read = coverage.read_table(written)
    assert [(row["model"], row["route"], row["verified"]) for row in read] == [
        (row["model"], row["route"], row["verified"]) for row in coverage._in_order(ROWS)
    ]
    assert coverage.table(read) == written
    assert coverage.page(read) == coverage.page(ROWS)


def test_a_model_counts_as_reached_if_one_engine_gets_there() -> None:
    assert coverage.summary(ROWS) == {"models": 2, "imports": 2, "verified": 2, "tuned": 2}


def test_finished_rows_are_kept_and_others_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = tmp_path / "rows.json"
    rows.write_text(json.dumps(ROWS[:1]))
    asked: list[tuple[str, str]] = []

    def attempt(model: str, route: str, options: Any) -> dict[str, Any]:
        asked.append((model, route))
        return {"imports": True, "verified": True, "tuned": True, "reason": None}

    monkeypatch.setenv("TUNESMITH_HOME", str(tmp_path))
    monkeypatch.setattr(coverage, "_prepare", lambda model, home, folder: model.name)
    monkeypatch.setattr(coverage, "_attempt", attempt)
    monkeypatch.setattr(coverage.rows, "commit", lambda: "abc")
    arguments = ["--models", "ppocr-cls", "--rows", str(rows), "--json"]
    assert coverage.main(arguments) == coverage.main(arguments) == 0
    assert asked == [("ppocr-cls", RELAX)]
    kept = json.loads(rows.read_text())
    assert [row["route"] for row in kept] == [RELAY, RELAX]
    assert kept[1]["commit"] == "abc"
    assert kept[1]["cpu"]
    assert '"tuned": 1' in capsys.readouterr().out


def test_unseen_models_are_measured_only_on_request() -> None:
    def chosen(*arguments: str) -> set[str]:
        return set(coverage.chosen(coverage._options(arguments)))

    seen, unseen = chosen(), chosen("--part", "unseen")
    assert seen.isdisjoint(unseen)
    assert seen | unseen == chosen("--part", "all") == set(zoo.MODELS)
    assert chosen("--quick") == set(coverage.QUICK)
    assert not any(zoo.MODELS[name].unseen for name in coverage.QUICK)
