from __future__ import annotations

from typing import Any

from bench.coverage_cell import why_none_worked


def _failure(error: str, message: str | None) -> dict[str, Any]:
    return {"error": error, "error_message": message}


def test_failures_are_counted_by_kind_with_the_first_message() -> None:
    trials = [
        _failure("run_timeout", None),
        _failure("invalid_schedule", "Check failed: (x)\n  0: somewhere"),
        _failure("invalid_schedule", "Check failed: (y)"),
    ]
    told = why_none_worked(trials)
    assert told == "every trial failed: 2 invalid_schedule, 1 run_timeout; the first: Check failed: (x)"


def test_failures_without_a_message_are_counted_all_the_same() -> None:
    assert why_none_worked([_failure("run_timeout", None)]) == "every trial failed: 1 run_timeout"
    assert why_none_worked([]) == "no trial was made"
