"""A tuned build that is wrong: the records to blame go, and the gain of the others stays."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any

import pytest

from domain import errors
from domain.artifacts import Variant
from domain.records import Record, TrialError
from tests.support.worker.fixtures import Bench
from tests.support.worker.scripted import refusing

CONV, DENSE = '["conv"]', '["dense"]'


def _run(bench: Bench, **request: Any) -> str:
    return bench.succeed(trials=16, **request)


def _invalidated(bench: Bench, job_id: str) -> list[Record]:
    return [record for record in bench.records(job_id) if record.error is TrialError.WRONG_RESULT]


def _indices(records: Collection[Record]) -> set[tuple[str, int]]:
    return {(record.key.workload_key, json.loads(record.schedule)["index"]) for record in records}


def test_a_wrong_record_costs_itself_and_not_the_tuned_build(bench: Bench) -> None:
    bench.script.poisoned = frozenset({(CONV, 7)})
    job_id = _run(bench)
    assert bench.report(job_id).published is Variant.TUNED
    assert _indices(_invalidated(bench, job_id)) == {(CONV, 7)}
    assert len(bench.script.asked("audit")) == 2
    notes = [note for note in bench.notes(job_id) if "were invalidated: 1" in note]
    assert len(notes) == 1
    assert CONV in notes[0]


def test_what_comes_next_is_audited_too(bench: Bench) -> None:
    bench.script.poisoned = frozenset({(CONV, 7), (CONV, 6), (DENSE, 7)})
    job_id = _run(bench)
    assert bench.report(job_id).published is Variant.TUNED
    assert _indices(_invalidated(bench, job_id)) == bench.script.poisoned
    # One build that was wrong, one that is right.
    assert len([asked for asked in bench.script.asked("compile") if asked["records"]]) == 2


def test_an_operator_whose_records_are_all_wrong_stays_untuned(bench: Bench) -> None:
    bench.script.poisoned = frozenset((CONV, index) for index in range(1000))
    job_id = _run(bench)
    assert bench.report(job_id).published is Variant.TUNED
    # The fastest are known to be wrong; nobody looked at the others.
    assert _indices(_invalidated(bench, job_id)) == {(CONV, index) for index in (7, 6, 5, 4)}


def test_a_invalidated_record_is_a_failure_for_everybody(bench: Bench) -> None:
    bench.script.poisoned = frozenset({(CONV, 7)})
    (bad,) = _invalidated(bench, _run(bench))
    assert (bad.latencies, bad.latency) == ((), None)
    assert bad.error_message is not None
    assert bad.error_message.startswith("off by 0.5 of the largest output")
    # A history tells its native line alone.
    assert json.loads(bad.schedule)["result"][:2] == [["wrong result"], 5]
    again = _run(bench)
    assert bench.report(again).published is Variant.TUNED
    assert len(bench.script.asked("audit")) == 2


def test_a_build_whose_records_are_right_alone_is_given_up(bench: Bench) -> None:
    bench.script.wrong = frozenset({"tuned"})
    job_id = _run(bench)
    assert bench.report(job_id).published is Variant.UNTUNED
    assert _invalidated(bench, job_id) == []
    assert any("each operator alone is correct" in note for note in bench.notes(job_id))
    assert "wrong results" in bench.report(job_id).summary


def test_an_audit_that_fails_costs_the_tuned_build_alone(bench: Bench) -> None:
    bench.script.poisoned = frozenset({(CONV, 7)})
    bench.script.refuse = refusing("audit", errors.EngineCrashed("relay engine: it was killed by SIGKILL"))
    job_id = _run(bench)
    assert bench.report(job_id).published is Variant.UNTUNED
    assert any("could not be checked" in note for note in bench.notes(job_id))


@pytest.mark.parametrize("poisoned", [frozenset(), frozenset({(CONV, 0)})])
def test_nobody_asks_while_the_build_is_right(bench: Bench, poisoned: frozenset[tuple[str, int]]) -> None:
    bench.script.poisoned = poisoned
    _run(bench)
    assert bench.script.asked("audit") == []
