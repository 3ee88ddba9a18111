"""What a store in S3 has to do that files do not: survive the network, other people's bytes, and a small disk."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from domain import errors
from storage.blobs import s3
from storage.blobs.s3 import S3BlobStore
from tests.support.servers.processes import free_port
from tests.support.servers.proxy import Proxy
from tests.support.storage import buckets
from tests.support.storage.buckets import Bucket

MIB = 1024**2


@pytest.fixture
def store(bucket: Bucket, tmp_path: Path) -> S3BlobStore:
    return bucket.store(tmp_path / "home")


def elsewhere(bucket: Bucket, tmp_path: Path, **settings: int) -> S3BlobStore:
    """The same bucket from another host."""
    return bucket.store(tmp_path / "other-host", **settings)


def chunks(size: int) -> Iterator[bytes]:
    for number in range(-(-size // MIB)):
        yield bytes([number % 251]) * min(MIB, size - number * MIB)


def cached(home: Path) -> set[str]:
    folder = home / "blob-cache"
    return {path.parent.name + path.name for path in folder.glob("??/*")}


def test_an_object_is_named_by_its_digest(bucket: Bucket, store: S3BlobStore) -> None:
    digest = store.put([b"bytes"]).digest
    assert bucket.keys() == [f"a/prefix/{digest[:2]}/{digest[2:]}"]


def test_many_parts_become_one_object(bucket: Bucket, store: S3BlobStore, tmp_path: Path) -> None:
    size = 37 * MIB + 11
    blob = store.put(chunks(size))
    assert blob.size_bytes == size
    other = elsewhere(bucket, tmp_path)
    with other.open(blob.digest) as file, other.local(blob.digest) as path:
        assert hashlib.file_digest(file, "sha256").hexdigest() == blob.digest
        assert path.stat().st_size == size
    head = bucket.server.client().head_object(Bucket=bucket.name, Key=bucket.key(blob.digest))
    assert head["ETag"].strip('"').endswith("-3")
    assert bucket.uploads() == []


def test_a_put_and_a_read_hold_a_part_in_memory(bucket: Bucket, store: S3BlobStore, tmp_path: Path) -> None:
    store.put([b"warm"])
    tracemalloc.start()
    try:
        digest = store.put(chunks(200 * MIB)).digest
        with elsewhere(bucket, tmp_path).open(digest) as file:
            while file.read(MIB):
                pass
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 60 * MIB


def test_bytes_that_are_there_are_not_sent_again(
    bucket: Bucket, store: S3BlobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    blob = store.put([b"bytes"])

    def refuse(*_: object) -> None:
        raise AssertionError("sent again")

    monkeypatch.setattr(S3BlobStore, "_upload", refuse)
    assert store.put([b"by", b"tes"]) == blob
    with pytest.raises(AssertionError, match="sent again"):
        store.put([b"others"])


def test_a_server_may_spell_headers_as_it_likes(
    bucket: Bucket, store: S3BlobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    blob, head = store.put([b"bytes"]), S3BlobStore._head

    def spelled(self: S3BlobStore, digest: str) -> Any:
        found = head(self, digest)
        assert found is not None
        return {**found, "Metadata": {name.title(): value for name, value in found["Metadata"].items()}}

    monkeypatch.setattr(S3BlobStore, "_head", spelled)
    monkeypatch.setattr(S3BlobStore, "_upload", lambda *_: pytest.fail("sent again"))
    assert store.put([b"bytes"]) == blob


def test_putting_again_counts_as_put_now(bucket: Bucket, store: S3BlobStore, monkeypatch: pytest.MonkeyPatch) -> None:
    digest = store.put([b"bytes"]).digest
    time.sleep(1.1)  # S3 tells time in seconds
    between = datetime.now(UTC)
    time.sleep(1.1)
    monkeypatch.setattr("storage.blobs.s3._FRESH", timedelta(0))
    store.put([b"bytes"])
    assert list(store.stored(put_before=between)) == []
    assert not store.delete(digest, put_before=between)


def test_a_half_object_of_another_program_is_replaced(bucket: Bucket, store: S3BlobStore) -> None:
    digest = hashlib.sha256(b"whole").hexdigest()
    bucket.overwrite(digest, b"who")
    assert store.put([b"whole"]).digest == digest
    assert store.size(digest) == 5


@pytest.mark.parametrize("size", [11, 17 * MIB])
def test_other_bytes_of_the_same_size_are_replaced(
    bucket: Bucket, store: S3BlobStore, tmp_path: Path, size: int
) -> None:
    digest = store.put(chunks(size)).digest
    bucket.overwrite(digest, b"x" * size)
    store.put(chunks(size))
    with elsewhere(bucket, tmp_path).open(digest) as file:
        assert hashlib.file_digest(file, "sha256").hexdigest() == digest


@pytest.mark.parametrize("reads", ["open", "local"])
def test_bytes_that_rot_in_the_store_are_replaced_once_somebody_has_read_them(
    bucket: Bucket, store: S3BlobStore, tmp_path: Path, reads: str
) -> None:
    digest = store.put([b"right bytes"]).digest
    bucket.rot(digest, b"wrong bytes")
    store.put([b"right bytes"])
    other = elsewhere(bucket, tmp_path)
    reading = {"open": lambda: other.open(digest).read(), "local": lambda: other.local(digest).__enter__()}
    with pytest.raises(errors.BlobDamaged):
        reading[reads]()
    store.put([b"right bytes"])
    with other.local(digest) as path:
        assert path.read_bytes() == b"right bytes"


def test_damage_is_told_though_the_store_cannot_be_written(bucket: Bucket, store: S3BlobStore, tmp_path: Path) -> None:
    digest = store.put([b"right bytes"]).digest
    bucket.rot(digest, b"wrong bytes")
    bucket.forbid("s3:PutObject")
    with elsewhere(bucket, tmp_path).open(digest) as file, pytest.raises(errors.BlobDamaged):
        file.read()


def test_what_is_marked_stays_marked(bucket: Bucket, store: S3BlobStore, monkeypatch: pytest.MonkeyPatch) -> None:
    store.put([b"bytes"])
    monkeypatch.setattr("storage.blobs.s3._FRESH", timedelta(0))
    store.put([b"bytes"])
    monkeypatch.setattr(S3BlobStore, "_upload", None)  # it is not called
    store.put([b"bytes"])


def test_a_range_fetches_no_more_than_it_must(bucket: Bucket, store: S3BlobStore, tmp_path: Path) -> None:
    digest = store.put(chunks(20 * MIB)).digest
    other = elsewhere(bucket, tmp_path)
    with other.open(digest) as file:
        file.seek(19 * MIB + 5)
        assert file.read(3) == b"\x13\x13\x13"
        file.seek(-2, os.SEEK_END)
        assert file.read() == b"\x13\x13"
        file.seek(3 * MIB - 1)
        assert file.read(2) == b"\x02\x03"
    assert cached(tmp_path / "other-host") == set()


def test_a_read_goes_on_where_the_connection_broke(
    bucket: Bucket, store: S3BlobStore, behind_proxy: Callable[[int], Proxy], tmp_path: Path
) -> None:
    digest = store.put(chunks(24 * MIB)).digest
    proxy = behind_proxy(bucket.server.port)
    other = bucket.store(tmp_path / "other-host", blob_url=bucket.url(port=proxy.port))
    with other.open(digest) as file:
        found = hashlib.sha256(file.read(MIB))
        proxy.cut()
        while chunk := file.read(MIB):
            found.update(chunk)
    assert found.hexdigest() == digest


def test_wrong_bytes_are_found_out(bucket: Bucket, store: S3BlobStore, tmp_path: Path) -> None:
    digest = store.put([b"right bytes"]).digest
    bucket.overwrite(digest, b"wrong bytes")
    other = elsewhere(bucket, tmp_path)
    with pytest.raises(errors.BlobDamaged, match=digest), other.local(digest):
        pass
    with other.open(digest) as file, pytest.raises(errors.BlobDamaged, match=digest):
        file.read()
    home = tmp_path / "other-host"
    assert cached(home) == set()
    assert list((home / "blob-cache" / "incoming").iterdir()) == []


def test_bytes_that_are_too_few_are_found_out(
    bucket: Bucket, store: S3BlobStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest = store.put([b"right bytes"]).digest
    monkeypatch.setattr(s3, "_PAUSE_SECONDS", 0.0)
    with elsewhere(bucket, tmp_path).open(digest) as file:
        bucket.overwrite(digest, b"right")
        with pytest.raises((errors.BlobStoreUnavailable, errors.BlobDamaged)):
            file.read()


def test_an_object_that_is_deleted_while_it_is_read(bucket: Bucket, store: S3BlobStore, tmp_path: Path) -> None:
    digest = store.put([b"bytes"]).digest
    other = elsewhere(bucket, tmp_path)
    with other.open(digest) as file:
        store.delete(digest)
        with pytest.raises(errors.BlobNotFound):
            file.read()


KILLED_PUT = """
import sys, time
from pathlib import Path
from storage.blobs import stores
from storage.settings import StorageSettings

