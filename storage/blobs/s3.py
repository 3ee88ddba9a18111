"""Blobs as objects of an S3 bucket, by way of files on this host.

A put is written to the disk first, because its digest, which is its key, is known only at its end. An object appears
when its last byte is there, and never in part: that is what S3 promises. Each request carries the sha256 of what it
sends, and whatever is fetched is held against its digest.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import io
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import boto3
from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    NoAuthTokenError,
    NoCredentialsError,
    PartialCredentialsError,
)

from domain import errors
from domain.blobs import Blob
from domain.digests import BlobDigest
from storage.blobs import files
from storage.blobs.cache import BlobCache
from storage.blobs.stores import S3Location

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer
    from botocore.response import StreamingBody
    from mypy_boto3_s3 import S3Client


_PART_BYTES = 16 * 1024**2
"""Of an object that is larger; one part at a time is in memory."""
_MOST_PARTS = 10_000
_READ_BYTES = 256 * 1024
_OWNER = "owner"
_OWNER_BYTES = 1000
_MARK = "sha256"
"""Metadata of objects that this program has put whole: what else lies under the key counts as not being there."""
_FRESH = timedelta(hours=1)
"""An object that was put less than this ago counts as put now without being told."""


class S3BlobStore:
    """``PREFIX/ab/cdef…`` for the digest ``abcdef…``; ``PREFIX/owner`` names the database whose bytes they are."""

    def __init__(self, client: S3Client, location: S3Location, cache: BlobCache) -> None:
        self._client = client
        self._bucket, self._prefix = location.bucket, location.prefix
        self._cache = cache

    def put(self, chunks: Iterable[bytes], *, limit: int | None = None) -> Blob:
        with files.temporary_file(self._cache.incoming) as (file, temporary):
            blob = files.receive(file, chunks, limit)
            known = self._head(blob.digest)
            if known is None or known["ContentLength"] != blob.size_bytes or not _is_marked(known, blob.digest):
                self._upload(temporary, blob)
            elif datetime.now(UTC) - known["LastModified"] > _FRESH:
                self._put_again(blob.digest)
            self._cache.add(temporary, blob.digest)
        return blob

    def open(self, digest: BlobDigest) -> BinaryIO:
        size = self.size(digest)
        return self._cache.open(digest) or io.BufferedReader(self._reader(digest, size), _READ_BYTES)

    @contextlib.contextmanager
    def local(self, digest: BlobDigest) -> Iterator[Path]:
        size = self.size(digest)

        def fetch(file: BinaryIO) -> None:
            with self._reader(digest, size) as reader, files.writing():
                shutil.copyfileobj(reader, file, _READ_BYTES)

        with self._cache.local(digest, size, fetch) as path:
            yield path

    def size(self, digest: BlobDigest) -> int:
        known = self._head(digest)
        if known is None:
            raise files.not_found(digest)
        return int(known["ContentLength"])

    def exists(self, digest: BlobDigest) -> bool:
        return self._head(digest) is not None

    def delete(self, digest: BlobDigest, *, put_before: datetime | None = None) -> bool:
        known = self._head(digest)
        if known is None or (put_before is not None and known["LastModified"] >= put_before):
            return False
        with explained():
            self._client.delete_object(Bucket=self._bucket, Key=self._key(digest))
        self._cache.forget(digest)
        return True

    def stored(self, *, put_before: datetime) -> Iterator[Blob]:
        pages = self._client.get_paginator("list_objects_v2").paginate(Bucket=self._bucket, Prefix=self._prefix)
        with explained():
            for page in pages:
                for found in page.get("Contents", []):
                    digest = self._digest(found["Key"])
                    if digest and found["LastModified"] < put_before:
                        yield Blob(digest=digest, size_bytes=found["Size"])

    def sweep(self, *, older_than: float) -> int:
        """Here and in the bucket: parts of uploads that nobody completed are stored, and paid for, until then.

        Uploads to other keys are those of other programs, which may share the bucket.
        """
        removed = files.sweep(self._cache.incoming, older_than=older_than)
        before = datetime.now(UTC) - timedelta(seconds=older_than)
        pages = self._client.get_paginator("list_multipart_uploads").paginate(Bucket=self._bucket, Prefix=self._prefix)
        with explained():
            for upload in [upload for page in pages for upload in page.get("Uploads", [])]:
                if self._digest(upload["Key"]) and upload["Initiated"] < before:
                    self._abort(upload["Key"], upload["UploadId"])
                    removed += 1
        return removed

    def check(self) -> None:
        """Writes an object, as credentials that may only read would look well until a job has ended."""
        files.check_writable(self._cache.incoming)
        with explained():
            self._client.put_object(Bucket=self._bucket, Key=f"{self._prefix}check", Body=b"1")

    def owner(self) -> str | None:
        with explained():
            try:
                answer = self._client.get_object(Bucket=self._bucket, Key=f"{self._prefix}{_OWNER}")
            except ClientError as error:
                if not is_missing(error):
                    raise
                return None
            return answer["Body"].read(_OWNER_BYTES).decode("ascii", "replace").strip()

    def claim(self, identity: str) -> None:
        """Of stores that know no conditions the last one who claims gets it: whoever removes bytes asks again."""
        with explained():
            try:
                self._client.put_object(**self._marker(identity), IfNoneMatch="*")
            except ClientError as error:
                if lacks_conditions(error):
                    self._client.put_object(**self._marker(identity))
                elif not is_taken(error):
                    raise
        if self.owner() is None:
            raise errors.BlobStoreUnavailable("another service is claiming the blob store")

    def hand_over(self, identity: str) -> None:
        with explained():
            self._client.put_object(**self._marker(identity))

    def _marker(self, identity: str) -> Any:
        return {"Bucket": self._bucket, "Key": f"{self._prefix}{_OWNER}", "Body": identity.encode()}

    def _key(self, digest: BlobDigest) -> str:
        return f"{self._prefix}{digest[:2]}/{digest[2:]}"

    def _digest(self, key: str) -> BlobDigest | None:
        """The reverse of ``_key``; None for what is no blob's."""
        digest = key.removeprefix(self._prefix).replace("/", "", 1)
        return digest if files.is_digest(digest) and self._key(digest) == key else None

    def _head(self, digest: BlobDigest) -> Any:
        if not files.is_digest(digest):
            return None
        with explained():
            try:
                return self._client.head_object(Bucket=self._bucket, Key=self._key(digest))
            except ClientError as error:
                if not is_missing(error):
                    raise
            # Bytes that are gone and a bucket that is gone look the same so far, and only the first ends a job.
            self._client.head_bucket(Bucket=self._bucket)
        return None

    def _reader(self, digest: BlobDigest, size: int) -> S3Reader:
        def get(position: int) -> StreamingBody:
            with explained():
                try:
                    answer = self._client.get_object(
                        Bucket=self._bucket, Key=self._key(digest), Range=f"bytes={position}-"
                    )
                except ClientError as error:
                    if is_missing(error):
                        raise files.not_found(digest) from error
                    raise
            return answer["Body"]

        return S3Reader(get, digest=digest, size=size, on_damage=lambda: self._distrust(digest))

    def _put_again(self, digest: BlobDigest) -> None:
        """Its time becomes now, for whoever removes what has been there for long and belongs to nothing."""
        self._copy_onto_itself(digest, {_MARK: digest})

    def _copy_onto_itself(self, digest: BlobDigest, metadata: dict[str, str]) -> None:
        key = self._key(digest)
        with explained():
            self._client.copy_object(
                Bucket=self._bucket,
                Key=key,
                CopySource={"Bucket": self._bucket, "Key": key},
                MetadataDirective="REPLACE",
                Metadata=metadata,
            )

    def _distrust(self, digest: BlobDigest) -> None:
        """Take the mark off bytes that are others, so that whoever has the right ones sends them again."""
        with contextlib.suppress(errors.BlobStoreUnavailable):
            self._copy_onto_itself(digest, {})

    def _upload(self, path: Path, blob: Blob) -> None:
        with path.open("rb") as file, explained():
            if blob.size_bytes <= _PART_BYTES:
                checksum = base64.b64encode(bytes.fromhex(blob.digest)).decode()
                self._client.put_object(
                    Bucket=self._bucket,
                    Key=self._key(blob.digest),
                    Body=file.read(),
                    ChecksumSHA256=checksum,
                    Metadata={_MARK: blob.digest},
                )
            else:
                self._upload_parts(file, blob)
        stored = self.size(blob.digest)
        if stored != blob.size_bytes:
            raise errors.BlobStoreUnavailable(f"the blob store stored {stored} of {blob.size_bytes} bytes")

    def _upload_parts(self, file: BinaryIO, blob: Blob) -> None:
        key = self._key(blob.digest)
        upload = self._client.create_multipart_upload(
            Bucket=self._bucket, Key=key, ChecksumAlgorithm="SHA256", Metadata={_MARK: blob.digest}
        )
        place: Any = {"Bucket": self._bucket, "Key": key, "UploadId": upload["UploadId"]}
        part_bytes = max(_PART_BYTES, -(-blob.size_bytes // _MOST_PARTS))
        parts: list[Any] = []
        try:
            while part := file.read(part_bytes):
                checksum = base64.b64encode(hashlib.sha256(part).digest()).decode()
                told = self._client.upload_part(**place, PartNumber=len(parts) + 1, Body=part, ChecksumSHA256=checksum)
                parts.append({"PartNumber": len(parts) + 1, "ETag": told["ETag"], "ChecksumSHA256": checksum})
            self._client.complete_multipart_upload(**place, MultipartUpload={"Parts": parts})
        except BaseException:
            self._abort(key, upload["UploadId"])
            raise

    def _abort(self, key: str, upload_id: str) -> None:
        """Best effort: ``sweep`` does it later."""
        with contextlib.suppress(errors.BlobStoreUnavailable), explained():
            self._client.abort_multipart_upload(Bucket=self._bucket, Key=key, UploadId=upload_id)


def _is_marked(known: Any, digest: BlobDigest) -> bool:
    # Names of headers come in the server's spelling, or in that of a proxy before it.
    return any(name.lower() == _MARK and value == digest for name, value in known.get("Metadata", {}).items())


_TRIES = 4
_PAUSE_SECONDS = 0.25

Get = Callable[[int], "StreamingBody"]
"""The object's bytes from a position on. Raises BlobStoreUnavailable and BlobNotFound."""


class S3Reader(io.RawIOBase):
    """Goes on with a new request where a connection broke; read in order, the bytes are held against their digest."""

    def __init__(self, get: Get, *, digest: BlobDigest, size: int, on_damage: Callable[[], None]) -> None:
        super().__init__()
        self._get, self._digest, self._size, self._on_damage = get, digest, size, on_damage
        self._body: StreamingBody | None = None
        self._position = 0
        self._hash, self._hashed = hashlib.sha256(), 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        if start + offset < 0:
            raise ValueError(f"negative position {start + offset}")
        if start + offset != self._position:
            self._drop()
            self._position = start + offset
        return self._position

    def readinto(self, buffer: WriteableBuffer) -> int:
        """Raises BlobStoreUnavailable, and BlobDamaged in place of the last bytes."""
        view = memoryview(buffer).cast("B")
        wanted = min(len(view), self._size - self._position)
        if wanted <= 0:
            return 0
        chunk = self._next(wanted)
        if self._hashed == self._position:
            self._hash.update(chunk)
            self._hashed += len(chunk)
            if self._hashed == self._size and self._hash.hexdigest() != self._digest:
                self._on_damage()
                raise errors.BlobDamaged(f"the content in the blob store does not match digest {self._digest}")
        view[: len(chunk)] = chunk
        self._position += len(chunk)
        return len(chunk)

    def close(self) -> None:
        self._drop()
        super().close()

    def _next(self, wanted: int) -> bytes:
        for number in range(_TRIES):
            if self._body is None:
                self._body = self._get(self._position)
            with contextlib.suppress(BotoCoreError, OSError):
                chunk: bytes = self._body.read(wanted)
                if chunk:
                    return chunk
            self._drop()
            time.sleep(_PAUSE_SECONDS * number)
        raise errors.BlobStoreUnavailable("the blob store keeps breaking the connection")

    def _drop(self) -> None:
        if self._body is not None:
            self._body.close()
            self._body = None


_CONNECT_SECONDS, _READ_SECONDS = 5, 60
_ATTEMPTS = 4
"""Of each request, with growing pauses between: some seconds in all. What is to outlast more waits by itself."""
_CONNECTIONS = 40
"""No fewer than threads of the API that may send bundles at once, or they would wait for each other."""

_MISSING = ("404", "NoSuchKey", "NotFound")
_TAKEN = ("PreconditionFailed", "412", "ConditionalRequestConflict")
_REFUSED_STATUSES = (301, 307, 400, 401, 403, 404)
_FULL_CODES = ("InsufficientStorage", "QuotaExceeded", "XMinioStorageFull", "EntityTooLarge")


def make_client(location: S3Location, credentials: tuple[str, str] | None) -> S3Client:
    """``credentials``: access key and secret; None to look for them as boto3 does. Raises ConfigurationError."""
    key, secret = credentials or (None, None)
    config = Config(
        connect_timeout=_CONNECT_SECONDS,
        read_timeout=_READ_SECONDS,
        retries={"mode": "standard", "total_max_attempts": _ATTEMPTS},
        max_pool_connections=_CONNECTIONS,
        tcp_keepalive=True,
        # We send a sha256 of our own, which needs no trailer: not every store knows those.
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        s3={"addressing_style": "path" if location.path_style else "auto"},
    )
    try:
        return boto3.session.Session().client(
            "s3",
            endpoint_url=location.endpoint,
            # Every store needs one to sign with; those that are not Amazon's mostly take this one.
            region_name=location.region or boto3.session.Session().region_name or "us-east-1",
            aws_access_key_id=key,
            aws_secret_access_key=secret,
            config=config,
        )
    except (BotoCoreError, ValueError) as error:
        raise errors.ConfigurationError(f"cannot create the S3 client: {error}") from error


def is_missing(error: ClientError) -> bool:
    """Whether there is no such key; HEAD says the same of a bucket that is not there."""
    return error.response.get("Error", {}).get("Code") in _MISSING


def is_taken(error: ClientError) -> bool:
    """Whether there is such a key already, or another request makes it right now."""
    return error.response.get("Error", {}).get("Code") in _TAKEN


def lacks_conditions(error: ClientError) -> bool:
    """Whether the store is one that knows no conditional writes."""
    return error.response.get("Error", {}).get("Code") == "NotImplemented"


@contextlib.contextmanager
def explained() -> Iterator[None]:
    """Raises BlobStoreUnavailable, whose message names no host: callers of the API see it."""
    try:
        yield
    except ClientError as error:
        raise _of_answer(error) from error
    except (NoCredentialsError, PartialCredentialsError, NoAuthTokenError) as error:
        raise errors.BlobStoreRefused("no credentials for the blob store") from error
    except BotoCoreError as error:
        raise errors.BlobStoreUnavailable(f"the blob store does not respond ({type(error).__name__})") from error


def _of_answer(error: ClientError) -> errors.BlobStoreUnavailable:
    code = str(error.response.get("Error", {}).get("Code", "unknown"))[:80]
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 500)
    details = {"store_code": code, "store_status": status}
    if code in _FULL_CODES or status == 507:
        return errors.BlobStoreFull(f"the blob store has no space left ({code})", details=details)
    if code == "NoSuchBucket":
        return errors.BlobStoreRefused("the bucket does not exist", details=details)
    # Asked for less, and checksums that differ, are worth another try; so is a server that fails.
    if status in _REFUSED_STATUSES and code not in ("RequestTimeout", "BadDigest", "XAmzContentSHA256Mismatch"):
        return errors.BlobStoreRefused(f"the blob store rejected the request ({status} {code})", details=details)
    return errors.BlobStoreUnavailable(f"the blob store failed ({status} {code})", details=details)
