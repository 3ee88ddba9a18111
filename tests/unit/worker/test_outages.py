"""A database that goes away while a job is at work, and comes back."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from sqlalchemy.exc import IntegrityError, OperationalError
from sqlalchemy.orm import Session

from domain.jobs import JobState
from domain.ports import Canceled
from storage import jobs
from tests.support.worker.fixtures import Bench
from worker import clock
from worker.leases import LeaseKeeper, LeaseLost, ShuttingDown
from worker.pipeline.recovery import Recovery

AWAY = OperationalError("SELECT 1", {}, Exception("server closed the connection unexpectedly"))


def test_the_same_attempt_goes_on_and_pays_nothing_twice(bench: Bench) -> None:
    left = [5, 12]

    def go_away(count: int) -> None:
        if left and count == left[0]:
            left.pop(0)
            raise AWAY

    bench.script.on_trial = go_away
    job_id = bench.job(trials=24)
    bench.runtime().run_job(job_id)
    job = bench.get(job_id)
    assert (job.state, job.attempts) == (JobState.SUCCEEDED, 1)
    assert len(bench.script.measured) == len(set(bench.script.measured)) == len(bench.records(job_id)) == 24


def test_a_fault_of_ours_is_no_outage(bench: Bench) -> None:
    def break_it(_count: int) -> None:
        raise IntegrityError("INSERT", {}, Exception("NOT NULL constraint failed"))

    bench.script.on_trial = break_it
    job_id = bench.job(trials=8)
    with pytest.raises(IntegrityError):
        bench.runtime().run_job(job_id)
    assert len(bench.script.measured) == 1


@contextmanager
def held(bench: Bench, **options: float) -> Iterator[LeaseKeeper]:
    """The keeper of a job that is claimed."""
    runtime, job_id = bench.runtime(**options), bench.job()
    job = runtime._claim(job_id)
    assert job is not None
    with LeaseKeeper(bench.database, job, runtime.settings, runtime.shutdown) as keeper:
        yield keeper


def test_a_lease_that_could_not_be_renewed_is_had_back(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    away, overdue = threading.Event(), threading.Event()
    renew = jobs.renew

    def unless_away(session: Session, *arguments: object, **options: object) -> bool:
        if away.is_set():
            raise AWAY
        return renew(session, *arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(jobs, "renew", unless_away)
    turns: list[int] = []

    with held(bench, lease_seconds=0.4) as keeper:

        def work() -> None:
            turns.append(1)
            if len(turns) == 1:
                away.set()
                while not keeper.stop_wanted():
                    overdue.wait(0.01)
                assert keeper.is_overdue
                threading.Timer(0.2, away.clear).start()
            keeper.check()

        Recovery(keeper).run(work)
        assert len(turns) == 2
        assert not keeper.stop_wanted()


def test_a_job_that_somebody_took_meanwhile_is_theirs(bench: Bench) -> None:
    with held(bench) as keeper:
        bench.bury(keeper.job_id)
        with bench.database.transaction() as session:
            assert jobs.claim(
                session, keeper.job_id, worker_id="thief", now=clock.now(), lease_seconds=60, max_attempts=9
            )

        def work() -> None:
            raise AWAY

        with pytest.raises(LeaseLost):
            Recovery(keeper).run(work)
        assert not keeper.is_overdue


def test_a_worker_that_is_to_end_does_not_wait(bench: Bench) -> None:
    with held(bench) as keeper:
        keeper._stopping = lambda: True

        def work() -> None:
            raise AWAY

        with pytest.raises(ShuttingDown):
            Recovery(keeper).run(work)


def test_what_was_finished_as_the_worker_is_told_to_end_is_stored_before_it_leaves(bench: Bench) -> None:
    runtime = bench.runtime()

    def end(count: int) -> None:
        if count == 5:
            # Journaled and not told: the engine is ended in between.
            runtime.shutdown.set()
            raise Canceled

    bench.script.on_trial = end
    job_id = bench.job(trials=24)
    runtime.run_job(job_id)
    assert bench.get(job_id).state is JobState.QUEUED
    assert len(bench.records(job_id)) == 5
