"""Whom tokens stand for, remembered for a while: not every request need look it up in a thread."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from api.live.kept import Kept
from domain.tokens import Principal
from storage.tables import digest_of

_SECONDS = 1.0
_AGAIN_SECONDS = 30.0
"""As long as its row is the same; then whoever looks it up also writes down that it is used."""
_MOST = 2000

Row = tuple[Any, ...]
LookAtOnce = Callable[[str], Row | None]
"""A token's row, without a thread; None where that cannot be."""


@dataclass(frozen=True)
class Moment:
    """To be taken before a caller is looked up: what is found may be older than a change."""

    forgotten: int
    row: Row | None


@dataclass
class _Known:
    principal: Principal
    row: Row | None
    until: float


class KnownCallers:
    """One that is revoked in this process is forgotten at once; in another one, within the second."""

    def __init__(
        self, look_at_once: LookAtOnce = lambda _: None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._look_at_once = look_at_once
        self._clock = clock
        self._kept: Kept[_Known] = Kept(most=_MOST, clock=clock)
        self._lock = threading.Lock()
        self._forgotten = 0

    def recall(self, secret: str) -> Principal | None:
        known = self._kept.get(digest_of(secret))
        if known is None or not self._is_still(known, secret):
            return None
        expires_at = known.principal.expires_at
        # Whoever looks it up says that it has expired.
        return known.principal if expires_at is None or expires_at > datetime.now(UTC) else None

    def moment(self, secret: str) -> Moment:
        return Moment(self._forgotten, self._look_at_once(secret))

    def keep(self, secret: str, principal: Principal, moment: Moment) -> None:
        """Unless callers were forgotten since ``moment``."""
        with self._lock:
            if moment.forgotten == self._forgotten:
                known = _Known(principal, moment.row, self._clock() + _SECONDS)
                self._kept.put(digest_of(secret), known, _AGAIN_SECONDS if moment.row else _SECONDS)

    def forget(self) -> None:
        """All of them; called after a token was revoked."""
        with self._lock:
            self._forgotten += 1
            self._kept.clear()

    def _is_still(self, known: _Known, secret: str) -> bool:
        if self._clock() >= known.until:
            if known.row != self._look_at_once(secret):
                return False
            known.until = self._clock() + _SECONDS
        return True
