"""Words that a request may use, and near matches for those it may not."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from enum import StrEnum
from typing import Any, TypeVar

from domain.errors import InvalidRequest

Choice = TypeVar("Choice", bound=StrEnum)


def member(kind: type[Choice], text: str, noun: str, error: type[InvalidRequest]) -> Choice:
    """Raises ``error``, with near matches in its details, as ``known`` does."""
    return kind(known(text, [choice.value for choice in kind], noun, error))


def known(text: str, choices: Sequence[str], noun: str, error: type[InvalidRequest]) -> str:
    if text in choices:
        return text
    near = difflib.get_close_matches(text, choices, n=3, cutoff=0.4)
    hint = f"Did you mean {' or '.join(map(repr, near))}?" if near else f"Use {' or '.join(map(repr, choices))}."
    details: dict[str, Any] = {"known": list(choices), "near_matches": near}
    raise error(f"unknown {noun} {text[:80]!r}", hint=hint, details=details)
