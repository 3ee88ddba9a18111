"""Recovery from each kind of error: the policy table, and jobs and rounds that survive errors."""

from __future__ import annotations

import errno
import hashlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.exc import IntegrityError, OperationalError
from sqlalchemy.orm import Session

from domain import errors
from domain.blobs import Blob
from domain.jobs import JobState, Lease, Stage
from domain.ports import Canceled
from storage import jobs
from storage.blobs.local import LocalBlobStore
from tests.support.worker.fixtures import Bench
from tests.support.worker.team import LEADER, Team, check_whole
from worker.leases import CancelAsked, JobHeartbeat, LeaseLost, ShuttingDown, Stopped
from worker.pipeline import recovery
from worker.pipeline.recovery import Ending, Recovery

AWAY = OperationalError("SELECT 1", {}, Exception("server closed the connection unexpectedly"))
REFUSED = IntegrityError("INSERT", {}, Exception("NOT NULL constraint failed"))
FULL = OSError(errno.ENOSPC, "No space left on device")
CRASHED = errors.EngineCrashed("the relay engine was lost")
STORE_REFUSES = errors.BlobStoreRefused("the blob store rejected the request (403 AccessDenied)")


@dataclass
class Heartbeat:
    job_id: str = "j-1"
    is_overdue: bool = False
    reason: Stopped | None = None
    waited: int = 0

    @property
    def lease(self) -> Lease:
        return Lease(worker_id="w", attempt=1, expires_at=datetime(2026, 1, 1, tzinfo=UTC))

    def stop_wanted(self) -> bool:
        return self.reason is not None

    def check(self) -> None:
        if self.reason is not None:
            raise self.reason

    def require(self, won: bool) -> None:
        if not won:
            raise LeaseLost

    def wait_for_database(self) -> None:
        self.waited += 1
        self.is_overdue = False


def attempt(heartbeat: Heartbeat, *raised: Exception) -> tuple[Ending | None, int]:
    """How an attempt ends whose first tries raise these, and how many tries it takes."""
    left, tries = list(raised), 0

    def step() -> None:
        nonlocal tries
        tries += 1
        if left:
            raise left.pop(0)

    recovery = Recovery(heartbeat)
    try:
        recovery.run(step)
    except Exception as error:  # noqa: BLE001 - whatever it is, the table names its end
        return recovery.ending(error), tries
    return None, tries


@pytest.mark.parametrize(
    ("error", "ending"),
    [
        (LeaseLost(), Ending.LEAVE),
        (ShuttingDown(), Ending.RELEASE),
        (CancelAsked(), Ending.CANCEL),
        (errors.BlobStoreUnavailable("the blob store does not respond"), Ending.RELEASE_LATER),
        (FULL, Ending.RELEASE_LATER),
        (errors.EngineRequestFailed("disk_full", "no space"), Ending.RELEASE_LATER),
        (CRASHED, Ending.FAIL),
        (errors.InvalidModel("no model"), Ending.FAIL),
        (PermissionError(errno.EACCES, "Permission denied"), Ending.FAIL),
        (Canceled(), Ending.FAIL),
        (REFUSED, Ending.RAISE),
    ],
    ids=lambda value: value.name if isinstance(value, Ending) else type(value).__name__,
)
def test_what_ends_an_attempt_ends_it_at_once(error: Exception, ending: Ending) -> None:
    heartbeat = Heartbeat()
    assert attempt(heartbeat, error) == (ending, 1)
    assert not heartbeat.waited


def test_the_database_is_waited_for_ten_times_in_all() -> None:
    heartbeat = Heartbeat()
    assert attempt(heartbeat, *[AWAY] * 10) == (None, 11)
    assert heartbeat.waited == 10
    assert attempt(Heartbeat(), *[AWAY] * 11) == (Ending.RAISE, 11)


def test_a_lease_that_is_overdue_is_had_back_and_one_that_is_lost_is_not() -> None:
    assert attempt(Heartbeat(is_overdue=True), LeaseLost()) == (None, 2)
    assert attempt(Heartbeat(is_overdue=True), LeaseLost(), LeaseLost()) == (Ending.LEAVE, 2)


@pytest.mark.parametrize("error", [Canceled(), CRASHED], ids=["canceled", "crashed"])
@pytest.mark.parametrize(
    ("reason", "ending"),
    [(ShuttingDown(), Ending.RELEASE), (CancelAsked(), Ending.CANCEL), (LeaseLost(), Ending.LEAVE)],
)
def test_a_job_that_is_to_stop_ends_for_that_reason(error: Exception, reason: Stopped, ending: Ending) -> None:
    assert attempt(Heartbeat(reason=reason), error) == (ending, 1)


