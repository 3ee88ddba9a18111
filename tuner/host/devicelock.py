"""Locks of devices: one measurement at a time on a device of this host.

The lock files are in a folder outside of home folders, shared by all services of a user. The kernel releases the lock
when its holder exits for any reason.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import secrets
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from domain import errors
from domain.ports import Canceled
from tuner.host.settings import TunerSettings

_POLL_SECONDS = 0.1
_PLACE = re.compile(rb"[0-9a-f]{32}\n")


def place() -> str:
    """Return an id for all processes that take turns at measuring, stored in their folder of locks.

    Host names and paths are not suitable: containers that share the folder have their own, and two hosts may have equal
    ones.
    """
    folder = TunerSettings().lock_folder
    _prepare(folder)
    with (folder / "place").open("a+b") as file:
        return _known(file) or _named(file)


def _known(file: BinaryIO) -> str | None:
    file.seek(0)
    text = file.read()
    return text.decode().strip() if _PLACE.fullmatch(text) else None


def _named(file: BinaryIO) -> str:
    """Create the id under the lock; replaces the remains of a crash or a full disk."""
    fcntl.flock(file, fcntl.LOCK_EX)
    known = _known(file)
    if known is None:
        known = secrets.token_hex(16)
        file.truncate(0)
        file.write(f"{known}\n".encode())
        file.flush()
    return known


@contextmanager
def hold(
    device_key: str,
    *,
    timeout: float | None,
    folder: Path | None = None,
    canceled: Callable[[], bool] | None = None,
) -> Iterator[None]:
    """Hold the device during the block; waits up to ``timeout`` seconds for it, or without limit.

    ``folder`` defaults to the setting ``lock_folder``. Raises DeviceBusy, Canceled, and ConfigurationError if the
    folder belongs to another user.
    """
    folder = folder or TunerSettings().lock_folder
    _prepare(folder)
    path = folder / f"device-{hashlib.sha256(device_key.encode()).hexdigest()[:16]}.lock"
    with path.open("ab") as file:
        _acquire(file, path, device_key, timeout, canceled)
        yield


def _acquire(
    file: BinaryIO, path: Path, device_key: str, timeout: float | None, canceled: Callable[[], bool] | None
) -> None:
    deadline = None if timeout is None else time.monotonic() + timeout
    while not _try(file):
        if canceled and canceled():
            raise Canceled
        if deadline is not None and time.monotonic() >= deadline:
            holder = path.read_text(errors="replace")
            raise errors.DeviceBusy(
                f"another measurement is using {device_key}",
                hint="Wait for it to end; concurrent measurements would distort each other.",
                details={"device": device_key, "holder": holder},
            )
        time.sleep(_POLL_SECONDS)
    file.truncate(0)
    file.write(f"pid {os.getpid()}".encode())
    file.flush()


def _try(file: BinaryIO) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _prepare(folder: Path) -> None:
    """Create the folder; in a world-writable place, a folder or link of another user is not trusted."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
        raise errors.ConfigurationError(
            f"the lock folder {folder} belongs to another user", hint="Set TUNESMITH_LOCK_FOLDER to another folder."
        )
