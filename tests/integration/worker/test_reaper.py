"""Workers that are gone, what they left behind, and jobs that nobody was told of."""

from __future__ import annotations

import os
from datetime import timedelta

import pytest
from sqlalchemy import update

from domain.jobs import JobState
from domain.targets import Device, Target
from domain.tokens import Quota
from domain.workers import Worker
from storage import idempotency, jobs, tokens, workers
from storage.tables import JobRow
from tests.support.servers.processes import wait_until
from tests.support.worker.fixtures import Bench
from tests.support.worker.scripted import HELLO
from worker import clock, engines, identity, periodic
from worker.runtime import Runtime


def test_a_job_that_lost_its_worker_is_found(bench: Bench) -> None:
    job_id = bench.job()
    bench.take(job_id, "w")
    assert bench.waiting() == []
    bench.bury(job_id)
    bench.runtime().look()
    assert (bench.get(job_id).state, bench.get(job_id).attempts) == (JobState.SUCCEEDED, 2)


def test_an_idle_worker_looks_by_itself(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever became of the bell that was rung for the job."""
    monkeypatch.setattr(engines, "ask_hello", lambda *_: HELLO)
    runtime = bench.runtime(look_seconds=0.02)
    threads = periodic.start(runtime)
    try:
        first = bench.job(content=b"one")
        wait_until(lambda: bench.get(first).state is JobState.SUCCEEDED, seconds=30, what="the first job ends")
        second = bench.job(content=b"two")
        wait_until(lambda: bench.get(second).state is JobState.SUCCEEDED, seconds=30, what="the second job ends")
    finally:
        runtime.shutdown.set()
        for thread in threads:
            thread.join(10)


def test_workers_not_seen_for_long_are_forgotten(bench: Bench) -> None:
    runtime = bench.runtime(forget_worker_seconds=60)
    old = _worker(runtime, "elsewhere:9:1.1", seen=timedelta(seconds=61))
    new = _worker(runtime, "elsewhere:10:1.1", seen=timedelta(seconds=59))
    periodic.beat(runtime)
    with bench.database.reading() as session:
        assert {worker.id for worker in workers.known(session)} == {new.id, runtime.id}
    assert old.id != new.id


def test_what_nobody_needs_any_more_is_removed(bench: Bench) -> None:
    now = clock.now()
    with bench.database.transaction() as session:
        for key, days in (("old", 8), ("new", 6)):
            asked = idempotency.IdempotentRequest(key_digest=key, fingerprint="request")
            asked.remember(session, f"j-{days}", now=now - timedelta(days=days))
    runtime = bench.runtime()
    cut_off = bench.home / "blobs" / "incoming" / "cut off"
    cut_off.write_bytes(b"half of a model")
    periodic.tidy(runtime)
    assert cut_off.exists(), "somebody may still be sending it"
    os.utime(cut_off, (0, 0))
    periodic.tidy(runtime)
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
        bench.take(job_id, worker_id)
    runtime.clean_up()
    assert bench.waiting() == [held[dead.id]]
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
    described = Worker(
        id=identifier,
        hostname=host,
        pid=int(pid),
        device=Device(key="x86_64/cpu/t1", name="cpu", threads=1),
        native_target=Target(text="llvm", threads=1),
        toolchains=(),
        current_job=None,
        started_at=last,
        last_seen_at=last,
    )
    with runtime.database.transaction() as session:
        workers.beat(session, described)
    return described


def test_a_job_beyond_its_tokens_limit_runs_when_there_is_room(bench: Bench) -> None:
    first, second = bench.job(), bench.job()
    with bench.database.transaction() as session:
        limited, _ = tokens.create(
            session, name="t", owner="ann", scopes=[], quota=Quota(running_jobs=1), now=clock.now()
        )
        session.execute(update(JobRow).values(token_id=limited.id))
    worker, other = bench.runtime(), bench.runtime()
    busy = worker._claim()
    assert busy
    assert busy.lease
    other.look()
    assert (busy.id, bench.get(second).state) == (first, JobState.QUEUED)
    with bench.database.transaction() as session:
        jobs.finish(session, first, busy.lease, state=JobState.CANCELED, now=clock.now())
    other.look()
    assert bench.get(second).state is JobState.SUCCEEDED
