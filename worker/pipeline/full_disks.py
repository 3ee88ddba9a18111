"""A home folder without room: nobody's fault, and over when somebody has made some."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from domain import errors

_FULL = (errno.ENOSPC, errno.EDQUOT)


@contextmanager
def told() -> Iterator[None]:
    """Raises DiskFull for whatever came of a write that found no room, on this side or an engine's."""
    try:
        yield
    except (OSError, errors.EngineError) as error:
        if not _is_full(error):
            raise
        raise errors.DiskFull("no space is left in the worker's home folder") from error


def _is_full(error: BaseException | None) -> bool:
    """Whether that is the cause, or the cause of its cause."""
    if error is None:
        return False
    if isinstance(error, OSError) and error.errno in _FULL:
        return True
    if isinstance(error, errors.EngineRequestFailed) and error.engine_code == "disk_full":
        return True
    # An error that is raised again "from" itself is its own cause.
    return error.__cause__ is not error and _is_full(error.__cause__)
