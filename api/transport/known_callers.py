"""Whom tokens stand for, remembered for a second: the database need not be asked for every request."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime

from api.live.kept import Kept
from domain.tokens import Principal
from storage.tables import digest_of

_SECONDS = 1.0
_MOST = 2000


class KnownCallers:
    """One that is revoked in this process is forgotten at once; in another one, within the second."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._kept: Kept[Principal] = Kept(most=_MOST, clock=clock)
        self._lock = threading.Lock()
        self._forgotten = 0

    def recall(self, secret: str) -> Principal | None:
        known = self._kept.get(digest_of(secret))
        # Whoever looks it up says that it has expired.
        has_expired = known is not None and known.expires_at is not None and known.expires_at <= datetime.now(UTC)
        return None if has_expired else known

    @property
    def moment(self) -> int:
        """To be taken before a caller is looked up."""
        return self._forgotten

    def keep(self, secret: str, principal: Principal, moment: int) -> None:
        """Unless callers were forgotten since ``moment``: what was looked up may be older than that."""
        with self._lock:
            if moment == self._forgotten:
                self._kept.put(digest_of(secret), principal, _SECONDS)

    def forget(self) -> None:
        """All of them; called after a token was revoked."""
        with self._lock:
            self._forgotten += 1
            self._kept.clear()
