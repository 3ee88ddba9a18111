"""The port behind which models' and artifacts' bytes are kept."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import BinaryIO, Protocol

from domain.digests import BlobDigest


@dataclass(frozen=True, kw_only=True)
class Blob:
    digest: BlobDigest
    """sha256 of the bytes, hex."""
    size_bytes: int


class BlobStore(Protocol):
    """Content-addressed bytes.

    A blob is either wholly there or not at all, whatever ended the process that put it. Every method that takes a
    digest, except ``exists`` and ``delete``, raises BlobNotFound, and every one BlobStoreUnavailable.
    """

    def put(self, chunks: Iterable[bytes], *, limit: int | None = None) -> Blob:
        """Keep the bytes, never holding them all in memory; bytes already there are kept once, and count as put now.

        ``limit`` is the largest size accepted, in bytes. Raises BlobTooLarge as soon as it is passed, and whatever
        ``chunks`` raises; nothing is left behind then.
        """
        ...

    def open(self, digest: BlobDigest) -> BinaryIO:
        """The bytes from the start; the reader closes and may seek.

        Bytes that come from elsewhere are fetched as they are read, and reading raises BlobStoreUnavailable and, at
        the end of bytes that were read in order, BlobDamaged.
        """
        ...

    def local(self, digest: BlobDigest) -> AbstractContextManager[Path]:
        """A local file with these bytes, to be read only; it lasts as long as the context. May raise BlobDamaged."""
        ...

    def size(self, digest: BlobDigest) -> int: ...

    def exists(self, digest: BlobDigest) -> bool: ...

    def delete(self, digest: BlobDigest, *, put_before: datetime | None = None) -> bool:
        """Whether there was something to delete; with ``put_before``, only what was last put before then."""
        ...

    def stored(self, *, put_before: datetime) -> Iterator[Blob]:
        """Every blob that was last put before then, in no order."""
        ...

    def sweep(self, *, older_than: float) -> int:
        """Remove what puts left behind that were killed, when it is ``older_than`` seconds; return how many."""
        ...

    def check(self) -> None:
        """Raises BlobStoreUnavailable when nothing could be put now."""
        ...

    def owner(self) -> str | None:
        """The identity of the database whose bytes these are; None while no database has claimed the store."""
        ...

    def claim(self, identity: str) -> None:
        """Let the store be this database's, unless it is somebody's; of several that claim it at once one gets it."""
        ...

    def hand_over(self, identity: str) -> None:
        """Let the store be this database's, whosever it was."""
        ...
