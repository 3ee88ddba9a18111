"""The port of the storage of models and artifacts."""

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
    """A store of content-addressed bytes.

    A blob exists completely or not at all, even if the process that put it was killed. All methods with a digest,
    except ``exists`` and ``delete``, raise BlobNotFound; all methods raise BlobStoreUnavailable.
    """

    def put(self, chunks: Iterable[bytes], *, limit: int | None = None) -> Blob:
        """Store the bytes, streaming them; bytes already stored are kept once, and their time is renewed.

        ``limit`` is the maximum size in bytes. Raises BlobTooLarge as soon as it is exceeded, and errors of ``chunks``;
        nothing is stored then.
        """
        ...

    def open(self, digest: BlobDigest) -> BinaryIO:
        """Open a blob for reading from its start; the caller closes it and may seek.

        Remote bytes are fetched while reading, which raises BlobStoreUnavailable, and BlobDamaged at the end of a
        sequential read.
        """
        ...

    def local(self, digest: BlobDigest) -> AbstractContextManager[Path]:
        """Return a local file with the bytes, which is read-only and exists until the context ends. May raise
        BlobDamaged."""
        ...

    def size(self, digest: BlobDigest) -> int: ...

    def exists(self, digest: BlobDigest) -> bool: ...

    def delete(self, digest: BlobDigest, *, put_before: datetime | None = None) -> bool:
        """Delete a blob and return whether it existed; with ``put_before``, only if it was last put before
        that time."""
        ...

    def stored(self, *, put_before: datetime) -> Iterator[Blob]:
        """Yield the blobs that were last put before that time, in any order."""
        ...

    def sweep(self, *, older_than: float) -> int:
        """Remove leftovers of interrupted puts, ``older_than`` seconds old; returns their number."""
        ...

    def check(self) -> None:
        """Raise BlobStoreUnavailable if nothing could be put now."""
        ...

    def owner(self) -> str | None:
        """Return the identity of the owning database; None for an unclaimed store."""
        ...

    def claim(self, identity: str) -> None:
        """Claim an unclaimed store for this database; of concurrent claims, one succeeds."""
        ...

    def hand_over(self, identity: str) -> None:
        """Transfer the store to this database, whoever owns it."""
        ...
