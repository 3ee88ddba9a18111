"""Progress of a request by operator: imports and builds of large networks take minutes.

An engine serves one request at a time, so what it works on is the state of this module. Code that TVM calls for every
operator calls ``advance``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tuner.engines.protocol.messages import Json
from tuner.engines.protocol.serving import Handler

PAUSE_SECONDS = 1.0
"""Least time between two events."""


class Progress:
    """The current step of one request."""

    def __init__(self, emit: Callable[[str, Json], None], now: Callable[[], float] = time.monotonic) -> None:
        self._emit = emit
        self._now = now
        self._step: str | None = None
        self._total: int | None = None
        self._done = 0
        self._next = 0.0

    def begin(self, step: str, total: int | None, *, counts: bool) -> None:
        self._step, self._total, self._done = step, total, 0
        self._next = self._now() + PAUSE_SECONDS
        if not counts:
            self._tell()

    def advance(self) -> None:
        self._done += 1
        if self._step is not None and self._now() >= self._next:
            self._next = self._now() + PAUSE_SECONDS
            self._tell()

    def _tell(self) -> None:
        total = None if self._total is None else max(self._total, self._done)
        self._emit("progress", {"step": self._step, "done": self._done, "total": total})


_current: Progress | None = None


@contextmanager
def told(emit: Callable[[str, Json], None]) -> Iterator[None]:
    """Report the progress of a request through ``emit``."""
    global _current
    _current = Progress(emit)
    try:
        yield
    finally:
        _current = None


def telling(handler: Handler) -> Handler:
    """Return the handler of a method whose progress is reported."""

    def handle(params: Json, emitter: Any) -> Json:
        with told(emitter.emit):
            return handler(params, emitter)

    return handle


def begin(step: str, total: int | None = None, *, counts: bool = True) -> None:
    """Begin a step: ``import``, ``fold``, ``build``, ``schedule``, ``extract``, ``try`` or ``generate``.

    ``total`` is its number of operators. A step that does not count them is reported at once.
    """
    if _current is not None:
        _current.begin(step, total, counts=counts)


def is_told() -> bool:
    """Return whether this process reports progress; processes that build candidates do not."""
    return _current is not None


def advance() -> None:
    """Count one operator of the current step."""
    if _current is not None:
        _current.advance()


def counting(call: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``call``, which handles one operator, as a function that also counts it."""

    def counted(*arguments: Any, **named: Any) -> Any:
        advance()
        return call(*arguments, **named)

    counted.is_counting = True  # type: ignore[attr-defined]
    return counted
