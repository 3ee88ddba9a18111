"""An object of S3 as a file that is fetched while it is read."""

from __future__ import annotations

import contextlib
import hashlib
import io
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError

from domain import errors

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer
    from botocore.response import StreamingBody

_TRIES = 4
_PAUSE_SECONDS = 0.25

Get = Callable[[int], "StreamingBody"]
"""The object's bytes from a position on. Raises BlobStoreUnavailable and BlobNotFound."""


class S3Reader(io.RawIOBase):
    """Goes on with a new request where a connection broke; read in order, the bytes are held against their digest."""

    def __init__(self, get: Get, *, digest: str, size: int, on_damage: Callable[[], None]) -> None:
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
                raise errors.BlobDamaged(f"the blob store has other bytes than those of digest {self._digest}")
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
        raise errors.BlobStoreUnavailable("the blob store breaks off again and again")

    def _drop(self) -> None:
        if self._body is not None:
            self._body.close()
            self._body = None