store = stores.open_store(StorageSettings())
sent = store._client.upload_part
def slow(**arguments):
    answer = sent(**arguments)
    print("sent a part", flush=True)
    time.sleep(60)
    return answer
store._client.upload_part = slow
store.put(b"x" * 1024**2 for _ in range(40))
"""


def test_a_put_that_is_killed_leaves_nothing_to_be_seen(bucket: Bucket, store: S3BlobStore, tmp_path: Path) -> None:
    digest = hashlib.sha256(b"x" * (40 * MIB)).hexdigest()
    home = tmp_path / "killed"
    environment = buckets.environment(bucket.settings(home))
    process = subprocess.Popen([sys.executable, "-c", KILLED_PUT], env=environment, stdout=subprocess.PIPE, text=True)
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "sent a part\n"
        process.send_signal(signal.SIGKILL)
    assert not store.exists(digest)
    assert bucket.keys() == []
    assert len(bucket.uploads()) == 1
    killed = bucket.store(home)
    # This server says of every upload that it began in 2010.
    assert killed.sweep(older_than=50 * 365 * 86400) == 0
    assert killed.sweep(older_than=0) == 2  # the file that was received, and its parts in the bucket
    assert bucket.uploads() == []
    assert list((home / "blob-cache" / "incoming").iterdir()) == []


@pytest.mark.parametrize("prefix", ["", "/a/prefix"])
def test_uploads_of_other_programs_go_on(bucket: Bucket, tmp_path: Path, prefix: str) -> None:
    store = bucket.store(tmp_path / "home", blob_url=bucket.url().replace("/a/prefix", prefix))
    below, client = prefix.removeprefix("/") + "/" * bool(prefix), bucket.server.client()
    digest = "ab" * 32
    ours = f"{below}{digest[:2]}/{digest[2:]}"
    others = [f"{below}{key}" for key in ("video.mp4", "ab/video.mp4", digest, f"{digest[:3]}/{digest[3:]}")]
    for key in (ours, *others):
        client.create_multipart_upload(Bucket=bucket.name, Key=key)
    assert store.sweep(older_than=0) == 1
    left = client.list_multipart_uploads(Bucket=bucket.name)["Uploads"]
    assert sorted(upload["Key"] for upload in left) == sorted(others)


def test_an_upload_whose_part_fails_is_given_up(
    bucket: Bucket, store: S3BlobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(**_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(store._client, "upload_part", fail)
    with pytest.raises(KeyboardInterrupt):
        store.put(chunks(20 * MIB))
    assert bucket.uploads() == bucket.keys() == []


def test_a_store_that_is_away(bucket: Bucket, tmp_path: Path) -> None:
    store = bucket.store(tmp_path, blob_url=bucket.url(port=free_port()))
    asked = time.monotonic()
    for ask in (
        store.check,
        lambda: store.put([b"bytes"]),
        lambda: store.open("0" * 64),
        lambda: store.exists("0" * 64),
    ):
        with pytest.raises(errors.BlobStoreUnavailable, match="does not respond") as raised:
            ask()
        assert raised.value.code == "blob_store_unavailable"
        assert "127.0.0.1" not in raised.value.message
    assert time.monotonic() - asked < 60
    assert list((tmp_path / "blob-cache" / "incoming").iterdir()) == []


def test_a_bucket_that_is_not_there(bucket: Bucket, tmp_path: Path) -> None:
    url = bucket.url().replace(bucket.name, "no-such-bucket")
    store = bucket.store(tmp_path, blob_url=url)
    for ask in (store.check, lambda: store.put([b"bytes"]), lambda: store.open("0" * 64)):
        with pytest.raises(errors.BlobStoreRefused):
            ask()


def test_credentials_that_may_not_write(bucket: Bucket, store: S3BlobStore) -> None:
    kept = store.put([b"kept"])
    bucket.forbid("s3:PutObject")
    for ask in (store.check, lambda: store.put([b"bytes"]), lambda: store.put(chunks(17 * MIB))):
        with pytest.raises(errors.BlobStoreRefused, match="403") as raised:
            ask()
        assert raised.value.code == "blob_store_refused"
    assert store.put([b"kept"]) == kept


def test_no_credentials_at_all(bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    store = bucket.store(tmp_path, blob_access_key=None, blob_secret_key=None)
    with pytest.raises(errors.BlobStoreRefused, match="no credentials"):
        store.check()


def test_credentials_from_the_variables_of_boto3(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in bucket.server.credentials.items():
        monkeypatch.setenv(name, value)
    store = bucket.store(tmp_path, blob_access_key=None, blob_secret_key=None)
    store.check()
    assert store.exists(store.put([b"bytes"]).digest)
