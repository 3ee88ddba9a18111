"""Blob store in an S3 bucket, with local temporary files.

A blob is first written to disk, as its key, the digest, is only known at the end. An object becomes visible only when
it is complete, as S3 guarantees. Each request carries the sha256 of its content, and all received content is verified
against its digest.
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
"""Part size of multipart uploads; one part is in memory at a time."""
_MOST_PARTS = 10_000
_READ_BYTES = 256 * 1024
_OWNER = "owner"
_OWNER_BYTES = 1000
_MARK = "sha256"
"""Metadata of objects that were uploaded completely by this program; objects without it count as missing."""
_FRESH = timedelta(hours=1)
"""An object younger than this is not touched again by another ``put``."""


class S3BlobStore:
    """Blob store with objects ``PREFIX/ab/cdef…`` for the digest ``abcdef…``; ``PREFIX/owner`` holds the
    owning database's identity."""

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
                # Renew its time, which protects it from garbage collection.
                self._copy_onto_itself(blob.digest, {_MARK: blob.digest})
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
        """Remove local leftovers, and abort old multipart uploads, whose parts are stored and charged for.

        Uploads outside of the prefix belong to other programs.
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
        """Check the store by writing an object, as read-only credentials would otherwise only fail at the end
        of a job."""
        files.check_writable(self._cache.incoming)
        with explained():
            self._client.put_object(Bucket=self._bucket, Key=f"{self._prefix}check", Body=b"1")

    def owner(self) -> str | None:
        with explained():
            try:
                answer = self._client.get_object(Bucket=self._bucket, Key=f"{self._prefix}{_OWNER}")
            except ClientError as error:
                if _code(error) not in _MISSING:
                    raise
                return None
            return answer["Body"].read(_OWNER_BYTES).decode("ascii", "replace").strip()

    def claim(self, identity: str) -> None:
        """Claim the store. Without conditional writes, the last claim wins; the owner is checked again before
        each removal."""
        with explained():
            try:
                self._client.put_object(**self._marker(identity), IfNoneMatch="*")
            except ClientError as error:
                if _code(error) == _NO_CONDITIONS:
                    self._client.put_object(**self._marker(identity))
                elif _code(error) not in _TAKEN:
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
        """Return the digest of a key, the inverse of ``_key``; None for other keys."""
        digest = key.removeprefix(self._prefix).replace("/", "", 1)
        return digest if files.is_digest(digest) and self._key(digest) == key else None

    def _head(self, digest: BlobDigest) -> Any:
        if not files.is_digest(digest):
            return None
        with explained():
            try:
                return self._client.head_object(Bucket=self._bucket, Key=self._key(digest))
            except ClientError as error:
                if _code(error) not in _MISSING:
                    raise
            # A missing object and a missing bucket look alike here, but only the first is final for a job.
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
                    if _code(error) in _MISSING:
                        raise files.not_found(digest) from error
                    raise
            return answer["Body"]

        return S3Reader(get, digest=digest, size=size, on_damage=lambda: self._distrust(digest))

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
        """Clear the checksum of a corrupt object, so that the next ``put`` uploads it again."""
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
                response = self._client.upload_part(
                    **place, PartNumber=len(parts) + 1, Body=part, ChecksumSHA256=checksum
                )
                parts.append({"PartNumber": len(parts) + 1, "ETag": response["ETag"], "ChecksumSHA256": checksum})
            self._client.complete_multipart_upload(**place, MultipartUpload={"Parts": parts})
        except BaseException:
            self._abort(key, upload["UploadId"])
            raise

    def _abort(self, key: str, upload_id: str) -> None:
        """Abort the upload if possible; otherwise ``sweep`` does it later."""
        with contextlib.suppress(errors.BlobStoreUnavailable), explained():
            self._client.abort_multipart_upload(Bucket=self._bucket, Key=key, UploadId=upload_id)


def _is_marked(known: Any, digest: BlobDigest) -> bool:
    # Header names come in the spelling of the server, or of a proxy in front of it.
    return any(name.lower() == _MARK and value == digest for name, value in known.get("Metadata", {}).items())


_TRIES = 4
_PAUSE_SECONDS = 0.25

Get = Callable[[int], "StreamingBody"]
"""Reads the object from a position on. Raises BlobStoreUnavailable and BlobNotFound."""


class S3Reader(io.RawIOBase):
    """Reader that reconnects after a lost connection, and verifies the digest of sequential reads."""

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
        """Read bytes. Raises BlobStoreUnavailable, and BlobDamaged instead of returning the last bytes."""
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
"""Attempts of each request with backoff, some seconds in total; callers handle longer outages."""
_CONNECTIONS = 40
"""At least the number of API threads that may send bundles concurrently, which would otherwise block each other."""

_MISSING = ("404", "NoSuchKey", "NotFound")
"""Codes for a missing key; HEAD answers the same for a missing bucket."""
_TAKEN = ("PreconditionFailed", "412", "ConditionalRequestConflict")
"""The key exists, or another request is creating it."""
_NO_CONDITIONS = "NotImplemented"
"""The store does not support conditional writes."""
_REFUSED_STATUSES = (301, 307, 400, 401, 403, 404)
_FULL_CODES = ("InsufficientStorage", "QuotaExceeded", "XMinioStorageFull", "EntityTooLarge")


def make_client(location: S3Location, credentials: tuple[str, str] | None) -> S3Client:
    """Create a client. ``credentials`` are access key and secret; None uses boto3's lookup. Raises
    ConfigurationError."""
    key, secret = credentials or (None, None)
    config = Config(
        connect_timeout=_CONNECT_SECONDS,
        read_timeout=_READ_SECONDS,
        retries={"mode": "standard", "total_max_attempts": _ATTEMPTS},
        max_pool_connections=_CONNECTIONS,
        tcp_keepalive=True,
        # We send a sha256 of our own, without the trailers that some stores do not support.
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        s3={"addressing_style": "path" if location.path_style else "auto"},
    )
    try:
        return boto3.session.Session().client(
            "s3",
            endpoint_url=location.endpoint,
            # Signing needs a region, and stores other than Amazon's usually accept this one.
            region_name=location.region or boto3.session.Session().region_name or "us-east-1",
            aws_access_key_id=key,
            aws_secret_access_key=secret,
            config=config,
        )
    except (BotoCoreError, ValueError) as error:
        raise errors.ConfigurationError(f"cannot create the S3 client: {error}") from error


@contextlib.contextmanager
def explained() -> Iterator[None]:
    """Convert errors to BlobStoreUnavailable, without host names, as API callers see the message."""
    try:
        yield
    except ClientError as error:
        raise _of_answer(error) from error
    except (NoCredentialsError, PartialCredentialsError, NoAuthTokenError) as error:
        raise errors.BlobStoreRefused("no credentials for the blob store") from error
    except BotoCoreError as error:
        raise errors.BlobStoreUnavailable(f"the blob store does not respond ({type(error).__name__})") from error


def _code(error: ClientError) -> str:
    return str(error.response.get("Error", {}).get("Code", "unknown"))[:80]


def _of_answer(error: ClientError) -> errors.BlobStoreUnavailable:
    code = _code(error)
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 500)
    details = {"store_code": code, "store_status": status}
    if code in _FULL_CODES or status == 507:
        return errors.BlobStoreFull(f"the blob store has no space left ({code})", details=details)
    if code == "NoSuchBucket":
        return errors.BlobStoreRefused("the bucket does not exist", details=details)
    # Throttling, wrong checksums and server errors are worth a retry.
    if status in _REFUSED_STATUSES and code not in ("RequestTimeout", "BadDigest", "XAmzContentSHA256Mismatch"):
        return errors.BlobStoreRefused(f"the blob store rejected the request ({status} {code})", details=details)
    return errors.BlobStoreUnavailable(f"the blob store failed ({status} {code})", details=details)
