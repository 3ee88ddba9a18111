"""A blob store that cannot be used costs a job time, and nothing else."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from domain import errors
from domain.blobs import Blob
from domain.jobs import JobState, Stage
from storage import artifacts, jobs
from storage.blobs import LocalBlobStore
from tests.support.worker.fixtures import Bench
from worker import clock
from worker.pipeline import recovery

REFUSED = errors.BlobStoreRefused("the blob store refuses (403 AccessDenied)")


class Refusing(LocalBlobStore):
    """Refuses the first ``times`` puts."""

    def __init__(self, root: Path, *, times: int) -> None:
        super().__init__(root)
        self.times = times
        self.refused = 0

    def put(self, chunks: Iterable[bytes], *, limit: int | None = None) -> Blob:
        if self.refused < self.times:
            self.refused += 1
            raise REFUSED
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
    assert bench.notes(job_id).count(f"{REFUSED.message}; waiting for it") == 1


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
    with bench.database.reading() as session:
        assert jobs.waiting(session, now=clock.now(), unpublished_for=60) == []  # others first
        assert jobs.waiting(session, now=clock.now(), unpublished_for=0) == [job_id]
    store.times = 0
    bench.runtime().run_job(job_id)
    assert bench.get(job_id).state is JobState.SUCCEEDED
    assert len(bench.records(job_id)) == measured == 16
    with bench.database.reading() as session:
        artifact = artifacts.of_job(session, job_id)
    assert artifact is not None
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
    failure = bench.get(job_id).failure
    assert failure is not None
    assert failure.code == "blob_not_found"
