"""Text that every database can store: no NUL, which PostgreSQL refuses, and nothing that is no Unicode."""

from __future__ import annotations

from typing import Any


def check(value: Any) -> Any:
    """``value`` itself, of which JSON is made. Raises ValueError for a text in it, or a name, that cannot be stored."""
    left = [value]
    while left:
        found = left.pop()
        if isinstance(found, str):
            _check_text(found)
        elif isinstance(found, dict):
            left += [*found.keys(), *found.values()]
        elif isinstance(found, list):
            left += found
    return value


def _check_text(text: str) -> None:
    if "\0" in text:
        raise ValueError("text must not hold NUL characters")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("text must be Unicode; it holds half of a surrogate pair") from None
