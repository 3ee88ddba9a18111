"""Long stages report how many operators an engine has handled."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

import pytest

from domain.jobs import EventKind
from tests.support.worker.fixtures import Bench
from worker.pipeline import operator_progress


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    made = SimpleNamespace(now=100.0)
    monkeypatch.setattr(operator_progress, "time", SimpleNamespace(monotonic=lambda: made.now))
    return made


def counts(clock: SimpleNamespace, step: str, *, total: int | None, seconds: float, count: int) -> Any:
    def events() -> Any:
        for done in range(1, count + 1):
            clock.now += seconds / count
            yield "progress", {"step": step, "done": done, "total": total}

    return events()


def messages(bench: Bench, job_id: str) -> list[tuple[str, str]]:
    told = [event.data for event in bench.events(job_id, EventKind.STAGE)]
    return [(data["stage"], data["message"]) for data in told if data["status"] == "working"]


def test_each_long_step_is_reported(bench: Bench, clock: SimpleNamespace) -> None:
    def tells(method: str, params: dict[str, Any]) -> Any:
        if method == "check":
            return counts(clock, "import", total=6, seconds=6.0, count=6)
        if method == "compile" and "untuned" in params["out_dir"]:
            built = counts(clock, "build", total=43, seconds=8.0, count=43)
            return itertools.chain(built, [("progress", {"step": "generate", "done": 0, "total": 30})])
        if method == "extract":
            return counts(clock, "extract", total=None, seconds=4.0, count=2)
        return [("progress", {"step": "<b>", "done": 1, "total": 1}), ("progress", {"step": "build"})]

    bench.script.tells = tells
    job_id = bench.succeed(trials=8)
    told = messages(bench, job_id)
    assert told[:3] == [
        ("import", "relay imported 1 of 6 operators"),
        ("import", "relay imported 3 of 6 operators"),
        ("import", "relay imported 5 of 6 operators"),
    ]
    # Extraction runs beside the builds.
    assert ("baseline", "relay examined 2 operators") in told
    builds = [message for stage, message in told if stage == "baseline" and "examined" not in message]
    assert builds[-1] == "relay generates code for 30 operators"
    assert 3 <= len(builds[:-1]) <= 5
    assert all(message.startswith("relay built ") and message.endswith(" of 43 operators") for message in builds[:-1])


def test_a_step_of_an_hour_is_reported_fifty_times(bench: Bench, clock: SimpleNamespace) -> None:
    def tells(method: str, params: dict[str, Any]) -> Any:
        untuned = method == "compile" and "untuned" in params["out_dir"]
        return counts(clock, "build", total=3600, seconds=3600.0, count=3600) if untuned else ()

    bench.script.tells = tells
    told = messages(bench, bench.run(trials=8))
    assert 45 <= len(told) <= 50
