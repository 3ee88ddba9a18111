"""Cache of files from a remote blob store.

Any number of processes may share a folder. Users of a file hold a shared lock on it, and only unlocked files are
removed; an open file can be read to its end in any case.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from domain.digests import BlobDigest
from storage.blobs import files

Fetch = Callable[[BinaryIO], None]
"""Writes the bytes of a blob. Raises BlobDamaged if they do not match its digest."""


class BlobCache:
    """Cache in ``root/ab/cdef…``, as a LocalBlobStore, with ``root/incoming`` and ``root/locks``."""

    def __init__(self, root: Path, *, limit_bytes: int) -> None:
        self._root = root
        self._limit = limit_bytes
        self.incoming = root / "incoming"
        self._locks = root / "locks"
        self.incoming.mkdir(parents=True, exist_ok=True)
        self._locks.mkdir(exist_ok=True)

    def add(self, temporary: Path, digest: BlobDigest) -> None:
        """Add a local file to the cache, unless the blob is already cached and in use."""
        path = files.place(self._root, digest)
        with _locked(self._locks / digest[:2]):
            if _removed(path):
                files.move(temporary, path)
            else:
                _used_now(path)
        self.make_room(0)

    def open(self, digest: BlobDigest) -> BinaryIO | None:
        """Open the file of a blob, if it is cached."""
        with contextlib.suppress(FileNotFoundError):
            path = files.place(self._root, digest)
            file = path.open("rb")
            _used_now(path)
            return file
        return None

    @contextlib.contextmanager
    def local(self, digest: BlobDigest, size_bytes: int, fetch: Fetch) -> Iterator[Path]:
        """Return the file of a blob, fetching it if needed; it is kept until the context ends."""
        path = files.place(self._root, digest)
        with contextlib.ExitStack() as holding:
            while not holding.enter_context(_held(path)):
                # Of concurrent requests for the same blob, one fetches it.
                with _locked(self._locks / digest[:2]), _held(path) as is_here:
                    if not is_here:
                        self._fetch(path, size_bytes, fetch)
            _used_now(path)
            yield path

    def forget(self, digest: BlobDigest) -> None:
        """Remove a file; one in use is removed later, by ``make_room``."""
        _removed(files.place(self._root, digest))

    def make_room(self, size_bytes: int) -> int:
        """Remove the least recently used files until ``size_bytes`` fit within the limit; return the number of
        removed files."""
        removed = 0
        with _locked(self._locks / "eviction"):
            found = [(facts.st_mtime, facts.st_size, digest) for digest, facts in files.blobs_in(self._root)]
            excess = sum(size for _, size, _ in found) + size_bytes - self._limit
            for _, size, digest in sorted(found):
                if excess <= 0:
                    break
                if _removed(files.place(self._root, digest)):
                    excess -= size
                    removed += 1
        return removed

    def _fetch(self, path: Path, size_bytes: int, fetch: Fetch) -> None:
        self.make_room(size_bytes)
        with files.temporary_file(self.incoming) as (file, temporary):
            fetch(file)
            with files.writing():
                file.flush()
                os.fsync(file.fileno())
            files.move(temporary, path)


@contextlib.contextmanager
def _held(path: Path) -> Iterator[bool]:
    """Lock a file and return whether it exists; it is kept until the context ends."""
    try:
        file = path.open("rb")
    except FileNotFoundError:
        yield False
        return
    with file:
        fcntl.flock(file, fcntl.LOCK_SH)
        yield _is_still(path, file)


def _removed(path: Path) -> bool:
    """Remove a file unless it is in use; return whether it was removed."""
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # The lock belongs to the open file; the path may by now refer to another file, which may be in use.
            if not _is_still(path, file):
                return False
            path.unlink(missing_ok=True)
    except FileNotFoundError:
        return True
    except BlockingIOError:
        return False
    return True


def _is_still(path: Path, file: BinaryIO) -> bool:
    """Return whether the path still refers to the open file."""
    try:
        return os.path.samestat(path.stat(), os.fstat(file.fileno()))
    except FileNotFoundError:
        return False


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _used_now(path: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.utime(path)
