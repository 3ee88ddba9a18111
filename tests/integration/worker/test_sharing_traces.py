"""Helpers' spans belong to the trace of the request that made the job, and their log lines tell the job."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from process import logs, tracing
from tests.support.worker.fixtures import Bench
from tests.support.worker.spans import is_child, trace_of
from tests.support.worker.team import check_whole, gathered


def named(spans: InMemorySpanExporter, name: str) -> list[ReadableSpan]:
    return [span for span in spans.get_finished_spans() if span.name == name]


def test_helpers_go_on_with_the_jobs_trace(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, spans: InMemorySpanExporter
) -> None:
    asked: list[Mapping[str, str | int]] = []

    def note(method: str, _: dict[str, Any]) -> None:
        if method == "tune" and threading.current_thread() is not threading.main_thread():
            asked.append(logs.ids())

    bench.script.refuse = note
    with gathered(bench, monkeypatch) as make:
        crew = make(2)
        with tracing.span("POST /v1/jobs"):
            job_id = bench.job(trials=96)
        crew.run(job_id)
    check_whole(bench, job_id, 96)
    [request], [job] = named(spans, "POST /v1/jobs"), named(spans, "job")
    helps, rounds = named(spans, "help"), named(spans, "round")
    assert {trace_of(each) for each in [job, *helps, *rounds]} == {trace_of(request)}
    assert {is_child(each, request) for each in helps} == {True}
    assert all(any(is_child(each, parent) for parent in helps) for each in rounds)
    assert len(rounds) >= sum(crew.rounds.values()) >= 2
    # What engines are asked for within them, and what is logged meanwhile.
    tunes = [each for each in named(spans, "relay tune") if any(is_child(each, parent) for parent in rounds)]
    assert len(tunes) == len(asked) >= 2
    facts = {"tunesmith.job_id": job_id, "tunesmith.attempt": 1, "tunesmith.stage": "tune"}
    for each in rounds:
        told = dict(each.attributes or {})
        assert isinstance(told.pop("tunesmith.round"), int)
        assert isinstance(told.pop("tunesmith.trials"), int)
        assert told == {**facts, "tunesmith.tuner": "autotvm"}
    for ids in asked:
        assert (ids["job_id"], ids["attempt"], ids["stage"]) == (job_id, 1, "tune")
