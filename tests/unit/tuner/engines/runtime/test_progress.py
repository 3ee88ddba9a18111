from __future__ import annotations

from typing import Any

from tuner.engines.runtime import progress


def reporting() -> tuple[progress.Progress, list[dict[str, Any]], list[float]]:
    told: list[dict[str, Any]] = []
    now = [0.0]
    return progress.Progress(lambda _kind, data: told.append(data), lambda: now[0]), told, now


def test_operators_are_reported_once_a_second() -> None:
    made, told, now = reporting()
    made.begin("build", 40, counts=True)
    for _ in range(40):
        now[0] += 0.125
        made.advance()
    assert [each["done"] for each in told] == [8, 16, 24, 32, 40]
    assert {(each["step"], each["total"]) for each in told} == {("build", 40)}


def test_a_step_that_counts_nothing_is_reported_at_once() -> None:
    made, told, now = reporting()
    made.begin("fold", None, counts=True)
    now[0] = 2.0
    made.advance()
    made.begin("generate", 7, counts=False)
    assert told == [{"step": "fold", "done": 1, "total": None}, {"step": "generate", "done": 0, "total": 7}]


def test_more_operators_than_expected_raise_the_total() -> None:
    made, told, now = reporting()
    made.begin("import", 1, counts=True)
    now[0] = 1.0
    made.advance()
    now[0] = 2.0
    made.advance()
    assert [(each["done"], each["total"]) for each in told] == [(1, 1), (2, 2)]


def test_only_requests_are_reported() -> None:
    told: list[str] = []
    progress.begin("generate", 1, counts=False)
    progress.advance()
    with progress.told(lambda kind, _data: told.append(kind)):
        assert progress.is_told()
        progress.begin("generate", 1, counts=False)
    assert (told, progress.is_told()) == (["progress"], False)
    assert progress.counting(lambda value: value + 1)(2) == 3
