"""Whether a service that was just started is ready: its API answers, and each of its workers sends heartbeats."""

from __future__ import annotations

import contextlib
import http.client
import threading
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

from sqlalchemy.exc import SQLAlchemyError

from domain import errors
from storage import workers
from storage.database import Database
from worker import identity

API_SECONDS = 90.0
WORKER_SECONDS = 60.0
"""Time limit after the API's start, plus that of engines: the first worker on a machine starts each once."""
_READY_LOOK_SECONDS = 0.1
_ANSWER_SECONDS = 5.0


class Readiness:
    """Waits in a thread, as the main thread watches child processes."""

    def __init__(
        self,
        url: str,
        database: Database,
        pids: Callable[[], list[int | None]],
        *,
        logs: Path,
        api_seconds: float = API_SECONDS,
        worker_seconds: float = WORKER_SECONDS,
    ) -> None:
        """``pids`` are those of the workers, None for one about to be restarted. ``database`` is closed at the end."""
        self._url = url
        self._database = database
        self._pids = pids
        self._logs = logs
        self._seconds = (api_seconds, worker_seconds)
        self._failure: errors.ConfigurationError | None = None
        self._over = threading.Event()
        self._closing = threading.Event()
        threading.Thread(target=self._find_out, name="readiness", daemon=True).start()

    def is_over(self) -> bool:
        """Return whether the wait has ended, with or without success."""
        return self._over.is_set()

    def check(self) -> None:
        """Raise ConfigurationError if the wait ended by timeout; call it after ``is_over``."""
        if self._failure is not None:
            raise self._failure

    def close(self) -> None:
        """Stop waiting, without waiting for a pending response."""
        self._closing.set()

    def _find_out(self) -> None:
        try:
            with contextlib.closing(self._database):
                self._failure = self._failed()
        except Exception as error:
            self._failure = errors.ConfigurationError(f"cannot determine whether the service is ready: {error}")
            raise
        finally:
            self._over.set()

    def _failed(self) -> errors.ConfigurationError | None:
        for_api, for_workers = self._seconds
        if not self._wait(self._answers, for_api):
            return errors.ConfigurationError(
                f"the service did not become ready within {for_api:g} s",
                hint=f"See the logs under {self._logs}.",
            )
        if not self._wait(self._has_workers, for_workers):
            return errors.ConfigurationError(
                f"the service did not become ready: no heartbeat from its worker within {for_workers:g} s",
                hint=f"See the worker's log under {self._logs}.",
            )
        return None

    def _wait(self, condition: Callable[[], bool], seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline or self._closing.wait(_READY_LOOK_SECONDS):
                return False
        return True

    def _answers(self) -> bool:
        # No proxy: the address is on this machine.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with (
            contextlib.suppress(OSError, http.client.HTTPException),
            opener.open(f"{self._url}/readyz", timeout=_ANSWER_SECONDS) as answer,
        ):
            return bool(answer.status == 200)
        return False

    def _has_workers(self) -> bool:
        wanted = self._pids()
        try:
            with self._database.reading() as session:
                known = workers.known(session)
        except SQLAlchemyError:
            return False
        living = {one.pid for one in known if identity.is_here(one) and not identity.is_dead(one)}
        return living.issuperset(wanted)
