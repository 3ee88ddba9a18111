"""What goes by itself, and what stays."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path

import pytest

from domain import errors
from domain.jobs import EventKind, JobState
from storage import artifacts, deletion, events, job_logs
from storage.blobs import ownership
from tests.support.worker.fixtures import Bench
from worker import clock, housekeeping, paths
from worker.runtime import Runtime
from worker.settings import WorkerSettings

LONG_AGO = (0, 0)


def tidy(runtime: Runtime, *, days: float = 0.0) -> None:
    """As it will be done in so many days."""
    now = clock.now() + timedelta(days=days)
    housekeeping.tidy(runtime.database, runtime.blobs, runtime.settings, now=now)


def finished(bench: Bench) -> str:
    job_id = bench.run(trials=8)
    log = paths.job_log(bench.home, job_id)
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text("what an engine printed")
    return job_id


def test_bytes_that_nothing_names_go_a_day_later(bench: Bench) -> None:
    job_id = finished(bench)
    with bench.database.transaction() as session:
        artifact = artifacts.of_job(session, job_id)
        assert artifact is not None
        deletion.delete_artifact(session, artifact, now=clock.now())
    runtime = bench.runtime()
    tidy(runtime, days=0.5)
    assert bench.blobs.exists(artifact.digest)
    tidy(runtime, days=1.4)  # another worker's turn: the task ran less than a day ago
    assert bench.blobs.exists(artifact.digest)
    tidy(runtime, days=1.6)
    assert not bench.blobs.exists(artifact.digest)
    assert bench.blobs.exists(artifact.model_digest)


def test_a_dry_run_removes_nothing(bench: Bench) -> None:
    bench.job()
    runtime, digest = bench.runtime(), bench.blobs.put([b"no name"]).digest
    os.utime(bench.blobs.path(digest), LONG_AGO)
    found = housekeeping.collect(bench.database, bench.blobs, runtime.settings, now=clock.now(), dry_run=True)
    assert (found.blobs, found.size_bytes, bench.blobs.exists(digest)) == (1, 7, True)


def test_a_database_that_knows_nothing_keeps_the_bytes(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    runtime, digest = bench.runtime(), bench.blobs.put([b"of another service"]).digest
    tidy(runtime)
    assert "this database knows only 0 of 1 blobs in it: nothing was removed" in caplog.text
    for days in (2, 4):
        tidy(runtime, days=days)
    assert bench.blobs.exists(digest)
    assert bench.blobs.owner() is None


def test_a_store_is_claimed_at_once_and_never_that_of_another_service(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.job()
    runtime = bench.runtime()
    tidy(runtime)
    with bench.database.reading() as session:
        assert bench.blobs.owner() == ownership.identity(session) is not None
    digest = bench.blobs.put([b"no name"]).digest
    os.utime(bench.blobs.path(digest), LONG_AGO)
    bench.blobs.hand_over("d-another")
    assert not caplog.records
    for days in (2, 4):
        tidy(runtime, days=days)
    assert "belongs to database d-another" in caplog.text
    assert bench.blobs.exists(digest)
    ownership.take_over(bench.database, bench.blobs, now=clock.now())
    tidy(runtime, days=6)
    assert not bench.blobs.exists(digest)


def test_the_first_look_comes_a_day_later(bench: Bench) -> None:
    bench.job()
    runtime, digest = bench.runtime(), bench.blobs.put([b"no name"]).digest
    os.utime(bench.blobs.path(digest), LONG_AGO)
    tidy(runtime)
    assert bench.blobs.exists(digest)
    tidy(runtime, days=1)
    assert not bench.blobs.exists(digest)


def test_logs_and_events_stay_unless_a_setting_says_how_long(bench: Bench) -> None:
    job_id = finished(bench)
    told = len(bench.events(job_id))
    tidy(bench.runtime(), days=10_000)
    assert len(bench.events(job_id)) == told
    assert paths.job_log(bench.home, job_id).exists()


def test_logs_and_events_go_when_they_are_old(bench: Bench) -> None:
    job_id, at_work = finished(bench), bench.job()
    waiting = len(bench.events(at_work))
    with bench.database.transaction() as session:
        for each in (job_id, at_work):
            job_logs.keep(session, each, 1, job_logs.EMPTY.then(b"what an engine printed"))
        told = {"stage": "baseline", "status": "working", "message": "relay built 1 of 2 operators"}
        events.append(session, job_id, EventKind.STAGE, told, now=clock.now())
        events.append(session, job_id, EventKind.STATE, {"state": JobState.SUCCEEDED}, now=clock.now())
    runtime = bench.runtime(keep_logs_days=30)
    tidy(runtime, days=29)
    assert bench.events(job_id, EventKind.PROGRESS)
    assert paths.job_log(bench.home, job_id).exists()
    tidy(runtime, days=31)
    assert {event.kind for event in bench.events(job_id)} == {EventKind.STATE, EventKind.STAGE}
    statuses = {event.data["status"] for event in bench.events(job_id, EventKind.STAGE)}
    assert statuses == {"started", "finished"}
    assert bench.events(job_id)[-1].data["state"] == JobState.SUCCEEDED
    assert not paths.job_log(bench.home, job_id).exists()
    with bench.database.reading() as session:
        assert [job_logs.size(session, each) for each in (job_id, at_work)] == [0, 22]
    assert len(bench.records(job_id)) == 8
    assert len(bench.events(at_work)) == waiting


def test_work_that_was_left_behind_goes_with_its_job(bench: Bench) -> None:
    ended, at_work = finished(bench), bench.job()
    for job_id in (ended, at_work, "not-a-job"):
        bench.work(job_id).mkdir(parents=True)
    runtime = bench.runtime()
    tidy(runtime)
    assert bench.work(ended).exists()  # its worker may be tidying up itself
    for job_id in (ended, at_work, "not-a-job"):
        os.utime(bench.work(job_id), LONG_AGO)
    tidy(runtime)
    assert [bench.work(job_id).exists() for job_id in (ended, at_work, "not-a-job")] == [False, True, True]


def test_a_store_that_is_away_keeps_the_rest_from_nothing(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    job_id = finished(bench)

    def away(**_: object) -> int:
        raise errors.BlobStoreUnavailable("the blob store does not respond")

    runtime = bench.runtime(keep_logs_days=1)
    monkeypatch.setattr(bench.blobs, "sweep", away)
    with pytest.raises(errors.BlobStoreUnavailable):
        tidy(runtime, days=2)
    assert not paths.job_log(bench.home, job_id).exists()
    assert not bench.events(job_id, EventKind.PROGRESS)


def test_settings_refuse_less_than_a_put_may_take(tmp_path: Path) -> None:
    with pytest.raises(Exception, match=r"blob_grace_hours|BLOB_GRACE_HOURS"):
        WorkerSettings(home=tmp_path, blob_grace_hours=1)
