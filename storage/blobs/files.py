"""What every blob store does with files: writing them while hashing, naming them by digest, sweeping leftovers."""

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

_DIGEST = re.compile(r"[0-9a-f]{64}")
_FULL = (errno.ENOSPC, errno.EDQUOT)
_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS)


def is_digest(text: str) -> TypeGuard[BlobDigest]:
    return _DIGEST.fullmatch(text) is not None


def place(root: Path, digest: BlobDigest) -> Path:
    """``root/ab/cdef…`` for the digest ``abcdef…``."""
    return root / digest[:2] / digest[2:]


def not_found(digest: BlobDigest) -> errors.BlobNotFound:
    return errors.BlobNotFound(f"no file is stored with digest {digest[:80]!r}")


def blobs_in(root: Path) -> Iterator[tuple[BlobDigest, os.stat_result]]:
    """Digest and facts of every file that ``place`` names under the root; others may delete some meanwhile."""
    with contextlib.suppress(FileNotFoundError):
        for folder in root.iterdir():
            for path in folder.iterdir() if len(folder.name) == 2 else ():
                with contextlib.suppress(FileNotFoundError):
                    digest = folder.name + path.name
                    if is_digest(digest):
                        yield digest, path.stat()


@contextlib.contextmanager
def temporary_file(folder: Path) -> Iterator[tuple[BinaryIO, Path]]:
    """A new file of that folder, closed and removed at the end unless it was moved by then."""
    with writing():
        descriptor, name = tempfile.mkstemp(dir=folder)
    path = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file, path
    finally:
        path.unlink(missing_ok=True)


def receive(file: BinaryIO, chunks: Iterable[bytes], limit: int | None) -> Blob:
    """Write the bytes to the disk. Raises BlobTooLarge, BlobStoreUnavailable and whatever ``chunks`` raises."""
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
    """What the disk refuses, as BlobStoreUnavailable. The message names no path: callers of the API see it."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise errors.BlobStoreFull("no space left in the blob store") from error
        reason = error.strerror or type(error).__name__
        raise errors.BlobStoreUnavailable(f"cannot write to the blob store: {reason}") from error


def move(temporary: Path, target: Path, *, mode: int = 0o400) -> None:
    """Under its digest from now on, for readers only, whatever happens to this machine's power."""
    with writing():
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary.chmod(mode)
        temporary.replace(target)
        # A rename is on disk only when its folders are.
        _sync_folder(target.parent)
        _sync_folder(target.parent.parent)


@contextlib.contextmanager
def written(text: str, folder: Path) -> Iterator[Path]:
    """A new file of that folder with the text, removed at the end unless it was moved by then."""
    with temporary_file(folder) as (file, path):
        receive(file, [text.encode()], None)
        # No secret; and who looks after a store as root must not keep the service from reading it.
        path.chmod(0o444)
        yield path


def write_new(target: Path, text: str, *, incoming: Path) -> None:
    """All of it at once, unless there is such a file; of several who do it at once, one writes it."""
    with written(text, incoming) as temporary, writing(), contextlib.suppress(FileExistsError):
        if target.is_file() and not target.stat().st_size:
            # Left by somebody below who got no further.
            target.unlink(missing_ok=True)
        try:
            target.hardlink_to(temporary)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            # What this file system can do: whoever looks at the wrong moment finds it empty.
            with target.open("x") as file:
                file.write(text)
        _sync_folder(target.parent)


def sweep(incoming: Path, *, older_than: float) -> int:
    """Remove what was left in the folder of unfinished files; return how many."""
    removed = 0
    for path in incoming.iterdir() if incoming.is_dir() else ():
        with contextlib.suppress(FileNotFoundError):
            if time.time() - path.stat().st_mtime > older_than:
                path.unlink()
                removed += 1
    return removed


def check_writable(folder: Path) -> None:
    """Raises BlobStoreUnavailable."""
    with writing(), tempfile.TemporaryFile(dir=folder) as file:
        file.write(b"1")
        file.flush()


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
