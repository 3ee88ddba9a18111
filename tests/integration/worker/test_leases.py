"""Keeping a lease, and noticing why to stop."""

from __future__ import annotations

import threading
from dataclasses import replace
from types import SimpleNamespace
from typing import NoReturn, cast

import pytest
from sqlalchemy.exc import OperationalError

from domain.jobs import Job
from domain.shared_rounds import SharedRound
from storage.database import Database
from tests.support.waiting import until
from tests.support.worker.fixtures import Bench
from worker import clock
from worker.leases import CancelAsked, JobHeartbeat, LeaseLost, RoundHeartbeat, ShuttingDown
from worker.settings import WorkerSettings


def _claimed(bench: Bench, lease_seconds: float = 30.0) -> Job:
    return bench.take(bench.job(), "w", lease_seconds=lease_seconds)


def _heartbeat(bench: Bench, job: Job, lease_seconds: float = 30.0) -> JobHeartbeat:
    settings = WorkerSettings(home=bench.home, lease_seconds=lease_seconds, cancel_poll_seconds=0.02)
    return JobHeartbeat(bench.database, job, settings, threading.Event())


def test_a_lease_is_renewed_while_the_job_is_worked_on(bench: Bench) -> None:
    job = _claimed(bench, 8.0)
    first = job.lease
    assert first is not None

    def renewed() -> bool:
        lease = bench.get(job.id).lease
        assert lease is not None
        return lease.expires_at > first.expires_at

    # Long before it ends, or a machine that is busy for a while would lose it.
    with _heartbeat(bench, job, 8.0) as heartbeat:
        until(renewed)
        assert clock.now() < first.expires_at
        heartbeat.check()
    assert not heartbeat.stop_wanted()


def test_a_stolen_lease_is_noticed(bench: Bench) -> None:
    job = _claimed(bench, 0.2)
    bench.bury(job.id)
    bench.take(job.id, "t")
    with _heartbeat(bench, job, 0.2) as heartbeat:
        until(heartbeat.stop_wanted)
        with pytest.raises(LeaseLost):
            heartbeat.check()


def test_a_job_that_is_gone_is_noticed_long_before_its_lease_ends(bench: Bench) -> None:
    gone = replace(_claimed(bench, 3600.0), id="j-gone")
    with _heartbeat(bench, gone, 3600.0) as heartbeat:
        until(heartbeat.stop_wanted)


class _Away:
    """A database that does not respond."""

    def transaction(self) -> NoReturn:
        raise OperationalError("", {}, Exception("away"))

    reading = transaction


def test_only_a_jobs_lease_may_be_had_back_when_it_has_run_out(bench: Bench) -> None:
    """A round that was not renewed in time is offered to others at once."""
    settings = WorkerSettings(home=bench.home, lease_seconds=0.1, cancel_poll_seconds=0.02)
    away, job = cast(Database, _Away()), _claimed(bench)
    claimed = SimpleNamespace(id=1, job_id=job.id, worker_id="w", attempt=1, lease_expires_at=clock.now())
    round_heartbeat = RoundHeartbeat(away, cast(SharedRound, claimed), settings, lambda: False)
    for heartbeat, may_come_back in (
        (JobHeartbeat(away, job, settings, threading.Event()), True),
        (round_heartbeat, False),
    ):
        with heartbeat:
            until(heartbeat.stop_wanted)
        assert heartbeat.is_overdue is may_come_back


def test_a_wish_to_cancel_is_noticed(bench: Bench) -> None:
    job = _claimed(bench)
    with _heartbeat(bench, job) as heartbeat:
        bench.cancel(job.id)
        until(heartbeat.stop_wanted)
        with pytest.raises(CancelAsked):
            heartbeat.check()


def test_a_shutdown_is_a_reason_to_stop(bench: Bench) -> None:
    job = _claimed(bench)
    shutdown = threading.Event()
    heartbeat = JobHeartbeat(bench.database, job, WorkerSettings(home=bench.home), shutdown)
    heartbeat.check()
    shutdown.set()
    with pytest.raises(ShuttingDown):
        heartbeat.check()


def test_an_unclaimed_job_cannot_be_kept(bench: Bench) -> None:
    with pytest.raises(ValueError, match="not claimed"):
        _heartbeat(bench, bench.get(bench.job()))


def test_a_lost_write_is_a_lost_lease(bench: Bench) -> None:
    heartbeat = _heartbeat(bench, _claimed(bench))
    heartbeat.require(True)
    with pytest.raises(LeaseLost):
        heartbeat.require(False)
    assert heartbeat.stop_wanted()
