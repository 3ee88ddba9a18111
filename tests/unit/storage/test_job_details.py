"""Stages, events, workers and remembered requests."""

from __future__ import annotations

from datetime import timedelta

import pytest
from sqlalchemy.orm import Session

from domain import errors
from domain.jobs import EventKind, Lease, Stage
from domain.stage_results import BaselineResult, ImportResult, PlanResult
from storage import events, idempotency, jobs, stages, workers
from tests.support import stage_results
from tests.support.storage.factories import NOW, add_job, worker

LATER = NOW + timedelta(seconds=90)


def test_a_stage_keeps_what_it_found(session: Session, held: tuple[str, Lease]) -> None:
    job_id, lease = held
    imported, baseline = stage_results.made(ImportResult), stage_results.made(BaselineResult)
    assert stages.result(session, job_id, ImportResult) is None
    assert stages.save(session, job_id, lease, baseline, started_at=NOW, finished_at=LATER)
    assert stages.save(session, job_id, lease, imported, started_at=NOW, finished_at=NOW)
    assert stages.result(session, job_id, ImportResult) == imported
    timeline = stages.timeline(session, job_id)
    assert [finished.stage for finished in timeline] == [Stage.IMPORT, Stage.BASELINE]
    assert [finished.seconds for finished in timeline] == [0, 90]
    assert [finished.result for finished in timeline] == [imported, baseline]


def test_a_stage_that_ran_again_keeps_the_last_result(session: Session, held: tuple[str, Lease]) -> None:
    job_id, lease = held
    for number in (1, 2):
        result = stage_results.made(PlanResult, tasks=number)
        assert stages.save(session, job_id, lease, result, started_at=NOW, finished_at=NOW)
        assert stages.result(session, job_id, PlanResult) == result
    assert len(stages.timeline(session, job_id)) == 1


def test_a_stage_of_a_lost_lease_is_not_kept(session: Session, held: tuple[str, Lease]) -> None:
    job_id, lease = held
    assert jobs.claim(session, job_id, worker_id="w2", now=LATER, lease_seconds=60, max_attempts=3)
    assert not stages.save(session, job_id, lease, stage_results.of(Stage.IMPORT), started_at=NOW, finished_at=NOW)
    assert stages.timeline(session, job_id) == []


def test_events_are_read_on_from_the_last_one_seen(session: Session, held: tuple[str, Lease]) -> None:
    job_id, _ = held
    other = add_job(session).id
    numbers = [events.append(session, job_id, EventKind.NOTE, {"n": n}, now=NOW) for n in range(5)]
    events.append(session, other, EventKind.NOTE, {"n": 99}, now=NOW)
    assert numbers == sorted(numbers)
    seen = events.after(session, job_id, numbers[1], 2)
    assert [(event.id, event.data["n"]) for event in seen] == [(numbers[2], 2), (numbers[3], 3)]
    assert (seen[0].kind, seen[0].job_id, seen[0].at) == (EventKind.NOTE, job_id, NOW)
    assert events.after(session, job_id, numbers[-1], 10) == []


def test_events_belong_to_a_job(session: Session) -> None:
    with pytest.raises(errors.JobNotFound):
        events.append(session, "j-nothing", EventKind.NOTE, {}, now=NOW)
    assert events.after(session, "j-nothing", 0, 10) == []


def test_a_worker_is_known_by_its_last_beat(session: Session) -> None:
    workers.beat(session, worker())
    workers.beat(session, worker(now=LATER, current_job="j-1"))
    workers.beat(session, worker("host:2:2"))
    assert workers.known(session) == [worker(now=LATER, current_job="j-1"), worker("host:2:2")]
    assert workers.known(session, seen_since=LATER) == [worker(now=LATER, current_job="j-1")]


def test_workers_that_are_gone_are_forgotten(session: Session) -> None:
    workers.beat(session, worker("old"))
    workers.beat(session, worker("new", now=LATER))
    workers.beat(session, worker("stopped", now=LATER))
    assert workers.forget_gone(session, seen_before=LATER) == 1
    assert workers.forget(session, ["stopped", "never was"]) == 1
    assert [known.id for known in workers.known(session)] == ["new"]


def asked(key: str, said: str) -> idempotency.IdempotentRequest:
    request = idempotency.IdempotentRequest.of(key, "local", said)
    assert request is not None
    return request


