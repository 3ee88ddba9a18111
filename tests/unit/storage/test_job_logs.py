"""The end of a job's engine log: as much as fits, written by the latest attempt."""

from __future__ import annotations

from datetime import timedelta

from sqlalchemy import delete
from sqlalchemy.orm import Session

from storage import job_logs, jobs
from storage.job_logs import EMPTY, MOST_BYTES, Tail
from storage.tables import JobRow
from tests.support.storage.factories import NOW, add_job


def test_what_was_kept_is_read_again(session: Session) -> None:
    job_id = add_job(session).id
    assert (job_logs.read(session, job_id), job_logs.size(session, job_id)) == (EMPTY, 0)
    tail = Tail(start=3, content=b"tuning \xff\x00\n")
    assert job_logs.keep(session, job_id, 1, tail)
    assert (job_logs.read(session, job_id), job_logs.size(session, job_id)) == (tail, 13)
    longer = tail.then(b"done\n")
    assert job_logs.keep(session, job_id, 1, longer)
    assert job_logs.read(session, job_id) == Tail(start=3, content=b"tuning \xff\x00\ndone\n")


def test_a_tail_forgets_its_beginning() -> None:
    full = EMPTY.then(b"a" * MOST_BYTES)
    grown = full.then(b"the end")
    assert (grown.start, grown.size, len(grown.content)) == (7, MOST_BYTES + 7, MOST_BYTES)
    assert grown.content.endswith(b"athe end")
    leapt = grown.then(b"b" * 10, left_out=100)
    assert (leapt.start, leapt.size, leapt.content) == (MOST_BYTES + 107, MOST_BYTES + 117, b"b" * 10)


def test_an_attempt_that_was_followed_writes_no_more(session: Session) -> None:
    job_id = add_job(session).id
    assert job_logs.begin(session, job_id, 1) == EMPTY
    assert job_logs.keep(session, job_id, 1, EMPTY.then(b"one"))
    known = job_logs.begin(session, job_id, 2)
    assert known.content == b"one"
    assert not job_logs.keep(session, job_id, 1, EMPTY.then(b"one and more"))
    assert job_logs.keep(session, job_id, 2, known.then(b", two"))
    assert job_logs.read(session, job_id).content == b"one, two"


def test_logs_of_jobs_that_ended_long_ago_are_forgotten_a_few_at_a_time(session: Session) -> None:
    old = [add_job(session).id for _ in range(3)]
    new, at_work = add_job(session).id, add_job(session).id
    for job_id in (*old, new, at_work):
        job_logs.keep(session, job_id, 1, EMPTY.then(b"text"))
    for job_id in old:
        jobs.request_cancel(session, job_id, now=NOW)
    jobs.request_cancel(session, new, now=NOW + timedelta(days=2))
    before = NOW + timedelta(days=1)
    assert [job_logs.forget(session, ended_before=before, most_jobs=2) for _ in range(3)] == [2, 1, 0]
    assert [job_logs.size(session, job_id) for job_id in (*old, new, at_work)] == [0, 0, 0, 4, 4]


def test_a_log_goes_with_its_job(session: Session) -> None:
    job_id = add_job(session).id
    job_logs.keep(session, job_id, 1, EMPTY.then(b"text"))
    session.execute(delete(JobRow).where(JobRow.id == job_id))
    assert job_logs.size(session, job_id) == 0
