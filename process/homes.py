"""The home folder is its owner's alone: it holds tokens, secrets of webhooks, models and what engines logged."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from domain import errors

NEEDED = "Set TUNESMITH_HOME to a folder that the service's user can write to."
HINT = "Restrict it to the service's user: chmod 700, as that user or as root."
_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_PRIVATE = 0o077


def keep_new_files_private() -> None:
    """Of this process and all that it starts, whatever the umask was: databases, sockets, logs, work in progress."""
    os.umask(_PRIVATE)


def prepare(home: Path) -> str | None:
    """Make the folder, or close one of ours to everybody else; what is wrong when that cannot be done, for people.

    Raises ConfigurationError where there is none and none can be made.
    """
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = home.stat()
    except OSError as error:
        raise errors.ConfigurationError(
            f"the home folder {home} cannot be used: {error.strerror or error}",
            hint=NEEDED,
        ) from error
    # A sticky folder, such as /tmp, is everybody's, also when root runs the service there.
    if status.st_uid == os.geteuid() and status.st_mode & _OTHERS and not status.st_mode & stat.S_ISVTX:
        with contextlib.suppress(OSError):
            home.chmod(stat.S_IMODE(status.st_mode) & ~_OTHERS)
    return wrong_with(home)


def wrong_with(home: Path) -> str | None:
    """Who else can reach what is in the folder, in one sentence; None where nobody can."""
    status = home.stat()
    # Somebody else's folder may be ours by its group alone, as volumes of Kubernetes are.
    others = _OTHERS if status.st_uid == os.geteuid() else stat.S_IRWXO
    if not status.st_mode & others:
        return None
    return f"the home folder {home} is open to other users of this machine (mode {stat.S_IMODE(status.st_mode):03o})"


@contextmanager
def making(folder: Path) -> Iterator[Path]:
    """To make the folder, and what is in it. Raises ConfigurationError where the system forbids that."""
    try:
        yield folder
    except OSError as error:
        raise errors.ConfigurationError(
            f"{error.filename or folder} cannot be created: {error.strerror or type(error).__name__}",
            hint=NEEDED,
        ) from error
