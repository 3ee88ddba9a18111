"""Strong entity tags and the conditions that name them (RFC 9110, section 13)."""

from __future__ import annotations

import hashlib

_DIGITS = 32


def of(content: bytes) -> str:
    return f'"{hashlib.sha256(content).hexdigest()[:_DIGITS]}"'


def matches(if_none_match: str, etag: str) -> bool:
    """If-None-Match compares weakly: W/ makes no difference."""
    listed = [entry.strip().removeprefix("W/") for entry in if_none_match.split(",")]
    return etag in listed or if_none_match.strip() == "*"
