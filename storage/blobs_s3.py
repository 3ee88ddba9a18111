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
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from botocore.exceptions import ClientError

from domain import errors
from domain.blobs import Blob
from storage import blob_files
from storage.blob_cache import BlobCache
from storage.blob_urls import S3Location
from storage.s3_client import explained, is_missing, is_taken, lacks_conditions
from storage.s3_reading import S3Reader

if TYPE_CHECKING:
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
        with blob_files.temporary_file(self._cache.incoming) as (file, temporary):
            blob = blob_files.receive(file, chunks, limit)
            known = self._head(blob.digest)
            if known is None or known["ContentLength"] != blob.size_bytes or not _is_marked(known, blob.digest):
                self._upload(temporary, blob)
            elif datetime.now(UTC) - known["LastModified"] > _FRESH:
                self._put_again(blob.digest)
            self._cache.add(temporary, blob.digest)
        return blob

    def open(self, digest: str) -> BinaryIO:
        size = self.size(digest)
        return self._cache.open(digest) or io.BufferedReader(self._reader(digest, size), _READ_BYTES)

    @contextlib.contextmanager
    def local(self, digest: str) -> Iterator[Path]:
        size = self.size(digest)

        def fetch(file: BinaryIO) -> None:
            with self._reader(digest, size) as reader, blob_files.writing():
                shutil.copyfileobj(reader, file, _READ_BYTES)

        with self._cache.local(digest, size, fetch) as path:
            yield path

    def size(self, digest: str) -> int:
        known = self._head(digest)
        if known is None:
            raise blob_files.not_found(digest)
        return int(known["ContentLength"])

    def exists(self, digest: str) -> bool:
        return self._head(digest) is not None

    def delete(self, digest: str, *, put_before: datetime | None = None) -> bool:
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
        removed = blob_files.sweep(self._cache.incoming, older_than=older_than)
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
        blob_files.check_writable(self._cache.incoming)
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
            raise errors.BlobStoreUnavailable("somebody else claims the blob store right now")

    def hand_over(self, identity: str) -> None:
        with explained():
            self._client.put_object(**self._marker(identity))

    def _marker(self, identity: str) -> Any:
        return {"Bucket": self._bucket, "Key": f"{self._prefix}{_OWNER}", "Body": identity.encode()}

    def _key(self, digest: str) -> str:
        return f"{self._prefix}{digest[:2]}/{digest[2:]}"

    def _digest(self, key: str) -> str | None:
        """The reverse of ``_key``; None for what is no blob's."""
        digest = key.removeprefix(self._prefix).replace("/", "", 1)
        return digest if blob_files.is_digest(digest) and self._key(digest) == key else None

    def _head(self, digest: str) -> Any:
        if not blob_files.is_digest(digest):
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

    def _reader(self, digest: str, size: int) -> S3Reader:
        def get(position: int) -> StreamingBody:
            with explained():
                try:
                    answer = self._client.get_object(
                        Bucket=self._bucket, Key=self._key(digest), Range=f"bytes={position}-"
                    )
                except ClientError as error:
                    if is_missing(error):
                        raise blob_files.not_found(digest) from error
                    raise
            return answer["Body"]

        return S3Reader(get, digest=digest, size=size, on_damage=lambda: self._distrust(digest))

    def _put_again(self, digest: str) -> None:
        """Its time becomes now, for whoever removes what has been there for long and belongs to nothing."""
        self._copy_onto_itself(digest, {_MARK: digest})

    def _copy_onto_itself(self, digest: str, metadata: dict[str, str]) -> None:
        key = self._key(digest)
        with explained():
            self._client.copy_object(
                Bucket=self._bucket,
                Key=key,
                CopySource={"Bucket": self._bucket, "Key": key},
                MetadataDirective="REPLACE",
                Metadata=metadata,
            )

    def _distrust(self, digest: str) -> None:
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
            raise errors.BlobStoreUnavailable(f"the blob store kept {stored} of {blob.size_bytes} bytes")

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


def _is_marked(known: Any, digest: str) -> bool:
    # Names of headers come in the server's spelling, or in that of a proxy before it.
    return any(name.lower() == _MARK and value == digest for name, value in known.get("Metadata", {}).items())
