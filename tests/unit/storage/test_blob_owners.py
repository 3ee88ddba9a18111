"""Two services never remove each other's bytes, whatever folder or bucket they were given."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from botocore.exceptions import ClientError
from sqlalchemy.orm import Session

from domain import errors
from domain.blobs import BlobStore
from storage import backups, garbage, models
from storage.blobs import ownership
from storage.blobs.local import LocalBlobStore
from storage.blobs.s3 import S3BlobStore
from storage.database import Database, migrate
from tests.support.storage.buckets import Bucket
from tests.support.storage.factories import FACTS, NOW
from tests.support.threads import THREADS, at_once

LATER = NOW + timedelta(days=20_000)
"""By whatever clock: bytes that are put during a test are old then."""
GRACE = timedelta(days=1)


@pytest.fixture
def other(tmp_path: Path) -> Iterator[Database]:
    """The database of another service."""
    database = Database(f"sqlite:///{tmp_path / 'other.sqlite3'}")
    migrate(database)
    yield database
    database.close()


def keep(database: Database, store: BlobStore, content: bytes) -> str:
    blob = store.put([content])
    with database.transaction() as session:
        models.add(session, digest=blob.digest, name="m", size_bytes=blob.size_bytes, facts=FACTS, now=NOW)
    return blob.digest


def collect(database: Database, store: BlobStore, *, dry_run: bool = False, adopt: bool = False) -> int:
    return garbage.collect(database, store, now=LATER, grace=GRACE, dry_run=dry_run, adopt=adopt).blobs


def identity_of(database: Database) -> str | None:
    with database.reading() as session:
        return ownership.identity(session)


def test_the_first_who_claims_a_store_has_it(store: BlobStore) -> None:
    assert store.owner() is None
    store.claim("d-one")
    store.claim("d-two")
    assert store.owner() == "d-one"
    store.hand_over("d-two")
    store.claim("d-one")
    assert store.owner() == "d-two"


def test_of_many_who_claim_a_store_at_once_one_has_it(store: BlobStore) -> None:
    def claim(number: int) -> str | None:
        store.claim(f"d-{number}")
        return store.owner()

    owners = set(at_once(claim))
    assert owners == {store.owner()} < {f"d-{number}" for number in range(THREADS)}


def test_the_marker_is_no_blob(store: BlobStore, tmp_path: Path) -> None:
    store.claim("d-one")
    assert list(store.stored(put_before=LATER)) == []
    target = LocalBlobStore(tmp_path / "copy")
    blob = store.put([b"bytes"])
    assert backups.copy_blobs(store, target) == backups.Copied(blobs=1, size_bytes=5)
    assert [found.digest for found in target.stored(put_before=LATER)] == [blob.digest]
    assert target.owner() is None


def test_nobody_removes_bytes_of_another_service(sqlite_database: Database, other: Database, store: BlobStore) -> None:
    ours = keep(sqlite_database, store, b"ours")
    ownership.claim(sqlite_database, store, now=NOW)
    theirs, left = keep(other, store, b"theirs"), store.put([b"left"]).digest
    assert store.owner() == identity_of(sqlite_database) is not None
    for dry_run in (True, False):
        with pytest.raises(errors.ForeignBlobStore, match=str(identity_of(sqlite_database))) as raised:
            collect(other, store, dry_run=dry_run)
        assert "gc --adopt" in (raised.value.hint or "")
    assert all(store.exists(digest) for digest in (ours, theirs, left))
    assert identity_of(other) is None  # it was not written for nothing


def test_an_older_release_left_no_marker(sqlite_database: Database, store: BlobStore) -> None:
    kept, left = keep(sqlite_database, store, b"kept"), store.put([b"left"]).digest
    assert collect(sqlite_database, store, dry_run=True) == 1
    assert store.owner() is None
    assert collect(sqlite_database, store) == 1
    assert store.owner() == identity_of(sqlite_database)
    assert (store.exists(kept), store.exists(left)) == (True, False)


def test_a_store_full_of_unknown_bytes_is_not_claimed(sqlite_database: Database, store: BlobStore) -> None:
    """A new service with the address of an old one, whose release wrote no marker."""
    theirs = [store.put([bytes([number])]).digest for number in range(3)]
    with pytest.raises(errors.ForeignBlobStore, match="knows only 0 of 3 blobs"):
        ownership.claim(sqlite_database, store, now=NOW)
    keep(sqlite_database, store, b"a model of the new service")
    with pytest.raises(errors.ForeignBlobStore, match="knows only 1 of 4 blobs"):
        collect(sqlite_database, store)
    assert store.owner() is None
    assert all(store.exists(digest) for digest in theirs)
    assert collect(sqlite_database, store, adopt=True, dry_run=True) == 3
    assert store.owner() is None
    assert collect(sqlite_database, store, adopt=True) == 3


def test_a_store_is_taken_over(sqlite_database: Database, other: Database, store: BlobStore) -> None:
    theirs = keep(other, store, b"theirs")
    assert collect(other, store) == 0
    ours = keep(sqlite_database, store, b"ours")
    with pytest.raises(errors.ForeignBlobStore):
        collect(sqlite_database, store)
    assert collect(sqlite_database, store, adopt=True) == 1
    assert (store.exists(ours), store.exists(theirs)) == (True, False)
    with pytest.raises(errors.ForeignBlobStore):
        collect(other, store)
    assert collect(sqlite_database, store) == 0


def test_a_database_that_knows_nothing_takes_no_bytes_over(sqlite_database: Database, store: BlobStore) -> None:
    store.claim("d-one")
    store.put([b"bytes"])
    with pytest.raises(errors.ConfigurationError, match="never had a model"):
        collect(sqlite_database, store, adopt=True)
    assert store.owner() == "d-one"


def test_of_a_database_and_its_copy_one_takes_the_store(sqlite_database: Database, tmp_path: Path) -> None:
    """A copy says that it is the original, until one of them takes the store over."""
    store = LocalBlobStore(tmp_path / "blobs")
    keep(sqlite_database, store, b"ours")
    ownership.claim(sqlite_database, store, now=NOW)
    backups.copy_database(Path(str(sqlite_database.url.database)), tmp_path / "copy.sqlite3")
    copy = Database(f"sqlite:///{tmp_path / 'copy.sqlite3'}")
    assert identity_of(copy) == identity_of(sqlite_database)
    ownership.check(copy, store)
    assert collect(sqlite_database, store, adopt=True) == 0
    with pytest.raises(errors.ForeignBlobStore):
        collect(copy, store)
    assert collect(sqlite_database, store) == 0
    copy.close()


def test_a_store_that_is_taken_over_meanwhile_is_left(
    sqlite_database: Database, store: BlobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep(sqlite_database, store, b"ours")
    ownership.claim(sqlite_database, store, now=NOW)
    for number in range(5):
        store.put([bytes([number])])
    monkeypatch.setattr(garbage, "_ASKED_AT_ONCE", 2)
    removed = store.delete

    def taken_over(digest: str, **options: object) -> bool:
        store.hand_over("d-another")
        return removed(digest, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(store, "delete", taken_over)
    with pytest.raises(errors.ForeignBlobStore):
        collect(sqlite_database, store)
    assert len(list(store.stored(put_before=LATER))) == 5


@pytest.mark.parametrize("code", [errno.EPERM, errno.EACCES])
def test_a_file_system_without_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(code, os.strerror(code))

    store = LocalBlobStore(tmp_path / "blobs")
    monkeypatch.setattr(os, "link", refuse)
    if code == errno.EACCES:
        with pytest.raises(errors.BlobStoreUnavailable, match="Permission denied"):
            store.claim("d-one")
        assert store.owner() is None
    else:
        store.claim("d-one")
        store.claim("d-two")
        assert store.owner() == "d-one"
        # Whoever wrote it got no further than this.
        marker = tmp_path / "blobs" / "owner"
        marker.unlink()
        marker.touch()
        assert store.owner() is None
        store.claim("d-three")
        assert store.owner() == "d-three"
        assert marker.stat().st_mode & 0o444 == 0o444, "root may have written it"
    assert list((tmp_path / "blobs" / "incoming").iterdir()) == []


def test_a_marker_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "blobs" / "owner").mkdir(parents=True)
    with pytest.raises(errors.BlobStoreUnavailable, match="cannot read the owner"):
        LocalBlobStore(tmp_path / "blobs").owner()


def test_a_bucket_without_conditional_writes(bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = bucket.store(tmp_path)
    put = store._client.put_object

    def simple(**arguments: object) -> object:
        if "IfNoneMatch" in arguments:
            answer = {"Error": {"Code": "NotImplemented"}, "ResponseMetadata": {"HTTPStatusCode": 501}}
            raise ClientError(answer, "PutObject")  # type: ignore[arg-type]
        return put(**arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(store._client, "put_object", simple)
    store.claim("d-one")
    assert store.owner() == "d-one"


def test_a_marker_of_a_bucket_that_is_away_or_refused(bucket: Bucket, tmp_path: Path) -> None:
    gone = bucket.store(tmp_path / "a", blob_url=bucket.url().replace(bucket.name, "no-such-bucket"))
    store = bucket.store(tmp_path / "b")
    bucket.forbid("s3:PutObject")
    for ask in (gone.owner, lambda: gone.claim("d-one"), lambda: store.claim("d-one"), lambda: store.hand_over("d")):
        with pytest.raises(errors.BlobStoreRefused):
            ask()
    assert isinstance(store, S3BlobStore)
    assert store.owner() is None


def test_an_identity_is_made_once_and_renewed_when_that_is_wanted(session: Session) -> None:
    assert ownership.identity(session) is None
    first = ownership.own_identity(session, now=NOW)
    assert ownership.own_identity(session, now=NOW) == ownership.identity(session) == first
    assert ownership.renew_identity(session, now=NOW) == ownership.own_identity(session, now=NOW) != first


def test_all_who_ask_at_once_hear_the_same(database: Database) -> None:
    def ask(_: int) -> str:
        with database.transaction() as session:
            return ownership.own_identity(session, now=NOW)

    assert len(set(at_once(ask))) == 1
