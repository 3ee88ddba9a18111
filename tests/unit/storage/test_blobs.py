"""What every blob store promises; then what only files can do."""

from __future__ import annotations

import errno
import hashlib
import os
import tracemalloc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from domain import errors
from domain.blobs import BlobStore
from storage.blobs.local import LocalBlobStore

UNKNOWN = "0" * 64


@pytest.fixture
def local(tmp_path: Path) -> LocalBlobStore:
    return LocalBlobStore(tmp_path / "blobs")


def files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def test_bytes_come_back_under_their_digest(store: BlobStore) -> None:
    blob = store.put(iter([b"one ", b"", b"two"]))
    assert blob.digest == hashlib.sha256(b"one two").hexdigest()
    assert blob.size_bytes == store.size(blob.digest) == 7
    assert store.exists(blob.digest)
    with store.open(blob.digest) as file:
        assert file.read() == b"one two"
        file.seek(4)
        assert file.read() == b"two"
    with store.local(blob.digest) as path:
        assert path.read_bytes() == b"one two"


def test_no_bytes_are_a_blob_too(store: BlobStore) -> None:
    blob = store.put([])
    assert blob.size_bytes == 0
    with store.local(blob.digest) as path, store.open(blob.digest) as file:
        assert path.read_bytes() == file.read() == b""


def test_a_blob_may_be_as_large_as_the_limit_and_no_larger(store: BlobStore) -> None:
    assert store.put([b"12", b"34"], limit=4).size_bytes == 4
    with pytest.raises(errors.BlobTooLarge):
        store.put([b"123", b"45"], limit=4)
    assert not store.exists(hashlib.sha256(b"12345").hexdigest())


def test_putting_stops_where_the_limit_is_passed(store: BlobStore) -> None:
    taken = []

    def endless() -> Iterator[bytes]:
        while True:
            taken.append(1)
            yield b"x" * 10

    with pytest.raises(errors.BlobTooLarge):
        store.put(endless(), limit=25)
    assert len(taken) == 3


def test_an_upload_that_breaks_off_leaves_nothing(store: BlobStore) -> None:
    def broken() -> Iterator[bytes]:
        yield b"half"
        raise ConnectionResetError

    with pytest.raises(ConnectionResetError):
        store.put(broken())
    assert not store.exists(hashlib.sha256(b"half").hexdigest())


def test_the_same_bytes_at_the_same_time_are_one_blob(store: BlobStore) -> None:
    with ThreadPoolExecutor(8) as pool:
        blobs = set(pool.map(lambda _: store.put([b"a" * 1000] * 50), range(24)))
    (blob,) = blobs
    assert store.size(blob.digest) == 50_000


def test_an_unknown_digest_is_named_in_the_error(store: BlobStore) -> None:
    for ask in (store.open, store.size):
        with pytest.raises(errors.BlobNotFound, match=UNKNOWN):
            ask(UNKNOWN)
    with pytest.raises(errors.BlobNotFound, match=UNKNOWN), store.local(UNKNOWN):
        pass
    assert not store.exists(UNKNOWN)
    assert not store.delete(UNKNOWN)


def test_a_deleted_blob_is_gone(store: BlobStore) -> None:
    digest = store.put([b"bytes"]).digest
    assert store.delete(digest)
    assert not store.exists(digest)
    with pytest.raises(errors.BlobNotFound):
        store.open(digest)


def test_what_was_put_long_ago_is_told_and_deleted_apart(store: BlobStore) -> None:
    now = datetime.now(UTC)
    blobs = {store.put([b"one"]), store.put([b"three"])}
    (digest, *_) = (blob.digest for blob in blobs)
    assert list(store.stored(put_before=now - timedelta(hours=1))) == []
    assert set(store.stored(put_before=now + timedelta(hours=1))) == blobs
    assert not store.delete(digest, put_before=now - timedelta(hours=1))
    assert store.delete(digest, put_before=now + timedelta(hours=1))
    assert {blob.digest for blob in store.stored(put_before=now + timedelta(hours=1))} == {
        blob.digest for blob in blobs
    } - {digest}


def test_a_store_that_works_says_so(store: BlobStore) -> None:
    store.check()
    assert list(store.stored(put_before=datetime.now(UTC) + timedelta(hours=1))) == []


def test_what_is_no_digest_reaches_nothing(store: BlobStore) -> None:
    for digest in ("", "..", "../../etc/passwd", "A" * 64, "a" * 63, f"{'a' * 63}/", f"{'a' * 64}\n"):
        assert not store.exists(digest)
        assert not store.delete(digest)
        with pytest.raises(errors.BlobNotFound):
            store.open(digest)


def test_failed_puts_leave_no_file(local: LocalBlobStore, tmp_path: Path) -> None:
    with pytest.raises(errors.BlobTooLarge):
        local.put([b"12345"], limit=4)
    local.put([b"same"])
    local.put([b"same"])
    assert len(files(tmp_path / "blobs")) == 1


def test_putting_again_counts_as_put_now(local: LocalBlobStore) -> None:
    digest = local.put([b"bytes"]).digest
    os.utime(local.path(digest), (0, 0))
    hour_ago = datetime.now(UTC) - timedelta(hours=1)
    assert [blob.digest for blob in local.stored(put_before=hour_ago)] == [digest]
    local.put([b"bytes"])
    assert list(local.stored(put_before=hour_ago)) == []


def test_a_full_disk_is_said_to_be_one(local: LocalBlobStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def full(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/home/secret/place")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(errors.BlobStoreFull, match="no space") as raised:
        local.put([b"bytes"])
    assert "secret" not in raised.value.message
    assert files(tmp_path / "blobs") == []


def test_a_put_holds_one_chunk_in_memory(local: LocalBlobStore) -> None:
    chunk = 256 * 1024
    tracemalloc.start()
    try:
        local.put(os.urandom(chunk) for _ in range(64))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 8 * chunk


def test_blobs_survive_the_store_and_are_read_only(local: LocalBlobStore, tmp_path: Path) -> None:
    blob = local.put([b"kept"])
    again = LocalBlobStore(tmp_path / "blobs")
    assert again.path(blob.digest).read_bytes() == b"kept"
    assert again.path(blob.digest).stat().st_mode & 0o777 == 0o400


def test_a_sweep_removes_what_killed_puts_left(local: LocalBlobStore, tmp_path: Path) -> None:
    kept = local.put([b"kept"])
    left = tmp_path / "blobs" / "incoming" / "left"
    left.write_bytes(b"half")
    assert local.sweep(older_than=60) == 0
    os.utime(left, (0, 0))
    assert local.sweep(older_than=60) == 1
    assert not left.exists()
    assert local.exists(kept.digest)
