"""Deleted models and artifacts: who still has them, what stays, and which bytes go."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import text
from sqlalchemy.orm import Session

from domain import errors
from domain.jobs import Budget, Job, JobRequest, JobState
from domain.models import Model
from storage import artifacts, deletion, garbage, jobs, models, owners, periodic_tasks, quotas, statements
from storage.blobs import ownership
from storage.blobs.local import LocalBlobStore
from storage.database import Database
from storage.deletion import Prospect
from tests.support.storage.factories import DIGEST, FACTS, NOW, add_model, artifact
from tests.support.threads import at_once
from tests.support.waiting import until

DAY = timedelta(days=1)
LATER = NOW + 20_000 * DAY
"""By whatever clock: bytes that are put during a test are old then."""


def job_for(session: Session, owner: str, digest: str = DIGEST) -> Job:
    """Adds no model: that would undo a deletion."""
    return jobs.create(session, JobRequest(model_digest=digest, budget=Budget(trials=1)), now=NOW, owner=owner)


def owned(session: Session, *names: str) -> tuple[Model, str]:
    """A model of these owners, and an artifact that a job of one of them made."""
    model = add_model(session)
    job = job_for(session, "ann")
    for name in names:
        owners.add_model(session, model.digest, name, now=NOW)
    jobs.request_cancel(session, job.id, now=NOW)
    made = artifacts.add(session, replace(artifact(job.id), model_digest=model.digest))
    return model, made.id


def test_the_last_owner_deletes_a_model_with_its_artifacts(session: Session) -> None:
    model, made = owned(session, "ann")
    assert deletion.delete_model(session, model, owner="ann", now=NOW)
    assert models.get(session, model.digest).deleted_at == NOW
    assert artifacts.get(session, made).deleted_at == NOW
    assert models.page(session, limit=10) == ([], None)
    assert artifacts.page(session, limit=10) == ([], None)
    assert quotas.stored_bytes(session, "ann") == 0
    with pytest.raises(errors.ArtifactNotFound):
        artifacts.best(session, model_digest=model.digest)


def test_others_keep_a_model_that_one_deletes(session: Session) -> None:
    model, made = owned(session, "ann", "bob")
    assert not deletion.delete_model(session, model, owner="ann", now=NOW)
    assert models.get(session, model.digest).deleted_at is None
    assert artifacts.get(session, made).deleted_at is None
    assert not owners.owns_model(session, model.digest, "ann")
    assert deletion.delete_model(session, model, owner="bob", now=NOW)


def test_an_admin_deletes_for_everyone(session: Session) -> None:
    model, _ = owned(session, "ann", "bob")
    assert deletion.delete_model(session, model, owner=None, now=NOW)
    assert not owners.owns_model(session, model.digest, "bob")


@pytest.mark.parametrize("others", [[], ["bob"]])
def test_a_model_at_work_is_not_deleted(session: Session, others: list[str]) -> None:
    model = add_model(session)
    job = job_for(session, "ann")
    for name in ["ann", *others]:
        owners.add_model(session, model.digest, name, now=NOW)
    with pytest.raises(errors.ModelInUse) as raised:
        deletion.delete_model(session, model, owner="ann", now=NOW)
    assert raised.value.details == {"jobs": [job.id]}
    assert owners.owns_model(session, model.digest, "ann")


def test_jobs_of_others_hold_nobody_up(session: Session) -> None:
    model = add_model(session)
    job_for(session, "bob")
    for name in ("ann", "bob"):
        owners.add_model(session, model.digest, name, now=NOW)
    assert not deletion.delete_model(session, model, owner="ann", now=NOW)
    with pytest.raises(errors.ModelInUse):
        deletion.delete_model(session, model, owner=None, now=NOW)


def test_a_deleted_model_gets_no_jobs_until_it_is_uploaded_again(session: Session) -> None:
    model, made = owned(session, "ann")
    deletion.delete_model(session, model, owner="ann", now=NOW)
    with pytest.raises(errors.ModelDeleted):
        job_for(session, "ann")
    again, is_new = models.add(
        session, digest=model.digest, name="again", size_bytes=model.size_bytes, facts=FACTS, now=NOW
    )
    assert (again.name, again.deleted_at, is_new) == ("again", None, True)
    assert artifacts.get(session, made).deleted_at == NOW  # tuned again, it comes back
    assert job_for(session, "ann").state is JobState.QUEUED


def test_publishing_again_undoes_a_deletion(session: Session) -> None:
    _, made = owned(session, "ann")
    found = artifacts.get(session, made)
    deletion.delete_artifact(session, found, now=NOW)
    assert artifacts.get(session, made).deleted_at == NOW
    assert artifacts.add(session, found).deleted_at is None


@pytest.fixture
def blobs(tmp_path: Path) -> LocalBlobStore:
    return LocalBlobStore(tmp_path / "blobs")


def test_bytes_go_that_nothing_names(database: Database, blobs: LocalBlobStore) -> None:
    model_bytes, bundle, left = (blobs.put([content]).digest for content in (b"model", b"bundle", b"left"))
    with database.transaction() as session:
        named(session, model_bytes, bundle)
    assert garbage.collect(database, blobs, now=LATER, grace=DAY, dry_run=True) == garbage.Collected(
        blobs=1, size_bytes=4
    )
    assert blobs.exists(left)
    assert garbage.collect(database, blobs, now=LATER, grace=DAY) == garbage.Collected(blobs=1, size_bytes=4)
    assert not blobs.exists(left)
    with database.transaction() as session:
        deletion.delete_artifact(session, artifacts.get(session, bundle), now=NOW)
    assert garbage.collect(database, blobs, now=LATER, grace=DAY).blobs == 1
    assert (blobs.exists(bundle), blobs.exists(model_bytes)) == (False, True)
    with database.transaction() as session:
        deletion.delete_model(session, models.get(session, model_bytes), owner=None, now=NOW)
    assert garbage.collect(database, blobs, now=LATER, grace=DAY).blobs == 1
    assert list(blobs.stored(put_before=LATER)) == []


def test_nothing_goes_that_was_just_put(database: Database, blobs: LocalBlobStore) -> None:
    ownership.claim(database, blobs, now=NOW)
    blobs.put([b"just put"])
    assert garbage.collect(database, blobs, now=datetime.now(UTC) + DAY / 2, grace=DAY) == garbage.Collected()


@pytest.mark.parametrize("dry_run", [False, True])
def test_a_database_that_never_knew_anything_removes_nothing(
    database: Database, blobs: LocalBlobStore, dry_run: bool
) -> None:
    assert garbage.collect(database, blobs, now=LATER, grace=DAY, dry_run=dry_run) == garbage.Collected()
    digest = blobs.put([b"of another service"]).digest
    with pytest.raises(errors.ConfigurationError, match="never had a model"):
        garbage.collect(database, blobs, now=LATER, grace=DAY, dry_run=dry_run)
    assert blobs.exists(digest)


def test_what_is_named_while_it_is_collected_stays(database: Database, blobs: LocalBlobStore) -> None:
    """The row comes after the first look and before the second, which counts."""
    digest = blobs.put([b"bytes"]).digest

    looked = garbage._unnamed(database, blobs.stored(put_before=LATER), LATER)
    assert [blob.digest for blob in looked] == [digest]
    with database.transaction() as session:
        named(session, digest, hashlib.sha256(b"none").hexdigest())
    assert not garbage._removed(database, blobs, digest, LATER)
    assert blobs.exists(digest)


def test_who_names_bytes_waits_for_who_removes_them(postgresql_database: Database) -> None:
    """PostgreSQL lets in many transactions at a time: the lock of the digest orders these two."""
    digest, order = "a" * 64, []
    with postgresql_database.transaction() as session:
        statements.lock_digest(session, digest)

        def add() -> None:
            with postgresql_database.transaction() as other:
                models.add(other, digest=digest, name="m", size_bytes=1, facts=FACTS, now=NOW)
                order.append("added")

        thread = waiting(postgresql_database, add)
        order.append("removed")
    thread.join(timeout=10)
    assert order == ["removed", "added"]


def test_one_of_many_claims_a_periodic_task(database: Database) -> None:
    def take(_: int) -> bool:
        with database.transaction() as session:
            return periodic_tasks.take(session, "gc", every=DAY, now=NOW)

    assert sum(at_once(take)) == 1
    with database.transaction() as session:
        assert not periodic_tasks.take(session, "gc", every=DAY, now=NOW + DAY / 2)
        assert periodic_tasks.take(session, "other", every=DAY, now=NOW + DAY / 2)
        assert periodic_tasks.take(session, "gc", every=DAY, now=NOW + DAY)


def test_a_periodic_task_may_wait_before_its_first_time(session: Session) -> None:
    due = [
        periodic_tasks.take(session, "gc", every=DAY, now=NOW + DAY * days, at_once=False)
        for days in (0, 0.9, 1, 1.5, 2)
    ]
    assert due == [False, False, True, False, True]


def named(session: Session, model_digest: str, bundle_digest: str) -> None:
    """A model and an artifact with these bytes."""
    models.add(session, digest=model_digest, name="m", size_bytes=5, facts=FACTS, now=NOW)
    job = job_for(session, "ann", model_digest)
    jobs.request_cancel(session, job.id, now=NOW)
    made = artifact(job.id)
    artifacts.add(session, replace(made, id="a-of-the-test", digest=bundle_digest, model_digest=model_digest))


def test_what_a_deletion_would_do_is_known_before(session: Session) -> None:
    model, made = owned(session, "ann", "bob")
    assert deletion.foresee(session, model.digest, owner="ann") == Prospect(gone=False, artifacts=0, unfinished=[])
    assert deletion.foresee(session, model.digest, owner=None) == Prospect(gone=True, artifacts=1, unfinished=[])
    waiting = job_for(session, "bob").id
    assert deletion.foresee(session, model.digest, owner="ann").unfinished == []
    assert deletion.foresee(session, model.digest, owner="bob").unfinished == [waiting]
    deletion.delete_artifact(session, artifacts.get(session, made), now=NOW)
    assert deletion.foresee(session, model.digest, owner=None) == Prospect(gone=True, artifacts=0, unfinished=[waiting])


def test_who_deletes_a_model_waits_for_who_uploads_the_same_bytes(postgresql_database: Database) -> None:
    """Before the upload is seen to own them it may wait for long: for others of its owner, and for the store."""
    with postgresql_database.transaction() as session:
        model, made = owned(session, "ann")
    answers = []

    def delete() -> None:
        with postgresql_database.transaction() as session:
            answers.append(deletion.delete_model(session, model, owner="ann", now=NOW))

    with postgresql_database.transaction() as session:
        add_model(session)
        thread = waiting(postgresql_database, delete)
        owners.add_model(session, model.digest, "bob", now=NOW)
    thread.join(timeout=10)
    assert answers == [False]
    with postgresql_database.reading() as session:
        assert owners.owns_model(session, model.digest, "bob")
        assert not owners.owns_model(session, model.digest, "ann")
        assert models.get(session, model.digest).deleted_at is None
        assert artifacts.get(session, made).deleted_at is None


def test_who_uploads_waits_for_who_deletes_the_model(postgresql_database: Database) -> None:
    with postgresql_database.transaction() as session:
        model, _ = owned(session, "ann")

    def upload() -> None:
        with postgresql_database.transaction() as session:
            add_model(session)
            owners.add_model(session, model.digest, "bob", now=NOW)

    with postgresql_database.transaction() as session:
        assert deletion.delete_model(session, model, owner="ann", now=NOW)
        thread = waiting(postgresql_database, upload)
    thread.join(timeout=10)
    with postgresql_database.reading() as session:
        assert owners.owns_model(session, model.digest, "bob")
        assert models.get(session, model.digest).deleted_at is None


def test_who_deletes_an_artifact_waits_for_who_publishes_it_again(postgresql_database: Database) -> None:
    with postgresql_database.transaction() as session:
        _, made = owned(session, "ann")
        found = artifacts.get(session, made)

    def delete() -> None:
        with postgresql_database.transaction() as session:
            deletion.delete_artifact(session, found, now=NOW)

    with postgresql_database.transaction() as session:
        assert artifacts.add(session, found).deleted_at is None
        thread = waiting(postgresql_database, delete)
        assert artifacts.get(session, made).deleted_at is None
    thread.join(timeout=10)
    with postgresql_database.reading() as session:
        assert artifacts.get(session, made).deleted_at == NOW  # as if it was asked for after that


def waiting(database: Database, work: Callable[[], None]) -> threading.Thread:
    """One that began the work, and goes on once a transaction ends."""
    thread = threading.Thread(target=work)
    thread.start()
    until(lambda: waits_for_lock(database) or not thread.is_alive(), seconds=10)
    assert thread.is_alive()
    return thread


def waits_for_lock(database: Database) -> bool:
    """Whether a transaction of this database, which no other test has, waits for another one."""
    waits = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    with database.reading() as session:
        return bool(session.scalar(text(waits)))
