"""Limits of concurrent uploads, in total and per owner."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio

from domain import errors

_RETRY_AFTER_SECONDS = 5


class UploadSlots:
    """Slots for uploads, of a single event loop. One owner may use half of them, so that slow uploads do not block
    others."""

    def __init__(self, total: int) -> None:
        self._slots = anyio.Semaphore(total)
        self._threads = anyio.CapacityLimiter(total)
        self._most = max(1, total // 2)
        self._uploads: Counter[str] = Counter()
        """Uploads of each owner, including waiting ones."""

    def __len__(self) -> int:
        return self._uploads.total()

    @asynccontextmanager
    async def one(self, owner: str) -> AsyncIterator[anyio.CapacityLimiter]:
        """Wait for a slot and return the limiter of threads to receive the upload in. Raises RateLimited."""
        if self._uploads[owner] >= self._most:
            raise _too_many(self._most)
        self._uploads[owner] += 1
        try:
            async with self._slots:
                yield self._threads
        finally:
            self._uploads[owner] -= 1
            # Remove owners without uploads.
            self._uploads = +self._uploads


def _too_many(most: int) -> errors.RateLimited:
    return errors.RateLimited(
        f"you have {most} uploads in progress, the limit for one owner",
        hint="Wait until one finishes, or upload files one at a time.",
        details={"retry_after_seconds": _RETRY_AFTER_SECONDS},
    )
