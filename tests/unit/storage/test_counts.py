from __future__ import annotations

from datetime import timedelta

from sqlalchemy.orm import Session

from domain.jobs import JobState
from domain.records import TrialError
from domain.shared_rounds import RoundState
from storage import counts, jobs, records
from storage.counts import Waiting
from storage.database import Database
from storage.tables import SharedRoundRow, digest_of
from tests.support.storage.factories import NOW, PLACED, add_job, record
from tests.unit.storage.test_records import plans


def test_jobs_are_counted_in_every_state(session: Session) -> None:
    assert set(counts.jobs_by_state(session).values()) == {0}
    first, second = (add_job(session, now=NOW + timedelta(seconds=number)).id for number in range(2))
    assert counts.queued_by_priority(session) == {5: Waiting(jobs=2, since=NOW)}
    jobs.request_cancel(session, first, now=NOW)
    found = counts.jobs_by_state(session)
    assert (found[JobState.QUEUED], found[JobState.CANCELED], found[JobState.RUNNING]) == (1, 1, 0)
    assert counts.queued_by_priority(session) == {5: Waiting(jobs=1, since=NOW + timedelta(seconds=1))}
    jobs.request_cancel(session, second, now=NOW)
    assert counts.queued_by_priority(session) == {}


def test_priorities_wait_apart(session: Session) -> None:
    for number, priority in enumerate((3, 0, 3)):
        add_job(session, now=NOW + timedelta(seconds=number), priority=priority)
    found = counts.queued_by_priority(session)
    assert found == {0: Waiting(jobs=1, since=NOW + timedelta(seconds=1)), 3: Waiting(jobs=2, since=NOW)}


def test_rounds_that_nobody_works_on_any_more_are_not_counted(session: Session) -> None:
    job = add_job(session).id
    for number, state in enumerate(("open", "claimed", "claimed", "done")):
        session.add(shared_round(job, f"workload {number}", state))
    session.flush()
    assert counts.rounds_at_work(session) == {RoundState.OPEN: 1, RoundState.CLAIMED: 2}


def shared_round(job_id: str, workload: str, state: str) -> SharedRoundRow:
    return SharedRoundRow(
        job_id=job_id,
        attempt=1,
        state=state,
        workload_digest=digest_of(workload),
        workload_key=workload,
        tuner="autotvm",
        request={},
        trials=8,
        first_trial=0,
        lock_place="",
        opened_at=NOW,
        **PLACED,
    )


def test_trials_are_counted_in_a_range_of_records_by_error(session: Session) -> None:
    assert counts.newest_record(session) == 0
    records.add(session, [record("a", 1e-3, schedule="1"), record("a", schedule="2", error=TrialError.RUN_ERROR)])
    middle = counts.newest_record(session)
    records.add(session, [record("b", 1e-3, schedule="3")])
    newest = counts.newest_record(session)
    assert counts.trials(session, after=0, to=middle) == {("autotvm", None): 1, ("autotvm", TrialError.RUN_ERROR): 1}
    assert counts.trials(session, after=middle, to=newest) == {("autotvm", None): 1}
    assert counts.trials(session, after=newest, to=newest) == {}


def test_counting_reads_indexes(sqlite_database: Database) -> None:
    def count(session: Session) -> None:
        counts.jobs_by_state(session)
        counts.queued_by_priority(session)
        counts.rounds_at_work(session)
        counts.workers(session, seen_since=NOW)
        counts.pending_deliveries(session)
        counts.newest_record(session)
        counts.trials(session, after=1, to=2)

    steps = plans(sqlite_database, count)
    assert not [step for step in steps if step.startswith("SCAN") and "INDEX" not in step]
