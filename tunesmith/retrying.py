"""When to ask again, and after how long."""

from __future__ import annotations

import random
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

RETRIES = 3
"""Further attempts at what is harmless to repeat."""
LONGEST_SECONDS = 60.0
"""A server that asks for a longer wait is not waited for."""
_FIRST_SECONDS = 0.1
_GROWTH = 3.0
_JITTER = 0.25
_UNAVAILABLE = frozenset({502, 503, 504})
_TOO_MANY = 429


def pause(attempt: int, *, asked: float | None = None) -> float:
    """Seconds before the next attempt: growing, a little random so that many clients do not return at once."""
    own = _FIRST_SECONDS * _GROWTH**attempt * random.uniform(1 - _JITTER, 1 + _JITTER)  # noqa: S311 - no secret
    return max(own, asked or 0.0)


def is_transient(status: int, asked: float | None) -> bool:
    """Whether the same request may soon be answered otherwise; ``asked`` is what the server asked to wait."""
    if asked is not None and asked > LONGEST_SECONDS:
        return False
    return status in _UNAVAILABLE or (status == _TOO_MANY and asked is not None)


def asked_to_wait(headers: Mapping[str, str]) -> float | None:
    """Seconds of Retry-After, which is a number or a date (RFC 9110, section 10.2.3); None without one."""
    text = headers.get("Retry-After", "").strip()
    if text.isdecimal():
        return float(text)
    try:
        at = parsedate_to_datetime(text)
    except ValueError:
        return None
    # "-0000" in place of a time zone makes it naive.
    return max(0.0, (at.replace(tzinfo=at.tzinfo or UTC) - datetime.now(UTC)).total_seconds())
