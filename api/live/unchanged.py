"""Answers that hold as long as nothing was committed to the database."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

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
        self._clock = clock
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, tuple[float, Version, Told]] = OrderedDict()

    def recall(self, key: str) -> tuple[Told | None, Version | None]:
        """What was kept; and if there is nothing, the version to ``keep`` with it what is now going to be read."""
        version = self._database.version()
        if version is None:
            return None, None
        with self._lock:
            at, seen, told = self._kept.get(key, (0.0, None, None))
        return (told if seen == version and self._clock() - at < _SECONDS else None), version

    def keep(self, key: str, version: Version | None, told: Told) -> None:
        if version is None:
            return
        with self._lock:
            self._kept[key] = (self._clock(), version, told)
            self._kept.move_to_end(key)
            if len(self._kept) > _MOST:
                self._kept.popitem(last=False)
