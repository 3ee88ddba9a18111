"""Folders of the home that are made when they are missing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from configuration import homes
from domain import errors


@contextmanager
def making(folder: Path) -> Iterator[Path]:
    """To make the folder, and what is in it. Raises ConfigurationError where the system forbids that."""
    try:
        yield folder
    except OSError as error:
        raise errors.ConfigurationError(
            f"{error.filename or folder} cannot be made: {error.strerror or type(error).__name__}",
            hint=homes.NEEDED,
        ) from error
