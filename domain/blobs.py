"""The port behind which models' and artifacts' bytes are kept."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol


@dataclass(frozen=True, kw_only=True)
class Blob:
    digest: str
    """sha256 of the bytes, hex."""
    size_bytes: int


class BlobStore(Protocol):
    """Content-addressed bytes. Every method that takes a digest, except ``exists`` and ``delete``, raises BlobNotFound.

    A blob is either wholly there or not at all, whatever ended the process that put it.
    """

    def put(self, chunks: Iterable[bytes], *, limit: int | None = None) -> Blob:
        """Keep the bytes, never holding them all in memory; bytes already there are kept once.

        ``limit`` is the largest size accepted, in bytes. Raises BlobTooLarge as soon as it is passed, and whatever
        ``chunks`` raises; nothing is left behind then.
        """
        ...

    def open(self, digest: str) -> BinaryIO:
        """The bytes from the start; the reader closes and may seek."""
        ...

    def path(self, digest: str) -> Path:
        """A local file with these bytes, to be read only; it lasts as long as the blob."""
        ...

    def size(self, digest: str) -> int: ...

    def exists(self, digest: str) -> bool: ...

    def delete(self, digest: str) -> bool:
        """Whether there was something to delete."""
        ...

    def sweep(self, *, older_than: float) -> int:
        """Remove what puts left behind that were killed, when it is ``older_than`` seconds; return how many."""
        ...

    def check(self) -> None:
        """Raises OSError when nothing could be put now."""
        ...
