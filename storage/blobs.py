"""Blobs as files of one folder, named by their digests."""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

from domain import errors
from domain.blobs import Blob

_DIGEST = re.compile(r"[0-9a-f]{64}")


class LocalBlobStore:
    """``root/ab/cdef…`` for the digest ``abcdef…``; unfinished puts lie in ``root/incoming``."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._incoming = root / "incoming"
        self._incoming.mkdir(parents=True, exist_ok=True)

    def put(self, chunks: Iterable[bytes], *, limit: int | None = None) -> Blob:
        descriptor, name = tempfile.mkstemp(dir=self._incoming)
        temporary = Path(name)
        try:
            with os.fdopen(descriptor, "wb") as file:
                blob = _write(file, chunks, limit)
                file.flush()
                os.fsync(file.fileno())
            self._keep(temporary, blob.digest)
        finally:
            temporary.unlink(missing_ok=True)
        return blob

    def open(self, digest: str) -> BinaryIO:
        return self.path(digest).open("rb")

    def path(self, digest: str) -> Path:
        path = self._place(digest)
        if path is None or not path.is_file():
            raise errors.BlobNotFound(f"there are no stored bytes with digest {digest[:80]!r}")
        return path

    def size(self, digest: str) -> int:
        return self.path(digest).stat().st_size

    def exists(self, digest: str) -> bool:
        path = self._place(digest)
        return path is not None and path.is_file()

    def delete(self, digest: str) -> bool:
        if not self.exists(digest):
            return False
        self.path(digest).unlink(missing_ok=True)
        return True

    def check(self) -> None:
        with tempfile.TemporaryFile(dir=self._incoming) as file:
            file.write(b"1")
            file.flush()

    def sweep(self, *, older_than: float) -> int:
        """Remove what puts left behind that were killed, when it is ``older_than`` seconds; return how many files."""
        stale = [path for path in self._incoming.iterdir() if time.time() - path.stat().st_mtime > older_than]
        for path in stale:
            path.unlink(missing_ok=True)
        return len(stale)

    def _place(self, digest: str) -> Path | None:
        return self._root / digest[:2] / digest[2:] if _DIGEST.fullmatch(digest) else None

    def _keep(self, temporary: Path, digest: str) -> None:
        folder = self._root / digest[:2]
        folder.mkdir(exist_ok=True)
        temporary.chmod(0o444)
        temporary.replace(folder / digest[2:])
        # A rename is on disk only when its folders are.
        _sync_folder(folder)
        _sync_folder(self._root)


def _write(file: BinaryIO, chunks: Iterable[bytes], limit: int | None) -> Blob:
    digest, size = hashlib.sha256(), 0
    for chunk in chunks:
        size += len(chunk)
        if limit is not None and size > limit:
            raise errors.BlobTooLarge(f"more than the {limit} bytes that are accepted", details={"limit_bytes": limit})
        digest.update(chunk)
        file.write(chunk)
    return Blob(digest=digest.hexdigest(), size_bytes=size)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
