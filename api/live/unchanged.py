"""Answers that hold as long as nothing was committed to the database."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Generic, TypeVar

from api.live.kept import Kept
from storage.database import Database
from storage.versions import Version

_SECONDS = 1.0
_MOST = 2000

Told = TypeVar("Told")


class Unchanged(Generic[Told]):
    """Remembers for a second what was read while the database's version was the same; nothing where it has none.

    Asking takes microseconds and never blocks: what is answered from here needs neither a thread nor a query.
    """

    def __init__(self, database: Database, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._database = database
        self._kept: Kept[tuple[Version, Told]] = Kept(most=_MOST, clock=clock)

    def recall(self, key: str) -> tuple[Told | None, Version | None]:
        """What was kept; and if there is nothing, the version to ``keep`` with it what is now going to be read."""
        version = self._database.version()
        seen, told = self._kept.get(key) or (None, None)
        return (told if version is not None and seen == version else None), version

    def keep(self, key: str, version: Version | None, told: Told) -> None:
        if version is not None:
            self._kept.put(key, (version, told), _SECONDS)
