"""Values computed a moment ago, shared by all requests that ask for them at the same time."""

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
    """A TTL cache for several threads; of those that miss the same key at once, one computes the value."""

    def __init__(self, *, most: int, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        cache: cachetools.TTLCache[Hashable, Value] = cachetools.TTLCache(most, seconds, timer=clock)
        self._find = cachetools.cached(cache, key=_first, condition=threading.Condition())(_compute)

    def get(self, key: Hashable, compute: Callable[[], Value]) -> Value:
        """What ``compute`` returned for this key less than ``seconds`` ago, or returns now. Raises what it raises."""
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
    """Id of an event that the detail covers, as it covers all before."""

    @cached_property
    def body(self) -> bytes:
        return self.detail.model_dump_json().encode()
