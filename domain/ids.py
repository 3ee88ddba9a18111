"""Ids of objects: short, unique, with a prefix for the kind of object."""

from __future__ import annotations

import secrets
from datetime import datetime

from domain.digests import ArtifactDigest, ModelDigest

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
"""Crockford's base32: sorted like ASCII, without letters that look like digits."""
_TIME_DIGITS = 10
_RANDOM_BITS = 50
_DIGEST_DIGITS = 12


def model(digest: ModelDigest) -> str:
    return f"m-{digest[:_DIGEST_DIGITS]}"


def artifact(digest: ArtifactDigest) -> str:
    return f"a-{digest[:_DIGEST_DIGITS]}"


def job(now: datetime) -> str:
    return _of_time("j", now)


def token(now: datetime) -> str:
    return _of_time("t", now)


def delivery(now: datetime) -> str:
    return _of_time("w", now)


def data_set(now: datetime) -> str:
    return _of_time("s", now)


def database(now: datetime) -> str:
    return _of_time("d", now)


def _of_time(letter: str, now: datetime) -> str:
    """Return a new id; ids sort by their millisecond."""
    milliseconds = int(now.timestamp() * 1000)
    return f"{letter}-{_base32(milliseconds, _TIME_DIGITS)}{_base32(secrets.randbits(_RANDOM_BITS), _RANDOM_BITS // 5)}"


def _base32(number: int, digits: int) -> str:
    return "".join(_ALPHABET[number >> 5 * place & 31] for place in reversed(range(digits)))
