"""Tracing: spans of work with their causes. Nothing is recorded, or imported, until a tracer is installed."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

from domain import errors

Value = str | int | float | bool


class Span(Protocol):
    def set(self, **attributes: Value) -> None:
        """Set attributes that were not known at the start."""
        ...

    def rename(self, name: str) -> None: ...

    def fail(self, why: str) -> None:
        """Mark the span as failed without an exception."""
        ...


class Tracer(Protocol):
    def span(
        self, name: str, *, parent: str | None, is_request: bool, attributes: Mapping[str, Value]
    ) -> AbstractContextManager[Span]:
        """Trace the block, including an exception that leaves it. ``parent`` is a ``traceparent``; default:
        the current span."""
        ...

    def traceparent(self) -> str | None:
        """Return the current span as W3C Trace Context."""
        ...

    def close(self) -> None:
        """Send pending spans."""
        ...


_tracers: list[Tracer] = []
"""At most one."""


def install(tracer: Tracer | None) -> None:
    """Install a tracer for this process; None removes it."""
    _tracers[:] = [tracer] if tracer else []


SETTING = "Export spans of requests, stages and engines to an OpenTelemetry collector. See [metrics.md](metrics.md)."


def set_up(service: str, *, wanted: bool) -> None:
    """Set up tracing for the process ``service``. Raises ConfigurationError if OpenTelemetry is not installed."""
    if not wanted:
        return
    try:
        otel = importlib.import_module("process.otel")
    except ModuleNotFoundError as error:
        raise errors.ConfigurationError(
            f"TUNESMITH_OTEL is set, but {error.name} is not installed",
            hint="Install requirements/otel.txt in the service's environment; ./run does this automatically.",
        ) from error
    install(otel.OpenTelemetryTracer(service))


def is_on() -> bool:
    return bool(_tracers)


@contextmanager
def span(
    name: str, attributes: Mapping[str, Value] | None = None, *, parent: str | None = None, is_request: bool = False
) -> Iterator[Span]:
    """Trace the block; ``is_request`` marks the handling of an incoming request."""
    if not _tracers:
        yield _NOTHING
        return
    with _tracers[0].span(name, parent=parent, is_request=is_request, attributes=attributes or {}) as opened:
        yield opened


def traceparent() -> str | None:
    """Return the ``traceparent`` for another process; None without tracing."""
    return _tracers[0].traceparent() if _tracers else None


def close() -> None:
    for tracer in _tracers:
        tracer.close()


class _Nothing:
    def set(self, **attributes: Value) -> None:
        pass

    def rename(self, name: str) -> None:
        pass

    def fail(self, why: str) -> None:
        pass


_NOTHING = _Nothing()
