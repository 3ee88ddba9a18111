"""Permissions of the home folder, which contains tokens, webhook secrets, models and engine logs."""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from domain import errors

NEEDED = "Set TUNESMITH_HOME to a folder that the service's user can write to."
HINT = "Restrict it to the service's user: chmod 700, as that user or as root."
_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_PRIVATE = 0o077
_SPACE_BYTES = 1024**2


def keep_new_files_private() -> None:
    """Set the umask of this process and its children, for databases, sockets, logs and temporary files."""
    os.umask(_PRIVATE)


def prepare(home: Path) -> str | None:
    """Create the folder, or restrict its permissions; returns a message if that fails.

    Raises ConfigurationError if it cannot be created.
    """
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = home.stat()
    except OSError as error:
        raise errors.ConfigurationError(
            f"the home folder {home} cannot be used: {error.strerror or error}",
            hint=NEEDED,
        ) from error
    # A sticky folder, such as /tmp, is shared, even if root runs the service there.
    if status.st_uid == os.geteuid() and status.st_mode & _OTHERS and not status.st_mode & stat.S_ISVTX:
        with contextlib.suppress(OSError):
            home.chmod(stat.S_IMODE(status.st_mode) & ~_OTHERS)
    return wrong_with(home)


def wrong_with(home: Path) -> str | None:
    """Return a sentence on who else can access the folder; None if nobody can."""
    status = home.stat()
    # A folder of another owner may be accessible through its group only, as volumes of Kubernetes are.
    others = _OTHERS if status.st_uid == os.geteuid() else stat.S_IRWXO
    if not status.st_mode & others:
        return None
    return f"the home folder {home} is open to other users of this machine (mode {stat.S_IMODE(status.st_mode):03o})"


def check_space(folder: Path) -> None:
    """Allocate 1 MiB in the folder and free it. Raises OSError if it is not writable or its disk or quota is full."""
    with tempfile.TemporaryFile(dir=folder) as file:
        os.posix_fallocate(file.fileno(), 0, _SPACE_BYTES)


@contextmanager
def making(folder: Path) -> Iterator[Path]:
    """Convert errors of creating the folder and its content to ConfigurationError."""
    try:
        yield folder
    except OSError as error:
        raise errors.ConfigurationError(
            f"{error.filename or folder} cannot be created: {error.strerror or type(error).__name__}",
            hint=NEEDED,
        ) from error
