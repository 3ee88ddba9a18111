"""Messages of jobs' ends: written with the end itself, sent by one at a time, never lost."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from domain import errors
from domain.jobs import Job, JobState, Lease
from domain.webhooks import Delivery, Webhook
from storage import jobs, webhooks
from storage.database import Database
from tests.support.storage.factories import NOW, add_job

WEBHOOK = Webhook(url="https://hooks.example.com/a?key=b", secret="whsec_" + "a" * 43 + "=")
LATER = NOW + timedelta(minutes=5)
MINUTE = timedelta(minutes=1)


def told(session: Session) -> Job:
    """A queued job with a webhook."""
    job = add_job(session)
    webhooks.attach(session, job.id, WEBHOOK)
    return job


def lease_of(session: Session, job_id: str) -> Lease:
    job = jobs.claim(session, job_id, worker_id="w1", now=NOW, lease_seconds=60, max_attempts=1)
    assert job
    assert job.lease
    return job.lease


def ended(session: Session) -> Delivery:
    """The message of a job that was canceled."""
    job = told(session)
    jobs.request_cancel(session, job.id, now=NOW)
    (delivery,) = webhooks.deliveries(session, job.id)
    return delivery


def finish(session: Session, job_id: str, state: JobState) -> None:
    assert jobs.finish(session, job_id, lease_of(session, job_id), state=state, now=LATER)


def cancel_running(session: Session, job_id: str) -> None:
    lease = lease_of(session, job_id)
    jobs.request_cancel(session, job_id, now=NOW)
    assert webhooks.deliveries(session, job_id) == []
    assert jobs.finish(session, job_id, lease, state=JobState.CANCELED, now=LATER)


def release_canceling(session: Session, job_id: str) -> None:
    lease = lease_of(session, job_id)
    jobs.request_cancel(session, job_id, now=NOW)
    assert jobs.release(session, job_id, lease, now=LATER)


def wear_out(session: Session, job_id: str) -> None:
    lease_of(session, job_id)
    assert jobs.claim(session, job_id, worker_id="w2", now=LATER, lease_seconds=60, max_attempts=1) is None


def wear_out_canceling(session: Session, job_id: str) -> None:
    lease_of(session, job_id)
    jobs.request_cancel(session, job_id, now=NOW)
    assert jobs.claim(session, job_id, worker_id="w2", now=LATER, lease_seconds=60, max_attempts=1) is None


ENDS: dict[str, tuple[Callable[[Session, str], object], JobState]] = {
    "succeeds": (lambda session, job_id: finish(session, job_id, JobState.SUCCEEDED), JobState.SUCCEEDED),
    "fails": (lambda session, job_id: finish(session, job_id, JobState.FAILED), JobState.FAILED),
    "is canceled while queued": (
        lambda session, job_id: jobs.request_cancel(session, job_id, now=LATER),
        JobState.CANCELED,
    ),
    "is canceled while running": (cancel_running, JobState.CANCELED),
    "is given back while canceling": (release_canceling, JobState.CANCELED),
    "used up its attempts": (wear_out, JobState.FAILED),
    "used up its attempts while canceling": (wear_out_canceling, JobState.CANCELED),
}


@pytest.mark.parametrize("how", ENDS)
def test_every_end_makes_one_message(session: Session, how: str) -> None:
    end, state = ENDS[how]
    job = told(session)
    assert webhooks.deliveries(session, job.id) == []
    end(session, job.id)
    assert jobs.get(session, job.id).state is state
    (delivery,) = webhooks.deliveries(session, job.id)
    assert (delivery.job_id, delivery.url, delivery.attempts) == (job.id, WEBHOOK.url, 0)
    assert (delivery.created_at, delivery.next_attempt_at, delivery.delivered_at) == (LATER, LATER, None)
    assert webhooks.due(session, now=LATER, limit=10) == [delivery]


def test_a_job_that_goes_on_makes_none(session: Session) -> None:
    job = told(session)
    assert jobs.release(session, job.id, lease_of(session, job.id), now=NOW)
    assert webhooks.deliveries(session, job.id) == []


def test_a_job_without_a_webhook_makes_none(session: Session) -> None:
    job = add_job(session)
    jobs.request_cancel(session, job.id, now=NOW)
    assert webhooks.deliveries(session, job.id) == []
    assert webhooks.of_job(session, job.id) is None


def test_an_end_that_is_rolled_back_makes_none(database: Database) -> None:
    with database.transaction() as session:
        job = told(session)

    def cancel_in_vain() -> None:
        with database.transaction() as session:
            jobs.request_cancel(session, job.id, now=NOW)
            assert webhooks.deliveries(session, job.id)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        cancel_in_vain()
    with database.reading() as session:
        assert webhooks.deliveries(session, job.id) == []
        assert jobs.get(session, job.id).state is JobState.QUEUED


def test_the_secret_is_kept_and_not_shown(session: Session) -> None:
    job = told(session)
    assert webhooks.of_job(session, job.id) == WEBHOOK
    assert WEBHOOK.secret not in repr(WEBHOOK)


def test_a_failing_statement_does_not_tell_the_secret(session: Session) -> None:
    job = told(session)
    session.expunge_all()
    with session.begin_nested(), pytest.raises(IntegrityError) as failed:
        webhooks.attach(session, job.id, WEBHOOK)
    assert WEBHOOK.secret not in str(failed.value)


def test_a_claim_counts_and_comes_back(session: Session) -> None:
    delivery = ended(session)
    claimed = webhooks.claim(session, delivery, now=NOW, seconds=60)
    assert claimed
    assert (claimed.attempts, claimed.next_attempt_at) == (1, NOW + MINUTE)
    assert webhooks.claim(session, delivery, now=NOW, seconds=60) is None
    assert webhooks.due(session, now=NOW + MINUTE / 2, limit=10) == []
    assert webhooks.due(session, now=NOW + MINUTE, limit=10) == [claimed]


def test_the_many_messages_of_one_owner_leave_room_for_those_of_others(session: Session) -> None:
    request = add_job(session).request
    owners = ["ann"] * 60 + ["ben"] * 2
    for number, owner in enumerate(owners):
        job = jobs.create(session, request, now=NOW, owner=owner)
        webhooks.attach(session, job.id, WEBHOOK)
        jobs.request_cancel(session, job.id, now=NOW + number * timedelta(seconds=1))
    due = webhooks.due(session, now=LATER, limit=500)
    assert [jobs.get(session, delivery.job_id).owner for delivery in due] == ["ann"] * 50 + ["ben"] * 2
    times = [delivery.next_attempt_at for delivery in due]
    assert times == sorted(NOW + timedelta(seconds=second) for second in (*range(50), 60, 61))
    assert webhooks.due(session, now=LATER, limit=10) == due[:10]


def test_what_was_seen_due_is_not_sent_before_its_new_time(session: Session) -> None:
    seen = ended(session)
    claimed = webhooks.claim(session, seen, now=NOW, seconds=60)
    assert claimed
    assert webhooks.note_failed(session, claimed, status=500, error="500", next_attempt_at=LATER)
    assert webhooks.claim(session, seen, now=LATER, seconds=60) is None
    assert webhooks.claim(session, claimed, now=NOW + MINUTE, seconds=60) is None
    assert webhooks.claim(session, claimed, now=LATER, seconds=60)


def test_a_delivered_message_is_done(session: Session) -> None:
    claimed = webhooks.claim(session, ended(session), now=NOW, seconds=60)
    assert claimed
    webhooks.note_delivered(session, claimed, status=204, now=LATER)
    (done,) = webhooks.deliveries(session, claimed.job_id)
    assert (done.delivered_at, done.next_attempt_at, done.last_status, done.last_error) == (LATER, None, 204, None)
    assert webhooks.due(session, now=LATER + MINUTE, limit=10) == []
    assert not webhooks.note_failed(session, claimed, status=500, error="500", next_attempt_at=LATER)


def test_the_failure_of_an_attempt_that_was_overtaken_is_not_noted(session: Session) -> None:
    first = webhooks.claim(session, ended(session), now=NOW, seconds=60)
    assert first
    second = webhooks.claim(session, first, now=LATER, seconds=60)
    assert second
    assert not webhooks.note_failed(session, first, status=None, error="slow", next_attempt_at=None)
    webhooks.note_delivered(session, first, status=200, now=LATER)
    (done,) = webhooks.deliveries(session, first.job_id)
    assert (done.attempts, done.delivered_at) == (2, LATER)


def test_a_message_that_was_given_up_is_sent_again_when_somebody_asks(session: Session) -> None:
    claimed = webhooks.claim(session, ended(session), now=NOW, seconds=60)
    assert claimed
    assert webhooks.note_failed(session, claimed, status=410, error="gone", next_attempt_at=None)
    assert webhooks.due(session, now=LATER, limit=10) == []
    (again,) = webhooks.resend(session, claimed.job_id, now=LATER)
    assert (again.id, again.attempts, again.next_attempt_at, again.last_error) == (claimed.id, 1, LATER, "gone")
    assert webhooks.due(session, now=LATER, limit=10) == [again]


def test_a_failing_attempt_does_not_undo_that_somebody_asked_for_another(session: Session) -> None:
    claimed = webhooks.claim(session, ended(session), now=NOW, seconds=60)
    assert claimed
    (again,) = webhooks.resend(session, claimed.job_id, now=NOW + MINUTE / 2)
    for next_attempt_at in (LATER, None):
        assert not webhooks.note_failed(session, claimed, status=500, error="500", next_attempt_at=next_attempt_at)
    assert webhooks.due(session, now=NOW + MINUTE / 2, limit=10) == [again]


def test_nothing_is_sent_again_before_there_was_anything(session: Session) -> None:
    with pytest.raises(errors.Conflict, match="without a webhook"):
        webhooks.resend(session, add_job(session).id, now=NOW)
    with pytest.raises(errors.JobNotFinished):
        webhooks.resend(session, told(session).id, now=NOW)


def test_of_many_that_claim_an_attempt_one_gets_it(database: Database) -> None:
    with database.transaction() as session:
        delivery = ended(session)

    def attempt(_: int) -> bool:
        with database.transaction() as session:
            return webhooks.claim(session, delivery, now=NOW, seconds=60) is not None

    with ThreadPoolExecutor(16) as pool:
        assert sum(pool.map(attempt, range(48))) == 1