def test_the_same_attempt_goes_on_and_pays_nothing_twice(bench: Bench) -> None:
    left = [5, 12]

    def go_away(count: int) -> None:
        if left and count == left[0]:
            left.pop(0)
            raise AWAY

    bench.script.on_trial = go_away
    job_id = bench.run(trials=24)
    job = bench.get(job_id)
    assert (job.state, job.attempts) == (JobState.SUCCEEDED, 1)
    assert len(bench.script.measured) == len(set(bench.script.measured)) == len(bench.records(job_id)) == 24


def test_the_end_of_a_job_waits_for_the_database(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    finish, left = jobs.finish, [AWAY]

    def unless_away(session: Session, *arguments: Any, **options: Any) -> bool:
        if left:
            raise left.pop()
        return finish(session, *arguments, **options)

    monkeypatch.setattr(jobs, "finish", unless_away)
    bench.script.wrong = frozenset({"untuned", "tuned"})
    job = bench.get(bench.run(trials=8))
    assert (job.state, job.attempts) == (JobState.FAILED, 1)


def test_an_end_that_somebody_else_may_write_is_left_to_them(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def steal(_session: Session, job_id: str, *_: Any, **__: Any) -> bool:
        bench.bury(job_id)
        bench.take(job_id, "thief")
        raise AWAY

    monkeypatch.setattr(jobs, "finish", steal)
    bench.script.wrong = frozenset({"untuned", "tuned"})
    job_id = bench.run(trials=8)
    job = bench.get(job_id)
    assert (job.state, job.lease and job.lease.worker_id) == (JobState.RUNNING, "thief")
    assert bench.work(job_id).exists()


def test_a_fault_of_ours_is_no_outage(bench: Bench) -> None:
    def break_it(_count: int) -> None:
        raise IntegrityError("INSERT", {}, Exception("NOT NULL constraint failed"))

    bench.script.on_trial = break_it
    job_id = bench.job(trials=8)
    with pytest.raises(IntegrityError):
        bench.runtime().run_job(job_id)
    assert len(bench.script.measured) == 1


@contextmanager
def held(bench: Bench, **options: float) -> Iterator[JobHeartbeat]:
    """The heartbeat of a claimed job."""
    runtime, job_id = bench.runtime(**options), bench.job()
    job = runtime.claim(job_id)
    assert job is not None
    with JobHeartbeat(bench.database, job, runtime.settings, runtime.shutdown) as heartbeat:
        yield heartbeat


def test_a_lease_that_could_not_be_renewed_is_had_back(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    away, overdue = threading.Event(), threading.Event()
    renew = jobs.renew

    def unless_away(session: Session, *arguments: object, **options: object) -> bool:
        if away.is_set():
            raise AWAY
        return renew(session, *arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(jobs, "renew", unless_away)
    turns: list[int] = []

    with held(bench, lease_seconds=0.4) as heartbeat:

        def work() -> None:
            turns.append(1)
            if len(turns) == 1:
                away.set()
                while not heartbeat.stop_wanted():
                    overdue.wait(0.01)
                assert heartbeat.is_overdue
                threading.Timer(0.2, away.clear).start()
            heartbeat.check()

        Recovery(heartbeat).run(work)
        assert len(turns) == 2
        assert not heartbeat.stop_wanted()


def test_a_job_that_somebody_took_meanwhile_is_theirs(bench: Bench) -> None:
    with held(bench) as heartbeat:
        bench.bury(heartbeat.job_id)
        bench.take(heartbeat.job_id, "thief")

        def work() -> None:
            raise AWAY

        with pytest.raises(LeaseLost):
            Recovery(heartbeat).run(work)
        assert not heartbeat.is_overdue


def test_a_worker_that_is_to_end_does_not_wait(bench: Bench) -> None:
    with held(bench) as heartbeat:
        heartbeat._stopping = lambda: True

        def work() -> None:
            raise AWAY

        with pytest.raises(ShuttingDown):
            Recovery(heartbeat).run(work)


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


class Refusing(LocalBlobStore):
    """Refuses the first ``times`` puts."""

    def __init__(self, root: Path, *, times: int) -> None:
        super().__init__(root)
        self.times = times
        self.refused = 0

    def put(self, chunks: Iterable[bytes], *, limit: int | None = None) -> Blob:
        if self.refused < self.times:
            self.refused += 1
            raise STORE_REFUSES
        return super().put(chunks, limit=limit)


@pytest.fixture
def refusing(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[str, Refusing]]:
    """Makes a job, whose worker's store then refuses so many puts."""
    monkeypatch.setattr(recovery, "_FIRST_PAUSE_SECONDS", 0.01)

    def make(times: int, **request: Any) -> tuple[str, Refusing]:
        job_id = bench.job(trials=16, **request)
        bench.blobs = Refusing(bench.home / "blobs", times=times)
        return job_id, bench.blobs

    return make


def test_a_job_waits_for_a_store_that_refuses_its_bundle(
    bench: Bench, refusing: Callable[..., tuple[str, Refusing]]
) -> None:
    job_id, store = refusing(3)
    bench.runtime().run_job(job_id)
    job = bench.get(job_id)
    assert (job.state, job.failure, job.attempts, store.refused) == (JobState.SUCCEEDED, None, 1, 3)
    assert bench.notes(job_id).count(f"{STORE_REFUSES.message}; waiting for it") == 1


def test_a_job_is_given_back_in_the_end_and_goes_on_later(
    bench: Bench, refusing: Callable[..., tuple[str, Refusing]]
) -> None:
    job_id, store = refusing(1000)
    for _ in range(7):  # more often than a job may lose its worker
        bench.runtime(blob_retry_seconds=0.05, max_attempts=5).run_job(job_id)
        job = bench.get(job_id)
        assert (job.state, job.attempts, job.failure, job.stage) == (JobState.QUEUED, 0, None, Stage.PUBLISH)
    assert bench.work(job_id).exists()
    measured = len(bench.records(job_id))
    assert bench.waiting() == []  # others first
    assert bench.waiting(seconds=61) == [job_id]
    store.times = 0
    bench.finish(job_id)
    assert len(bench.records(job_id)) == measured == 16
    artifact = bench.artifact(job_id)
    assert store.exists(artifact.digest)
    assert not bench.work(job_id).exists()


def test_a_job_that_waits_can_be_canceled(bench: Bench, refusing: Callable[..., tuple[str, Refusing]]) -> None:
    job_id, store = refusing(10**6)
    worker = threading.Thread(target=bench.runtime().run_job, args=[job_id])
    worker.start()
    while not store.refused:
        assert worker.is_alive()
    bench.cancel(job_id)
    worker.join(timeout=20)
    assert bench.get(job_id).state is JobState.CANCELED


def test_a_model_that_is_gone_fails_its_job(bench: Bench) -> None:
    job_id = bench.job(content=b"gone")
    bench.blobs.delete(hashlib.sha256(b"gone").hexdigest())
    bench.runtime().run_job(job_id)
    failure = bench.failure(job_id)
    assert failure.code == "blob_not_found"


def _host() -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def _engine() -> None:
    raise errors.EngineRequestFailed("disk_full", "OSError: [Errno 28] No space left on device")


def _start() -> None:
    raise errors.EngineStartFailed("the relay engine did not start") from OSError(errno.EDQUOT, "Quota exceeded")


@pytest.mark.parametrize(
    ("fail", "method"), [(_host, "tune"), (_engine, "tune"), (_engine, "compile"), (_start, "compile")]
)
def test_a_full_disk_gives_the_job_back_and_it_goes_on_later(
    bench: Bench, fail: Callable[[], None], method: str
) -> None:
    left = [fail]

    def refuse(asked: str, _params: object) -> None:
        if asked == method and left:
            left.pop()()

    bench.script.refuse = refuse
    job_id = bench.run(trials=16)
    assert (bench.get(job_id).state, bench.get(job_id).failure) == (JobState.QUEUED, None)
    bench.finish(job_id)
    assert len(bench.script.measured) == len(set(bench.script.measured)) == 16


def test_a_tuned_build_is_not_left_out_for_want_of_room(bench: Bench) -> None:
    left = [_engine]

    def refuse(asked: str, params: dict[str, Any]) -> None:
        if asked == "compile" and params["tuner"] and left:
            left.pop()()

    bench.script.refuse = refuse
    job_id = bench.run(trials=16)
    assert bench.get(job_id).state is JobState.QUEUED
    bench.finish(job_id)
    assert not any("the tuned build failed" in note for note in bench.notes(job_id))


def _broken() -> None:
    raise OSError(errno.EIO, "Input/output error")


@pytest.mark.parametrize("fail", [_host, _engine, _broken])
def test_a_full_disk_has_a_helper_give_its_round_back_at_once(
    bench: Bench, team: Callable[[int], Team], fail: Callable[[], None]
) -> None:
    """Nothing is wrong with the workload: it is lost for nobody, and the leader waits for no lease to run out."""
    crew, failed = team(1), []
    helper = crew.helpers[0]
    helper.settings = helper.settings.model_copy(update={"lease_seconds": 600.0})
    crew.leader.call_help = lambda job_id, idle: None if crew.threads else crew.call(job_id, idle)

    def refuse(method: str, params: dict[str, Any]) -> None:
        if method == "tune" and threading.current_thread().name == helper.id:
            failed.append(params["workload_key"])
            fail()

    bench.script.refuse = refuse
    job_id, started = bench.job(trials=96), time.monotonic()
    crew.run(job_id)
    check_whole(bench, job_id, 96)
    assert failed
    assert set(bench.by_worker(job_id)) == {LEADER}
    assert time.monotonic() - started < 200
    assert not any("failed on" in note for note in bench.notes(job_id))