def test_a_repeated_request_gets_the_same_answer(session: Session) -> None:
    assert asked("key", "request").recall(session, now=NOW) is None
    asked("key", "request").remember(session, "j-1", now=NOW)
    assert asked("key", "request").recall(session, now=NOW) == "j-1"
    assert asked("k" * 10_000, "request").recall(session, now=NOW) is None
    with pytest.raises(errors.IdempotencyMismatch):
        asked("key", "another request").recall(session, now=NOW)


def test_of_two_requests_with_one_key_the_second_is_not_answered(session: Session) -> None:
    asked("key", "request").remember(session, "j-1", now=NOW)
    with pytest.raises(errors.Conflict):
        asked("key", "request").remember(session, "j-2", now=NOW)
    assert asked("key", "request").recall(session, now=NOW) == "j-1"


def test_answers_are_forgotten_in_time(session: Session) -> None:
    asked("old", "request").remember(session, "j-1", now=NOW)
    asked("new", "request").remember(session, "j-2", now=LATER)
    late = LATER + idempotency.KEPT
    assert asked("new", "request").recall(session, now=late) == "j-2"
    assert idempotency.forget(session, made_before=LATER) == 1
    assert asked("old", "request").recall(session, now=NOW) is None
    assert asked("new", "request").recall(session, now=NOW) == "j-2"


def test_an_answer_that_nobody_forgot_yet_is_too_old_all_the_same(session: Session) -> None:
    asked("key", "request").remember(session, "j-1", now=NOW)
    late = NOW + idempotency.KEPT + timedelta(seconds=1)
    assert asked("key", "another request").recall(session, now=late) is None
    asked("key", "another request").remember(session, "j-2", now=late)
    assert asked("key", "another request").recall(session, now=late) == "j-2"


def test_events_of_many_jobs_are_read_at_once(session: Session) -> None:
    first, second, third = (add_job(session).id for _ in range(3))
    for number in range(4):
        for job_id in (first, second, third):
            events.append(session, job_id, EventKind.NOTE, {"n": number}, now=NOW)
    seen = events.after(session, second, 0, 3)[-1].id
    found = events.newer(session, {first: 0, second: seen, "j-none": 0}, 100)
    assert [event.id for event in found] == sorted(event.id for event in found)
    for job_id, last_id in ((first, 0), (second, seen)):
        theirs = [event for event in found if event.job_id == job_id]
        assert theirs == events.after(session, job_id, last_id, 100)
    assert len(found) == 5 + 2
    assert events.newer(session, {first: 0, second: seen}, 3) == found[:3]


def test_the_newest_event_of_a_job(session: Session, held: tuple[str, Lease]) -> None:
    job_id, _ = held
    every = events.after(session, job_id, 0, 100)
    assert len(every) == 2
    assert events.newest(session, job_id) == every[1].id
    assert events.newest(session, "j-none") == 0


def test_the_last_event_of_a_kind_of_several_jobs(session: Session, held: tuple[str, Lease]) -> None:
    first, second, without = held[0], add_job(session).id, add_job(session).id
    for number in range(3):
        for job_id in (first, second):
            events.append(session, job_id, EventKind.PROGRESS, {"n": number}, now=NOW)
            events.append(session, job_id, EventKind.NOTE, {"n": 99}, now=NOW)
    found = events.latest_of_each(session, [first, second, without, "j-none"], EventKind.PROGRESS)
    assert found == {job_id: events.latest(session, job_id, EventKind.PROGRESS) for job_id in (first, second)}
    assert [event.data["n"] for event in found.values()] == [2, 2]
    assert events.latest_of_each(session, [], EventKind.PROGRESS) == {}


def test_which_jobs_have_ended(session: Session, held: tuple[str, Lease]) -> None:
    job_id, _ = held
    canceled = jobs.request_cancel(session, add_job(session).id, now=NOW)
    assert events.ended(session, [job_id, canceled.id, "j-none"]) == {canceled.id, "j-none"}


def test_the_last_events_of_some_kinds(session: Session, held: tuple[str, Lease]) -> None:
    job_id, _ = held
    for number in range(4):
        events.append(session, job_id, EventKind.PROGRESS, {"n": number}, now=NOW)
        events.append(session, job_id, EventKind.NOTE, {"n": number}, now=NOW)
    events.append(session, add_job(session).id, EventKind.NOTE, {"n": 99}, now=NOW)
    found = events.of_kinds(session, job_id, [EventKind.NOTE, EventKind.STAGE], 3)
    assert [(event.kind, event.data["n"]) for event in found] == [(EventKind.NOTE, n) for n in (1, 2, 3)]
