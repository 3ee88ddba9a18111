"""Rate limit of requests: a token bucket for each principal, and for each address of unauthenticated requests.

The buckets are per process: several API processes multiply the limit.
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
"""Health checks must not fail on a busy server, and pages load many small files."""


class Buckets:
    """Token buckets: ``burst`` requests at once, then ``per_second``. Only the most recent keys are kept."""

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
        """Level of the bucket and time of the last request, by key."""
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._levels)

    def take(self, key: str) -> float:
        """Take a token; return 0.0, or the seconds until one is available."""
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
        """Return the seconds until a token is available, without taking it."""
        with self._lock:
            return max(0.0, (1 - self._level(key, self._clock())) / self._per_second)

    def _level(self, key: str, now: float) -> float:
        level, at = self._levels.get(key, (float(self._burst), now))
        return min(float(self._burst), level + (now - at) * self._per_second)


class RateLimit(Middleware):
    """Limits requests by caller; must be inside of ``Credentials``. An event stream counts once, when it is opened."""

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
    """Return the caller's address; for IPv6 the /64 network, as a subscriber has all of its addresses."""
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
