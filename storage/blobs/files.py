"""File operations of blob stores: hashing while writing, naming by digest, removal of leftovers."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, TypeGuard

from domain import errors
from domain.blobs import Blob
from domain.digests import BlobDigest, FileDigest
from process import homes

_DIGEST = re.compile(r"[0-9a-f]{64}")
_FULL = (errno.ENOSPC, errno.EDQUOT)
_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS)


def is_digest(text: str) -> TypeGuard[BlobDigest]:
    return _DIGEST.fullmatch(text) is not None


def place(root: Path, digest: BlobDigest) -> Path:
    """Return ``root/ab/cdef…`` for the digest ``abcdef…``."""
    return root / digest[:2] / digest[2:]


def not_found(digest: BlobDigest) -> errors.BlobNotFound:
    return errors.BlobNotFound(f"no file is stored with digest {digest[:80]!r}")


def blobs_in(root: Path) -> Iterator[tuple[BlobDigest, os.stat_result]]:
    """Yield digest and facts of all blobs under the root; others may delete some concurrently."""
    with contextlib.suppress(FileNotFoundError):
        for folder in root.iterdir():
            for path in folder.iterdir() if len(folder.name) == 2 else ():
                with contextlib.suppress(FileNotFoundError):
                    digest = folder.name + path.name
                    if is_digest(digest):
                        yield digest, path.stat()


@contextlib.contextmanager
def temporary_file(folder: Path) -> Iterator[tuple[BinaryIO, Path]]:
    """Create a file in the folder, removed at the end of the context unless it was moved."""
    with writing():
        descriptor, name = tempfile.mkstemp(dir=folder)
    path = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file, path
    finally:
        path.unlink(missing_ok=True)


def receive(file: BinaryIO, chunks: Iterable[bytes], limit: int | None) -> Blob:
    """Write the bytes to disk. Raises BlobTooLarge, BlobStoreUnavailable and errors of ``chunks``."""
    digest, size = hashlib.sha256(), 0
    for chunk in chunks:
        size += len(chunk)
        if limit is not None and size > limit:
            raise errors.BlobTooLarge(f"the file exceeds the limit of {limit} bytes", details={"limit_bytes": limit})
        digest.update(chunk)
        with writing():
            file.write(chunk)
    with writing():
        file.flush()
        os.fsync(file.fileno())
    return Blob(digest=BlobDigest(FileDigest(digest.hexdigest())), size_bytes=size)


@contextlib.contextmanager
def writing() -> Iterator[None]:
    """Convert OSError to BlobStoreUnavailable, without paths, as API callers see the message."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise errors.BlobStoreFull("no space left in the blob store") from error
        reason = error.strerror or type(error).__name__
        raise errors.BlobStoreUnavailable(f"cannot write to the blob store: {reason}") from error


def move(temporary: Path, target: Path, *, mode: int = 0o400) -> None:
    """Move a file to its digest's path, read-only and durable."""
    with writing():
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary.chmod(mode)
        temporary.replace(target)
        # A rename is durable only after its folders are synced.
        _sync_folder(target.parent)
        _sync_folder(target.parent.parent)


@contextlib.contextmanager
def written(text: str, folder: Path) -> Iterator[Path]:
    """Create a file with the text in the folder, removed at the end of the context unless it was moved."""
    with temporary_file(folder) as (file, path):
        receive(file, [text.encode()], None)
        # Not secret; and a file created by root must be readable by the service.
        path.chmod(0o444)
        yield path


def write_new(target: Path, text: str, *, incoming: Path) -> None:
    """Create a file atomically, unless it exists; of concurrent callers, one creates it."""
    with written(text, incoming) as temporary, writing(), contextlib.suppress(FileExistsError):
        if target.is_file() and not target.stat().st_size:
            # Left by a caller that was interrupted below.
            target.unlink(missing_ok=True)
        try:
            target.hardlink_to(temporary)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            # Fallback of this file system: a concurrent reader may see an empty file.
            with target.open("x") as file:
                file.write(text)
        _sync_folder(target.parent)


def sweep(incoming: Path, *, older_than: float) -> int:
    """Remove old files from the folder of unfinished files; return their number."""
    removed = 0
    for path in incoming.iterdir() if incoming.is_dir() else ():
        with contextlib.suppress(FileNotFoundError):
            if time.time() - path.stat().st_mtime > older_than:
                path.unlink()
                removed += 1
    return removed


def check_writable(folder: Path) -> None:
    """Raise BlobStoreUnavailable if the folder is not writable, and BlobStoreFull if its disk is full."""
    with writing():
        homes.check_space(folder)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
