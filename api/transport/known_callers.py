"""Whom tokens stand for, remembered for a second: the database need not be asked for every request."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from datetime import UTC, datetime

from domain.tokens import Principal
from storage.tables import digest_of

_SECONDS = 1.0
_MOST = 2000


class KnownCallers:
    """One that is revoked in this process is forgotten at once; in another one, within the second."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, tuple[float, Principal]] = OrderedDict()
        self._forgotten = 0

    def recall(self, secret: str) -> Principal | None:
        with self._lock:
            at, principal = self._kept.get(digest_of(secret), (0.0, None))
        if principal is None or self._clock() - at >= _SECONDS:
            return None
        # Whoever looks it up says that it has expired.
        return principal if principal.expires_at is None or principal.expires_at > datetime.now(UTC) else None

    @property
    def moment(self) -> int:
        """To be taken before a caller is looked up."""
        return self._forgotten

    def keep(self, secret: str, principal: Principal, moment: int) -> None:
        """Unless callers were forgotten since ``moment``: what was looked up may be older than that."""
        with self._lock:
            if moment != self._forgotten:
                return
            key = digest_of(secret)
            self._kept[key] = (self._clock(), principal)
            self._kept.move_to_end(key)
            if len(self._kept) > _MOST:
                self._kept.popitem(last=False)

    def forget(self) -> None:
        """All of them; called after a token was revoked."""
        with self._lock:
            self._forgotten += 1
            self._kept.clear()
