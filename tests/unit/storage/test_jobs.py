"""A job's life: every change of state has one winner and one event."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy.orm import Session

from domain import errors
from domain.jobs import FINAL_STATES, EventKind, Failure, Job, JobState, Lease, Stage, Tuner
from storage import events, jobs
from storage.database import Database
from storage.tables import digest_of
from tests.support.storage.factories import DIGEST, NOW, PLACEMENT, add_job, add_model

LATER = NOW + timedelta(minutes=5)


def claim(session: Session, job_id: str, worker_id: str = "w1", **changes: Any) -> Job | None:
    options: dict[str, Any] = {"now": NOW, "lease_seconds": 60, "max_attempts": 3} | changes
    return jobs.claim(session, job_id, worker_id=worker_id, **options)


def claimed(session: Session, **request: Any) -> tuple[str, Lease]:
    job = claim(session, add_job(session, **request).id)
    assert job
    assert job.lease
    return job.id, job.lease


def states(session: Session, job_id: str) -> list[str]:
    return [event.data["state"] for event in events.after(session, job_id, 0, 100) if event.kind == EventKind.STATE]


def test_a_new_job_waits_with_what_was_asked(session: Session) -> None:
    made = add_job(session, input_shapes={"x": (1, 3, 48, 192)}, threads=2, labels={"branch": "main"})
    job = jobs.get(session, made.id)
    assert job == made
    assert job.state == JobState.QUEUED
    assert job.request.input_shapes == {"x": (1, 3, 48, 192)}
    assert (job.stage, job.lease, job.attempts, job.started_at) == (None, None, 0, None)
    assert job.created_at == NOW
    assert states(session, job.id) == ["queued"]


def test_unknown_models_and_jobs_are_named(session: Session) -> None:
    with pytest.raises(errors.JobNotFound, match="j-nothing"):
        jobs.get(session, "j-nothing")
    with pytest.raises(errors.JobNotFound):
        claim(session, "j-nothing")
    job = add_job(session)
    with pytest.raises(errors.ModelNotFound, match="0000"):
        jobs.create(session, replace(job.request, model_digest="0" * 64), now=NOW)


def test_a_claim_takes_a_lease(session: Session) -> None:
    job = claim(session, add_job(session).id)
    assert job
    assert job.state == JobState.RUNNING
    assert job.lease == Lease(worker_id="w1", attempt=1, expires_at=NOW + timedelta(seconds=60))
    assert (job.attempts, job.started_at) == (1, NOW)
    assert claim(session, job.id, "w2") is None
    assert states(session, job.id) == ["queued", "running"]


@pytest.mark.parametrize("state", [JobState.RUNNING, JobState.CANCELING])
def test_an_expired_lease_passes_on_and_the_state_stays(session: Session, state: JobState) -> None:
    job_id, lease = claimed(session)
    if state == JobState.CANCELING:
        jobs.request_cancel(session, job_id, now=NOW)
    job = claim(session, job_id, "w2", now=LATER)
    assert job
    assert job.lease
    assert (job.state, job.lease.attempt, job.attempts, job.started_at) == (state, 2, 2, NOW)
    assert not jobs.renew(session, job_id, lease, now=LATER, lease_seconds=60)
    assert jobs.renew(session, job_id, job.lease, now=LATER, lease_seconds=60)


def test_who_lost_the_lease_writes_nothing(session: Session) -> None:
    job_id, old = claimed(session)
    before = claim(session, job_id, "w2", now=LATER)
    assert not jobs.holds(session, job_id, old)
    assert not jobs.set_stage(session, job_id, old, Stage.TUNE)
    assert not jobs.set_placement(session, job_id, old, PLACEMENT)
    assert not jobs.set_progress(session, job_id, old, trials_done=1, trials_planned=2)
    assert not jobs.release(session, job_id, old, now=LATER)
    assert not jobs.finish(session, job_id, old, state=JobState.SUCCEEDED, now=LATER)
    assert jobs.get(session, job_id) == before


def test_the_same_worker_with_an_older_attempt_lost_it_too(session: Session) -> None:
    job_id, old = claimed(session)
    assert jobs.release(session, job_id, old, now=NOW)
    again = claim(session, job_id, "w1")
    assert again
    assert again.lease
    assert not jobs.set_stage(session, job_id, old, Stage.TUNE)
    assert not jobs.set_stage(session, job_id, replace(again.lease, worker_id="w2"), Stage.TUNE)
    assert jobs.set_stage(session, job_id, again.lease, Stage.TUNE)


def test_an_expired_lease_that_nobody_took_can_be_renewed(session: Session) -> None:
    job_id, lease = claimed(session)
    assert jobs.renew(session, job_id, lease, now=LATER, lease_seconds=60)
    assert claim(session, job_id, "w2", now=LATER) is None


def test_progress_is_kept(session: Session) -> None:
    job_id, lease = claimed(session)
    assert jobs.set_stage(session, job_id, lease, Stage.TUNE)
    assert jobs.set_placement(session, job_id, lease, PLACEMENT)
    assert jobs.set_progress(session, job_id, lease, trials_done=3, trials_planned=64)
    job = jobs.get(session, job_id)
    assert (job.stage, job.placement, job.trials_done, job.trials_planned) == (Stage.TUNE, PLACEMENT, 3, 64)


def test_a_job_ends_once(session: Session) -> None:
    job_id, lease = claimed(session)
    failure = Failure(code="no_valid_trial", message="none", details={"task": 3})
    assert jobs.finish(session, job_id, lease, state=JobState.FAILED, failure=failure, now=LATER)
    assert not jobs.finish(session, job_id, lease, state=JobState.SUCCEEDED, now=LATER)
    job = jobs.get(session, job_id)
    assert (job.state, job.failure, job.lease, job.finished_at) == (JobState.FAILED, failure, None, LATER)
    last = events.after(session, job_id, 0, 100)[-1]
    assert last.data["failure"]["code"] == "no_valid_trial"
    assert claim(session, job_id, now=LATER) is None


def test_only_final_states_end_a_job(session: Session) -> None:
    job_id, lease = claimed(session)
    with pytest.raises(ValueError, match="queued"):
        jobs.finish(session, job_id, lease, state=JobState.QUEUED, now=NOW)


def test_a_released_job_waits_again_and_its_attempt_does_not_count(session: Session) -> None:
    job_id, lease = claimed(session)
    assert jobs.release(session, job_id, lease, now=NOW)
    job = jobs.get(session, job_id)
    assert (job.state, job.attempts, job.lease) == (JobState.QUEUED, 0, None)
    again = claim(session, job_id, "w2")
    assert again
    assert again.lease
    assert (again.attempts, again.lease.attempt) == (1, 2)
    assert states(session, job_id) == ["queued", "running", "queued", "running"]


def test_a_released_job_that_should_stop_is_canceled(session: Session) -> None:
    job_id, lease = claimed(session)
    jobs.request_cancel(session, job_id, now=NOW)
    assert jobs.release(session, job_id, lease, now=NOW)
    assert jobs.get(session, job_id).state == JobState.CANCELED


def test_a_worn_out_job_that_should_stop_is_canceled(session: Session) -> None:
    job_id, _ = claimed(session)
    jobs.request_cancel(session, job_id, now=NOW)
    assert claim(session, job_id, now=LATER, max_attempts=1) is None
    job = jobs.get(session, job_id)
    assert (job.state, job.failure) == (JobState.CANCELED, None)


def test_canceling_a_queued_job_ends_it(session: Session) -> None:
    job = jobs.request_cancel(session, add_job(session).id, now=LATER)
    assert (job.state, job.finished_at) == (JobState.CANCELED, LATER)
    assert claim(session, job.id) is None
    assert states(session, job.id) == ["queued", "canceled"]


def test_canceling_a_running_job_asks_its_worker(session: Session) -> None:
    job_id, lease = claimed(session)
    assert jobs.request_cancel(session, job_id, now=NOW).state == JobState.CANCELING
    assert jobs.request_cancel(session, job_id, now=NOW).state == JobState.CANCELING
    assert jobs.renew(session, job_id, lease, now=NOW, lease_seconds=60)
    assert jobs.finish(session, job_id, lease, state=JobState.CANCELED, now=LATER)
    assert states(session, job_id) == ["queued", "running", "canceling", "canceled"]


@pytest.mark.parametrize("state", sorted(FINAL_STATES))
def test_what_ended_cannot_be_canceled(session: Session, state: JobState) -> None:
    job_id, lease = claimed(session)
    jobs.finish(session, job_id, lease, state=state, now=NOW)
    with pytest.raises(errors.JobAlreadyFinished, match=state):
        jobs.request_cancel(session, job_id, now=NOW)


def test_leases_of_the_dead_end_at_once(session: Session) -> None:
    job_id, _ = claimed(session)
    other = claim(session, add_job(session).id, "w2")
    assert jobs.expire_dead(session, worker_ids=["w1", "w9"], now=NOW + timedelta(seconds=1)) == 1
    assert jobs.expire_dead(session, worker_ids=[], now=NOW + timedelta(seconds=1)) == 0
    assert other
    assert claim(session, other.id, "w3", now=NOW + timedelta(seconds=1)) is None
    assert claim(session, job_id, "w2", now=NOW + timedelta(seconds=1))


def test_jobs_are_listed_newest_first_in_stable_pages(session: Session) -> None:
    made = [add_job(session, now=NOW + timedelta(seconds=n // 3)).id for n in range(10)]
    first, token = jobs.page(session, limit=4)
    add_job(session, now=LATER)
    second, token = jobs.page(session, limit=4, page_token=token)
    third, last = jobs.page(session, limit=4, page_token=token)
    listed = [job.id for job in first + second + third]
    assert sorted(listed) == sorted(made)
    assert [job.created_at for job in first + second + third] == sorted(
        (job.created_at for job in first + second + third), reverse=True
    )
    assert last is None


def test_a_full_last_page_has_no_next(session: Session) -> None:
    add_job(session)
    assert jobs.page(session, limit=1)[1] is None


def test_jobs_are_listed_by_state_model_and_label(session: Session) -> None:
    other = digest_of("another model")
    add_model(session, other)
    queued = add_job(session, labels={"branch": "main", "run": "7"}).id
    running, _ = claimed(session, labels={"branch": "dev"}, model_digest=other)

    def found(**filters: Any) -> list[str]:
        return [job.id for job in jobs.page(session, limit=10, **filters)[0]]

    assert found(state=JobState.QUEUED) == [queued]
    assert found(model_digest=other) == [running]
    assert found(label=("branch", "main")) == [queued]
    assert found(label=("branch", "dev"), model_digest=DIGEST) == []


def test_jobs_are_listed_by_target_tuner_and_time(session: Session) -> None:
    early = add_job(session, now=NOW, target="llvm -mcpu=znver3", tuner=Tuner.ANSOR).id
    resolved, lease = claimed(session)
    assert jobs.set_placement(session, resolved, lease, PLACEMENT)
    late = add_job(session, now=LATER).id

    def found(**filters: Any) -> set[str]:
        return {job.id for job in jobs.page(session, limit=10, **filters)[0]}

    assert found(tuner=Tuner.ANSOR) == {early}
    assert found(target="llvm -mcpu=znver3") == {early, resolved}
    assert found(target=PLACEMENT.target.identity) == {resolved}
    assert found(target="native") == {resolved, late}
    assert found(target="llvm -mcpu=znver") == found(target="llvm%") == set()
    assert found(created_before=LATER) == {early, resolved}
    assert found(created_after=LATER) == {late}
    assert found(created_after=NOW, created_before=NOW) == set()


@pytest.mark.parametrize(
    ("text", "found"),
    [("CLS", 3), ("nightly", 1), ("ightl", 1), ("MAI", 1), ("j-", 3), ("-", 0), ("%", 0), ("_", 0), ("branch", 0)],
)
def test_jobs_by_part_of_a_name(session: Session, text: str, found: int) -> None:
    add_job(session)
    add_job(session, group="nightly")
    add_job(session, labels={"branch": "main"})
    page, _ = jobs.page(session, text=text, limit=10)
    assert len(page) == found


@pytest.mark.parametrize("token", ["", "x", "aGVsbG8", "MjAyNi0wMS0wMSBqLTE", "\N{SNOWMAN}", "a" * 5000])
def test_a_made_up_page_token_is_refused(session: Session, token: str) -> None:
    with pytest.raises(errors.InvalidPageToken):
        jobs.page(session, limit=1, page_token=token)


def test_of_many_that_claim_a_job_one_gets_it(database: Database) -> None:
    with database.transaction() as session:
        job_id = add_job(session).id

    def attempt(number: int) -> str | None:
        with database.transaction() as session:
            job = claim(session, job_id, f"w{number}")
        return job.lease.worker_id if job and job.lease else None

    with ThreadPoolExecutor(16) as pool:
        winners = [winner for winner in pool.map(attempt, range(48)) if winner]
    assert len(winners) == 1
    with database.reading() as session:
        job = jobs.get(session, job_id)
    assert job.attempts == 1
    assert job.lease
    assert job.lease.worker_id == winners[0]
