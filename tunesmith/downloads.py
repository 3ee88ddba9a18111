"""Bytes of a known digest into a file: wholly or not at all, and going on where a broken download stopped.

What has come so far lies beside the target, in ``.NAME.DIGEST.part``. It outlives a lost server, Ctrl-C and a killed
process; the next download of the same bytes to the same place takes it up.
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
except ImportError:  # where there are no such locks, two downloads to one place are not told apart
    fcntl = None  # type: ignore[assignment]

if TYPE_CHECKING:
    from tunesmith.transport import Transport

Progress = Callable[[int, int], None]
"""Gets bytes there and bytes in all."""
_CHUNK = 256 * 1024
_SLASHES = tuple(filter(None, (os.sep, os.altsep)))


def file_digest(path: Path) -> str:
    """sha256 of a file, hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def is_there(path: Path, digest: str) -> bool:
    return path.is_file() and file_digest(path) == digest


def place(to: str | os.PathLike[str], name: str) -> Path:
    """``to``, or ``name`` in it where that is a folder, or is written as one: with a slash at its end."""
    return Path(to) / name if _is_folder(to) else Path(to)


def make_folder(to: str | os.PathLike[str]) -> None:
    """Where ``to`` is written as one. Raises InvalidInput."""
    if _is_folder(to):
        with _writing(Path(to)):
            Path(to).mkdir(parents=True, exist_ok=True)


def check(to: str | os.PathLike[str]) -> None:
    """Raises InvalidInput, before there is anything to write, for a place that cannot be written."""
    make_folder(to)
    folder = Path(to) if _is_folder(to) else Path(to).absolute().parent
    with _writing(Path(to)), tempfile.TemporaryFile(dir=folder):
        pass


def _is_folder(to: str | os.PathLike[str]) -> bool:
    return Path(to).is_dir() or os.fspath(to).endswith(_SLASHES)


def fetch(
    transport: Transport, source: str, target: Path, *, digest: str, size: int, progress: Progress | None = None
) -> Path:
    """Download ``source`` of the server to ``target``; a connection that breaks is taken up again.

    Raises NetworkError when it stays broken, RateLimited when the server wants a long wait, ServerError when the bytes
    are not those of the digest, InvalidInput when ``target`` cannot be written.
    """
    with _writing(target), _partial(target, digest) as (path, file):
        resumed = file.tell() > 0
        _receive(transport, source, file, digest=digest, size=size, progress=progress)
        if resumed and _digest(file) != digest:
            # What lay there was no beginning of these bytes.
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
                raise errors.ServerError(f"{source} has {file.tell()} bytes; {size} were announced")


def _append(
    transport: Transport, source: str, file: BinaryIO, *, digest: str, size: int, progress: Progress | None
) -> None:
    # Compressed on the way, bytes could be neither counted nor continued.
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
def _writing(target: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise errors.InvalidInput(
            f"cannot write {target}: {error.strerror}", code="unwritable_file", hint="Name another place with -o."
        ) from error


@contextmanager
def _partial(target: Path, digest: str) -> Iterator[tuple[Path, BinaryIO]]:
    """Where the bytes gather, at their end. Removed when nothing has come."""
    path = target.with_name(f".{target.name}.{digest[:12]}.part")
    file = _alone(path)
    if file is None:
        # Someone else is at it: two may write one place, but not one file.
        path = target.with_name(f".{target.name}.{digest[:12]}.{os.getpid()}.part")
        file = path.open("ab+")
    with file:
        try:
            yield path, file
        finally:
            if file.seek(0, os.SEEK_END) == 0:
                path.unlink(missing_ok=True)


def _alone(path: Path) -> BinaryIO | None:
    """The file, locked; None when another process has it."""
    while True:
        # "a" writes at the end and makes what is missing.
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
            pass  # finished and renamed by the one who had it
        file.close()
