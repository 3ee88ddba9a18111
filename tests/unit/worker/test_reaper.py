"""Messages that were lost, workers that are gone, and what they left behind."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import timedelta

import pytest
from sqlalchemy import update

from domain.jobs import Job, JobState
from domain.tokens import Quota
from domain.workers import Worker
from storage import idempotency, jobs, tokens, workers
from storage.tables import JobRow
from tests.support.worker.fixtures import Bench
from worker import clock, identity, reaper
from worker.runtime import Runtime


def test_a_queued_job_without_a_message_gets_one(bench: Bench) -> None:
    job_id = bench.job(priority=2)
    sent: list[Job] = []
    runtime = bench.runtime(republish_seconds=0.001)
    assert reaper.reap(runtime, lambda job, _: sent.append(job)) == [job_id]
    assert [(job.id, job.request.priority) for job in sent] == [(job_id, 2)]
    assert reaper.reap(bench.runtime(republish_seconds=60), lambda job, _: sent.append(job)) == []


def test_a_job_that_lost_its_worker_gets_a_message(bench: Bench) -> None:
    job_id = bench.job()
    with bench.database.transaction() as session:
        jobs.mark_published(session, job_id, now=clock.now())
        jobs.claim(session, job_id, worker_id="w", now=clock.now(), lease_seconds=60, max_attempts=3)
    runtime = bench.runtime()
    assert reaper.reap(runtime, lambda *_: None) == []
    bench.bury(job_id)
    assert reaper.reap(runtime, lambda *_: None) == [job_id]


def test_a_broker_that_is_away_leaves_the_job_waiting(bench: Bench) -> None:
    job_id = bench.job()
    runtime = bench.runtime(republish_seconds=0.001)

    def fail(*_: object) -> None:
        raise ConnectionError

    with pytest.raises(ConnectionError):
        reaper.reap(runtime, fail)
    assert reaper.reap(runtime, lambda *_: None) == [job_id]


def test_workers_not_seen_for_long_are_forgotten(bench: Bench) -> None:
    runtime = bench.runtime(forget_worker_seconds=60)
    old = _worker(runtime, "elsewhere:9:1.1", seen=timedelta(seconds=61))
    new = _worker(runtime, "elsewhere:10:1.1", seen=timedelta(seconds=59))
    reaper.reap(runtime, lambda *_: None)
    with bench.database.reading() as session:
        assert [worker.id for worker in workers.known(session)] == [new.id]
    assert old.id != new.id


def test_what_nobody_needs_any_more_is_removed(bench: Bench) -> None:
    now = clock.now()
    with bench.database.transaction() as session:
        for key, days in (("old", 8), ("new", 6)):
            asked = idempotency.Request(key_digest=key, fingerprint="request")
            asked.remember(session, f"j-{days}", now=now - timedelta(days=days))
    runtime = bench.runtime()
    cut_off = bench.home / "blobs" / "incoming" / "cut off"
    cut_off.write_bytes(b"half of a model")
    reaper.tidy(runtime)
    assert cut_off.exists(), "somebody may still be sending it"
    os.utime(cut_off, (0, 0))
    reaper.tidy(runtime)
    assert not cut_off.exists()
    with bench.database.transaction() as session:
        assert idempotency.forget(session, made_before=now) == 1


def test_leases_of_dead_processes_of_this_host_end_at_once(bench: Bench) -> None:
    runtime = bench.runtime()
    namespace = identity.own_id().rpartition(".")[2]
    host = identity.hostname()
    dead = _worker(runtime, f"{host}:4194304:77.{namespace}")
    alive = _worker(runtime, identity.own_id())
    other_host = _worker(runtime, f"another:4194304:77.{namespace}")
    container = _worker(runtime, f"{host}:4194304:77.1")
    held = {worker.id: bench.job() for worker in (dead, alive, other_host, container)}
    for worker_id, job_id in held.items():
        with bench.database.transaction() as session:
            jobs.claim(session, job_id, worker_id=worker_id, now=clock.now(), lease_seconds=60, max_attempts=3)
    runtime.clean_up()
    assert reaper.reap(runtime, lambda *_: None) == [held[dead.id]]
    with bench.database.reading() as session:
        assert dead.id not in [worker.id for worker in workers.known(session)]


def test_files_of_ended_jobs_are_removed(bench: Bench) -> None:
    waiting, ended = bench.job(), bench.job()
    bench.cancel(ended)
    assert bench.get(ended).state is JobState.CANCELED
    for name in (waiting, ended, "j-unknown"):
        bench.work(name).mkdir(parents=True)
    bench.runtime().clean_up()
    assert bench.work(waiting).exists()
    assert not bench.work(ended).exists()
    assert not bench.work("j-unknown").exists()


def _worker(runtime: Runtime, identifier: str, seen: timedelta = timedelta(0)) -> Worker:
    host, pid, _ = identifier.split(":")
    last = clock.now() - seen
    described = replace(
        _description(runtime), id=identifier, hostname=host, pid=int(pid), last_seen_at=last, started_at=last
    )
    with runtime.database.transaction() as session:
        workers.beat(session, described)
    return described


def _description(runtime: Runtime) -> Worker:
    from domain.targets import Device, Target

    now = clock.now()
    return Worker(
        id=runtime.id,
        hostname="h",
        pid=1,
        device=Device(key="x86_64/cpu/t1", name="cpu", threads=1),
        native_target=Target(text="llvm", threads=1),
        toolchains=(),
        current_job=None,
        started_at=now,
        last_seen_at=now,
    )


def test_a_job_beyond_its_tokens_limit_runs_when_there_is_room(bench: Bench) -> None:
    first, second = bench.job(), bench.job()
    with bench.database.transaction() as session:
        limited, _ = tokens.create(
            session, name="t", owner="ann", scopes=[], quota=Quota(running_jobs=1), now=clock.now()
        )
        session.execute(update(JobRow).values(token_id=limited.id))
    worker, other = bench.runtime(), bench.runtime()
    busy = worker._claim(first)
    assert busy
    assert busy.lease
    told: list[str] = []

    def deliver(job: Job, _living: object) -> None:
        """To a worker that is idle: it has the job, or sends it back, before the sender goes on."""
        told.append(job.id)
        other.run_job(job.id)

    reaper.reap(worker, deliver)
    assert other._claim(second) is None
    reaper.reap(worker, deliver)
    assert (told, bench.get(second).state) == ([], JobState.QUEUED)
    with bench.database.transaction() as session:
        jobs.finish(session, first, busy.lease, state=JobState.CANCELED, now=clock.now())
    reaper.reap(worker, deliver)
    assert told == [second]
    assert bench.get(second).state is JobState.SUCCEEDED
