"""A blob store for tests of what stands above one."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

from domain import errors
from domain.blobs import Blob


class MemoryBlobStore:
    """``folder`` is where files asked for by ``path`` are written."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._blobs: dict[str, bytes] = {}

    def put(self, chunks: Iterable[bytes], *, limit: int | None = None) -> Blob:
        content = bytearray()
        for chunk in chunks:
            content += chunk
            if limit is not None and len(content) > limit:
                raise errors.BlobTooLarge(f"more than the {limit} bytes that are accepted")
        digest = hashlib.sha256(content).hexdigest()
        self._blobs[digest] = bytes(content)
        return Blob(digest=digest, size_bytes=len(content))

    def open(self, digest: str) -> BinaryIO:
        return io.BytesIO(self._content(digest))

    def path(self, digest: str) -> Path:
        content = self._content(digest)
        path = self._folder / digest
        path.write_bytes(content)
        return path

    def size(self, digest: str) -> int:
        return len(self._content(digest))

    def exists(self, digest: str) -> bool:
        return digest in self._blobs

    def delete(self, digest: str) -> bool:
        return self._blobs.pop(digest, None) is not None

    def sweep(self, *, older_than: float) -> int:
        return 0

    def check(self) -> None:
        """Memory takes more."""

    def _content(self, digest: str) -> bytes:
        if digest not in self._blobs:
            raise errors.BlobNotFound(f"there are no stored bytes with digest {digest!r}")
        return self._blobs[digest]
