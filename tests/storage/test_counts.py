from __future__ import annotations

from datetime import timedelta

from sqlalchemy.orm import Session

from domain.jobs import JobState
from domain.records import TrialError
from storage import counts, jobs, records
from storage.database import Database
from tests.storage.factories import NOW, add_job, record
from tests.storage.test_records import plans


def test_jobs_are_counted_in_every_state(session: Session) -> None:
    assert set(counts.jobs_by_state(session).values()) == {0}
    first, second = (add_job(session, now=NOW + timedelta(seconds=number)).id for number in range(2))
    assert counts.oldest_queued(session) == NOW
    jobs.request_cancel(session, first, now=NOW)
    found = counts.jobs_by_state(session)
    assert (found[JobState.QUEUED], found[JobState.CANCELED], found[JobState.RUNNING]) == (1, 1, 0)
    assert counts.oldest_queued(session) == NOW + timedelta(seconds=1)
    jobs.request_cancel(session, second, now=NOW)
    assert counts.oldest_queued(session) is None


def test_trials_are_counted_in_a_range_of_records_by_error(session: Session) -> None:
    assert counts.newest_record(session) == 0
    records.add(session, [record("a", 1e-3, schedule="1"), record("a", schedule="2", error=TrialError.RUN_ERROR)])
    middle = counts.newest_record(session)
    records.add(session, [record("b", 1e-3, schedule="3"), record("b", 1e-3, schedule="4", job_id="imported:1")])
    newest = counts.newest_record(session)
    assert counts.trials(session, after=0, to=middle) == {None: 1, TrialError.RUN_ERROR: 1}
    assert counts.trials(session, after=middle, to=newest) == {None: 1}, "an imported record is no trial"
    assert counts.trials(session, after=newest, to=newest) == {}


def test_counting_reads_indexes(sqlite_database: Database) -> None:
    def count(session: Session) -> None:
        counts.jobs_by_state(session)
        counts.oldest_queued(session)
        counts.workers(session, seen_since=NOW)
        counts.pending_deliveries(session)
        counts.newest_record(session)
        counts.trials(session, after=1, to=2)

    steps = plans(sqlite_database, count)
    assert not [step for step in steps if step.startswith("SCAN") and "INDEX" not in step]
