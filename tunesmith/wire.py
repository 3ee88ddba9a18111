"""What travels."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from tunesmith import errors

Json = dict[str, Any]


def segment(text: str) -> str:
    """One part of a path, whatever a caller named. Raises InvalidInput where it names nothing."""
    if not text:
        raise errors.InvalidInput("an empty name was given", hint="Name an id, as the listings show them.")
    return quote(text, safe="")
