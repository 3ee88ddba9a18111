"""A hostile file, and what must become of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

REFUSED = "refused"
"""While it is uploaded, with ``invalid_model`` or ``unsupported_operators``."""
LATER = "later"
"""It may be uploaded, and its job must fail with a typed error, or be done, within its limits."""
FATAL = "fatal"
"""It may be uploaded, and whoever runs it ends by a signal: its job must fail with ``invalid_model``."""


@dataclass(frozen=True, kw_only=True)
class Hostile:
    name: str
    content: bytes
    fate: str = REFUSED
    reason: str | None = None
    """``details.reason`` of the refusal, or its code if it has none; None leaves it open."""
    shapes: Mapping[str, tuple[int, ...]] | None = None
    """For its job."""
    signal: str | None = None
    """Of what a fatal one does."""
