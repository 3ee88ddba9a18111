from __future__ import annotations

from sqlalchemy.orm import Session

from domain.records import TrialError
from storage import jobs, records, tuning_tasks
from storage.database import Database
from tests.support.storage.factories import NOW, PLACEMENT, add_job, record, task
from tests.unit.storage.test_records import plans


def placed_job(session: Session, *workloads: str) -> str:
    job = jobs.claim(session, add_job(session).id, worker_id="w", now=NOW, lease_seconds=60, max_attempts=1)
    assert job is not None
    assert job.lease is not None
    jobs.set_placement(session, job.id, job.lease, PLACEMENT)
    planned = [task(job.id, position, workload) for position, workload in enumerate(workloads)]
    tuning_tasks.save_plan(session, job.id, planned)
    return job.id


def test_what_others_found_afterwards_is_left_out(session: Session) -> None:
    first, second = (placed_job(session, "dense", "conv", "pool") for _ in range(2))
    records.add(session, [record("dense", 3e-3, job_id=first), record("conv", 1e-3, job_id=first)])
    failed = record("pool", error=TrialError.RUN_ERROR, job_id=second)
    records.add(session, [record("dense", 2e-3, job_id=second), record("conv", 5e-3, job_id=second), failed])
    records.add(session, [record("dense", 1e-3, job_id="j-later"), record("dense", 1e-9, target="another")])
    assert tuning_tasks.bests_of_job(session, first) == {"dense": 3e-3, "conv": 1e-3}
    assert tuning_tasks.bests_of_job(session, second) == {"dense": 2e-3, "conv": 1e-3}


def test_a_job_that_measured_nothing_has_what_there_is(session: Session) -> None:
    job = placed_job(session, "dense", "conv")
    assert tuning_tasks.bests_of_job(session, job) == {}
    records.add(session, [record("dense", 1e-3, job_id="j-other")])
    assert tuning_tasks.bests_of_job(session, job) == {"dense": 1e-3}
    assert tuning_tasks.bests_of_job(session, "j-none") == {}


def test_the_fastest_is_found_by_an_index(sqlite_database: Database) -> None:
    with sqlite_database.transaction() as session:
        job = placed_job(session, "dense")
        records.add(session, [record("dense", 1e-3, job_id=job)])
    steps = plans(sqlite_database, lambda session: tuning_tasks.bests_of_job(session, job))
    assert any("COVERING INDEX ix_records_lookup" in step for step in steps), steps
    assert not any(step.startswith("SCAN records") for step in steps), steps
    assert not any("TEMP B-TREE" in step for step in steps), steps
