"""A blob store for tests of what stands above one."""

from __future__ import annotations

import contextlib
import hashlib
import io
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

from domain import errors
from domain.blobs import Blob


class MemoryBlobStore:
    """``folder`` is where files asked for by ``local`` are written."""

    def __init__(self, folder: Path = Path(), *, now: Callable[[], datetime] | None = None) -> None:
        self._folder = folder
        self._now = now or (lambda: datetime.now(UTC))
        self._blobs: dict[str, bytes] = {}
        self._put_at: dict[str, datetime] = {}
        self._owner: str | None = None

    def put(self, chunks: Iterable[bytes], *, limit: int | None = None) -> Blob:
        content = bytearray()
        for chunk in chunks:
            content += chunk
            if limit is not None and len(content) > limit:
                raise errors.BlobTooLarge(f"the file exceeds the limit of {limit} bytes")
        digest = hashlib.sha256(content).hexdigest()
        self._blobs[digest] = bytes(content)
        self._put_at[digest] = self._now()
        return Blob(digest=digest, size_bytes=len(content))

    def open(self, digest: str) -> BinaryIO:
        return io.BytesIO(self._content(digest))

    @contextlib.contextmanager
    def local(self, digest: str) -> Iterator[Path]:
        content = self._content(digest)
        path = self._folder / digest
        path.write_bytes(content)
        yield path

    def size(self, digest: str) -> int:
        return len(self._content(digest))

    def exists(self, digest: str) -> bool:
        return digest in self._blobs

    def delete(self, digest: str, *, put_before: datetime | None = None) -> bool:
        if digest not in self._blobs or (put_before is not None and self._put_at[digest] >= put_before):
            return False
        del self._blobs[digest]
        return True

    def stored(self, *, put_before: datetime) -> Iterator[Blob]:
        for digest, content in list(self._blobs.items()):
            if self._put_at[digest] < put_before:
                yield Blob(digest=digest, size_bytes=len(content))

    def sweep(self, *, older_than: float) -> int:
        return 0

    def check(self) -> None:
        """Memory takes more."""

    def owner(self) -> str | None:
        return self._owner

    def claim(self, identity: str) -> None:
        self._owner = self._owner or identity

    def hand_over(self, identity: str) -> None:
        self._owner = identity

    def _content(self, digest: str) -> bytes:
        if digest not in self._blobs:
            raise errors.BlobNotFound(f"no file is stored with digest {digest!r}")
        return self._blobs[digest]
