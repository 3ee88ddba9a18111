"""Atomic, resumable downloads of content with a known digest.

Received bytes are kept next to the target in ``.NAME.DIGEST.part``. The file survives a lost server, Ctrl-C and a
killed process; the next download of the same content to the same target resumes it.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from tunesmith import errors

try:
    import fcntl
except ImportError:  # without file locks, concurrent downloads to one target are not detected
    fcntl = None  # type: ignore[assignment]

if TYPE_CHECKING:
    from tunesmith.transport import Transport

Progress = Callable[[int, int], None]
"""Called with the bytes received and the total."""
_CHUNK = 256 * 1024
_SLASHES = tuple(filter(None, (os.sep, os.altsep)))


def file_digest(path: Path) -> str:
    """Return the sha256 of a file in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def is_there(path: Path, digest: str) -> bool:
    return path.is_file() and file_digest(path) == digest


def place(to: str | os.PathLike[str], name: str) -> Path:
    """Return ``to``, or ``to/name`` if ``to`` is a folder or ends with a slash."""
    return Path(to) / name if _is_folder(to) else Path(to)


def make_folder(to: str | os.PathLike[str]) -> None:
    """Create the folder ``to`` if it ends with a slash. Raises InvalidInput."""
    if _is_folder(to):
        with writing(Path(to)):
            Path(to).mkdir(parents=True, exist_ok=True)


def check(to: str | os.PathLike[str]) -> None:
    """Raise InvalidInput if ``to`` cannot be written."""
    make_folder(to)
    folder = Path(to) if _is_folder(to) else Path(to).absolute().parent
    with writing(Path(to)), tempfile.TemporaryFile(dir=folder):
        pass


def _is_folder(to: str | os.PathLike[str]) -> bool:
    return Path(to).is_dir() or os.fspath(to).endswith(_SLASHES)


def fetch(
    transport: Transport, source: str, target: Path, *, digest: str, size: int, progress: Progress | None = None
) -> Path:
    """Download ``source`` from the server to ``target``, resuming after lost connections.

    Raises NetworkError if the connection stays lost, TooMuch if the server asks for a long wait, ServerError if the
    bytes do not match the digest, InvalidInput if ``target`` cannot be written.
    """
    with writing(target), _partial(target, digest) as (path, file):
        resumed = file.tell() > 0
        _receive(transport, source, file, digest=digest, size=size, progress=progress)
        if resumed and _digest(file) != digest:
            # The partial file was not a prefix of this content.
            _empty(file)
            _receive(transport, source, file, digest=digest, size=size, progress=progress)
        if _digest(file) != digest:
            _empty(file)
            raise errors.ServerError(f"the bytes of {source} do not match their digest", hint="Download it again.")
        file.flush()
        os.fsync(file.fileno())
        path.replace(target)
    return target


def _receive(
    transport: Transport, source: str, file: BinaryIO, *, digest: str, size: int, progress: Progress | None
) -> None:
    from tunesmith.transport import LONGEST_SECONDS, pause

    idle = 0
    while (have := file.seek(0, os.SEEK_END)) < size:
        try:
            _append(transport, source, file, digest=digest, size=size, progress=progress)
        except (errors.NetworkError, errors.TooMuch) as error:
            idle = 0 if file.tell() > have else idle + 1
            if idle > transport.retries or (error.retry_after or 0.0) > LONGEST_SECONDS:
                raise
            time.sleep(pause(idle, asked=error.retry_after))
        else:
            if file.tell() < size:
                raise errors.ServerError(f"{source} has {file.tell()} bytes, but {size} were announced")


def _append(
    transport: Transport, source: str, file: BinaryIO, *, digest: str, size: int, progress: Progress | None
) -> None:
    # With a content encoding, bytes could be neither counted nor resumed.
    headers = {"Accept-Encoding": "identity"}
    if file.tell():
        headers |= {"Range": f"bytes={file.tell()}-", "If-Range": f'"{digest}"'}
    with transport.stream(source, headers) as response:
        if response.status_code != 206:
            _empty(file)
        for chunk in response.iter_raw(_CHUNK):
            file.write(chunk)
            if progress:
                progress(file.tell(), size)


def _empty(file: BinaryIO) -> None:
    file.seek(0)
    file.truncate()


def _digest(file: BinaryIO) -> str:
    file.seek(0)
    return hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]


@contextmanager
def writing(target: Path) -> Iterator[None]:
    """Convert errors of the file system to InvalidInput."""
    try:
        yield
    except OSError as error:
        raise errors.InvalidInput(
            f"cannot write {target}: {error.strerror}",
            code="unwritable_file",
            hint="Choose another file or folder with -o.",
        ) from error


@contextmanager
def _partial(target: Path, digest: str) -> Iterator[tuple[Path, BinaryIO]]:
    """Open the partial file at its end; it is removed if it stays empty."""
    path = target.with_name(f".{target.name}.{digest[:12]}.part")
    file = _alone(path)
    if file is None:
        # Another process downloads to this target, so use a partial file of our own.
        path = target.with_name(f".{target.name}.{digest[:12]}.{os.getpid()}.part")
        file = path.open("ab+")
    with file:
        try:
            yield path, file
        finally:
            if file.seek(0, os.SEEK_END) == 0:
                path.unlink(missing_ok=True)


def _alone(path: Path) -> BinaryIO | None:
    """Open and lock the file; None if another process holds the lock."""
    while True:
        # "a" creates the file and writes at its end.
        file = path.open("ab+")
        if fcntl is None:
            return file
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(file.fileno()), path.stat()):
                return file
        except BlockingIOError:
            file.close()
            return None
        except FileNotFoundError:
            pass  # finished and renamed by the process that held the lock
        file.close()
