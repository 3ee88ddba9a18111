"""Ship the end of a running job's engine log to the database, for readers on other hosts."""

from __future__ import annotations

import contextlib
import logging
import threading
from pathlib import Path
from typing import Self

from sqlalchemy.exc import SQLAlchemyError

from process import logs
from storage import job_logs
from storage.database import Database
from storage.job_logs import Tail

SECONDS = 5.0
"""Pause between two reads of the file."""
_log = logging.getLogger(__name__)


class LogShipper:
    """Ship the log of one attempt at a job while the context is open.

    The log continues where earlier attempts left it, even if they ran on other hosts and this host's file begins anew.
    Errors do not fail the job: text that could not be stored now is stored later, or never.
    """

    def __init__(self, database: Database, job_id: str, attempt: int, path: Path, *, seconds: float = SECONDS) -> None:
        self._database = database
        self._job_id = job_id
        self._attempt = attempt
        self._path = path
        self._seconds = seconds
        self._lock = threading.Lock()
        self._done = threading.Event()
        self._known: Tail | None = None
        """The tail in the database; None until it was read."""
        self._ahead = 0
        """Bytes by which the log is longer than this host's file, because other hosts wrote to it."""
        self._begun_at = _size(path)
        self._is_followed = False
        """Whether a later attempt has taken over the log."""
        self._thread = threading.Thread(target=logs.inherited(self._run), name=f"log {job_id}", daemon=True)

    def ship(self) -> None:
        """Store the new text now."""
        with self._lock:
            try:
                self._ship()
            except (SQLAlchemyError, OSError) as error:
                reason = type(error).__name__
                _log.warning("job %s: cannot store the end of its engine log: %s", self._job_id, reason)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()
        self.ship()

    def _run(self) -> None:
        while not self._done.wait(self._seconds):
            self.ship()

    def _ship(self) -> None:
        if self._is_followed or (self._known is None and not _size(self._path)):
            return
        known = self._begin() if self._known is None else self._known
        grown = self._read(known)
        if grown is None:
            return
        with self._database.transaction() as session:
            self._is_followed = not job_logs.keep(session, self._job_id, self._attempt, grown)
        self._known = grown

    def _begin(self) -> Tail:
        with self._database.transaction() as session:
            self._known = job_logs.begin(session, self._job_id, self._attempt)
        # A longer file has text of an earlier attempt on this host that could not be stored.
        self._ahead = max(0, self._known.size - self._begun_at)
        return self._known

    def _read(self, known: Tail) -> Tail | None:
        """The tail with the new text of the file; None without any."""
        size, read = _size(self._path), known.size - self._ahead
        if size < read:
            # The file was truncated: continue from its beginning.
            self._ahead, read = known.size, 0
        if size == read:
            return None
        start = max(read, size - job_logs.MOST_BYTES)
        with self._path.open("rb") as file:
            file.seek(start)
            text = file.read(size - start)
        return known.then(text, left_out=start - read)


def _size(path: Path) -> int:
    with contextlib.suppress(FileNotFoundError):
        return path.stat().st_size
    return 0
