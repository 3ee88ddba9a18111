"""Blob store in a local folder."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import BinaryIO

from domain import errors
from domain.blobs import Blob
from domain.digests import BlobDigest
from storage.blobs import files

_OWNER = "owner"


class LocalBlobStore:
    """Blob store with files ``root/ab/cdef…`` for the digest ``abcdef…``; unfinished files are in ``root/incoming``.

    The modification time of a file is that of its last ``put``. ``root/owner`` holds the identity of the owning
    database.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._incoming = root / "incoming"
        self._incoming.mkdir(parents=True, exist_ok=True)

    def put(self, chunks: Iterable[bytes], *, limit: int | None = None) -> Blob:
        with files.temporary_file(self._incoming) as (file, temporary):
            blob = files.receive(file, chunks, limit)
            # Replaces an existing file, which may be corrupt.
            files.move(temporary, files.place(self._root, blob.digest))
        return blob

    def open(self, digest: BlobDigest) -> BinaryIO:
        return self.path(digest).open("rb")

    @contextlib.contextmanager
    def local(self, digest: BlobDigest) -> Iterator[Path]:
        yield self.path(digest)

    def path(self, digest: BlobDigest) -> Path:
        """Return the file of a blob, which must not be modified."""
        path = self._find(digest)
        if path is None:
            raise files.not_found(digest)
        return path

    def size(self, digest: BlobDigest) -> int:
        return self.path(digest).stat().st_size

    def exists(self, digest: BlobDigest) -> bool:
        return self._find(digest) is not None

    def delete(self, digest: BlobDigest, *, put_before: datetime | None = None) -> bool:
        path = self._find(digest)
        if path is None or (put_before is not None and path.stat().st_mtime >= put_before.timestamp()):
            return False
        path.unlink(missing_ok=True)
        return True

    def stored(self, *, put_before: datetime) -> Iterator[Blob]:
        for digest, facts in files.blobs_in(self._root):
            if facts.st_mtime < put_before.timestamp():
                yield Blob(digest=digest, size_bytes=facts.st_size)

    def check(self) -> None:
        files.check_writable(self._incoming)

    def sweep(self, *, older_than: float) -> int:
        return files.sweep(self._incoming, older_than=older_than)

    def owner(self) -> str | None:
        try:
            return (self._root / _OWNER).read_text("ascii", "replace").strip() or None
        except FileNotFoundError:
            return None
        except OSError as error:
            raise errors.BlobStoreUnavailable(f"cannot read the owner of the blob store: {error.strerror}") from error

    def claim(self, identity: str) -> None:
        files.write_new(self._root / _OWNER, identity, incoming=self._incoming)

    def hand_over(self, identity: str) -> None:
        with files.written(identity, self._incoming) as temporary:
            files.move(temporary, self._root / _OWNER, mode=0o444)

    def _find(self, digest: BlobDigest) -> Path | None:
        path = files.place(self._root, digest) if files.is_digest(digest) else None
        return path if path and path.is_file() else None
