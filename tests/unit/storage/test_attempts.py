"""A job that loses worker after worker: it rests longer each time, and ends in the end."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from sqlalchemy.orm import Session

from domain.jobs import Job, JobState
from storage import events, jobs, queue
from tests.support.storage.factories import NOW, add_job

LEASE, PAUSE, MOST = 60.0, 10.0, 5
RESTS = (0, 10, 20, 40)
"""Seconds after the first, second, … lost lease."""


def claim(session: Session, job_id: str, now: datetime, **changes: Any) -> Job | None:
    options: dict[str, Any] = {"lease_seconds": LEASE, "max_attempts": MOST, "pause": PAUSE} | changes
    return jobs.claim(session, job_id, worker_id="w", now=now, **options)


def waiting(session: Session, now: datetime) -> list[str]:
    return list(queue.in_order(session, queue.Rules(now=now, judging=now, pause=PAUSE, max_attempts=MOST)))


def test_a_job_rests_longer_each_time_it_loses_its_worker(session: Session) -> None:
    job_id, now = add_job(session).id, NOW
    for attempt, rest in enumerate(RESTS, start=1):
        job = claim(session, job_id, now)
        assert job
        assert job.attempts == attempt
        ended = now + timedelta(seconds=LEASE)
        if rest:
            early = ended + timedelta(seconds=rest - 1)
            assert waiting(session, early) == []
            assert claim(session, job_id, early) is None
        now = ended + timedelta(seconds=rest)
        assert waiting(session, now) == [job_id]
    assert claim(session, job_id, now)
    # The last attempt is lost too: there is nothing to rest for.
    now += timedelta(seconds=LEASE)
    assert waiting(session, now) == [job_id]
    assert claim(session, job_id, now) is None
    failed = jobs.get(session, job_id)
    assert failed.state is JobState.FAILED
    assert failed.failure
    assert failed.failure.code == "attempts_exhausted"
    assert "5 times" in failed.failure.message
    assert failed.failure.hint
    assert events.after(session, job_id, 0, 100)[-1].data["state"] == "failed"


def test_without_a_pause_nothing_rests(session: Session) -> None:
    job_id = add_job(session).id
    for attempt in range(MOST):
        now = NOW + attempt * timedelta(seconds=LEASE)
        assert jobs.claim(session, job_id, worker_id="w", now=now, lease_seconds=LEASE, max_attempts=MOST)


def test_a_rest_does_not_grow_for_ever(session: Session) -> None:
    job_id, now = add_job(session).id, NOW
    for _ in range(12):
        assert claim(session, job_id, now, max_attempts=100)
        now += timedelta(seconds=LEASE + PAUSE * 2**5)
    assert jobs.get(session, job_id).attempts == 12


@pytest.mark.parametrize("seconds", [0, 1800])
def test_who_doubts_the_time_judges_leases_by_another(session: Session, seconds: float) -> None:
    job_id = add_job(session).id
    assert claim(session, job_id, NOW)
    leapt = NOW + timedelta(hours=1)
    before = NOW + timedelta(seconds=seconds)
    held = seconds < LEASE
    ids = list(queue.in_order(session, queue.Rules(now=leapt, judging=before, max_attempts=MOST)))
    assert ids == ([] if held else [job_id])
    assert (claim(session, job_id, leapt, judging=before) is None) == held
