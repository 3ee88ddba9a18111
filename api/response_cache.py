"""Cache for values that many concurrent requests need."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import cached_property
from typing import Generic, TypeVar

import cachetools

from api.jobs import schemas as job_schemas

Value = TypeVar("Value")


class TTLCache(Generic[Value]):
    """A thread-safe TTL cache; for concurrent misses of a key, one thread computes the value."""

    def __init__(self, *, most: int, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        cache: cachetools.TTLCache[Hashable, Value] = cachetools.TTLCache(most, seconds, timer=clock)
        self._find = cachetools.cached(cache, key=_first, condition=threading.Condition())(_compute)

    def get(self, key: Hashable, compute: Callable[[], Value]) -> Value:
        """Return the value of ``key``, computed now or less than ``seconds`` ago. Raises errors of ``compute``."""
        found: Value = self._find(key, compute)
        return found


def _first(key: Hashable, _compute: object) -> Hashable:
    return key


def _compute(_key: Hashable, compute: Callable[[], Value]) -> Value:
    return compute()


@dataclass(frozen=True)
class Status:
    detail: job_schemas.JobDetail
    last_event: int
    """Id of the last event that the detail includes."""

    @cached_property
    def body(self) -> bytes:
        return self.detail.model_dump_json().encode()
