"""How many requests one caller may make: a token bucket for each principal, and for each address that has none.

Counted in this process: several API processes behind one address allow that many times as much.
"""

from __future__ import annotations

import ipaddress
import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from api import problems
from api.middleware import Middleware
from domain import errors
from domain.tokens import Principal

_MOST_KEYS = 10_000
STATIC_PATH = "/static/"
_UNLIMITED = ("/healthz", STATIC_PATH)
"""Who asks whether the process lives must not take a busy one for dead; and a page comes with many small files."""


class Buckets:
    """``burst`` requests at once, then ``per_second``. Of the keys only the latest are remembered."""

    def __init__(
        self,
        *,
        per_second: float,
        burst: int,
        most_keys: int = _MOST_KEYS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._per_second = per_second
        self._burst = burst
        self._most_keys = most_keys
        self._clock = clock
        self._levels: OrderedDict[str, tuple[float, float]] = OrderedDict()
        """What was left in a key's bucket, and when."""
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._levels)

    def take(self, key: str) -> float:
        """Seconds until there is room for the request; 0.0 when there was, and it is counted."""
        with self._lock:
            now = self._clock()
            level = self._level(key, now)
            if level < 1:
                return (1 - level) / self._per_second
            self._levels[key] = (level - 1, now)
            self._levels.move_to_end(key)
            if len(self._levels) > self._most_keys:
                self._levels.popitem(last=False)
            return 0.0

    def wait(self, key: str) -> float:
        """As ``take``, but nothing is counted."""
        with self._lock:
            return max(0.0, (1 - self._level(key, self._clock())) / self._per_second)

    def _level(self, key: str, now: float) -> float:
        level, at = self._levels.get(key, (float(self._burst), now))
        return min(float(self._burst), level + (now - at) * self._per_second)


class RateLimit(Middleware):
    """Behind ``Credentials``, which finds out who calls. A stream of events counts once, when it is opened."""

    def __init__(self, app: ASGIApp, buckets: Buckets) -> None:
        super().__init__(app)
        self._buckets = buckets

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not scope["path"].startswith(_UNLIMITED):
            seconds = self._buckets.take(key(scope))
            if seconds:
                await problems.tunesmith_error(Request(scope), exceeded(seconds))(scope, receive, send)
                return
        await self._app(scope, receive, send)


def exceeded(seconds: float, what: str = "requests") -> errors.RateLimited:
    whole = max(1, math.ceil(seconds))
    return errors.RateLimited(f"too many {what}; try again in {whole} s", details={"retry_after_seconds": whole})


def address(scope: Scope) -> str:
    """Of whoever calls; of IPv6 the network, of which one subscriber has all addresses."""
    host = scope["client"][0] if scope.get("client") else ""
    try:
        parsed = ipaddress.ip_address(host)
    except ValueError:
        return str(host)
    return str(ipaddress.ip_network((parsed, 64), strict=False)) if parsed.version == 6 else host


def key(scope: Scope) -> str:
    caller = scope["state"]["caller"]
    if isinstance(caller, Principal):
        return f"token {caller.token_id or caller.owner}"
    return f"address {address(scope)}"
