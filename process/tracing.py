"""Spans: how long what took, and what caused it. Nothing is recorded, or imported, until somebody installs a tracer."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

from domain import errors

Value = str | int | float | bool


class Span(Protocol):
    def set(self, **attributes: Value) -> None:
        """Facts that were not known when it began."""
        ...

    def rename(self, name: str) -> None: ...

    def fail(self, why: str) -> None:
        """What it is about went wrong, though no exception says so."""
        ...


class Tracer(Protocol):
    def span(
        self, name: str, *, parent: str | None, is_request: bool, attributes: Mapping[str, Value]
    ) -> AbstractContextManager[Span]:
        """While the block runs; an exception that leaves it is noted. ``parent``: a ``traceparent``, else what runs."""
        ...

    def traceparent(self) -> str | None:
        """The running span as W3C Trace Context has it."""
        ...

    def close(self) -> None:
        """Send what is still to be sent."""
        ...


_tracers: list[Tracer] = []
"""One or none."""


def install(tracer: Tracer | None) -> None:
    """For this process, from now on; None for no tracer."""
    _tracers[:] = [tracer] if tracer else []


SETTING = "Export spans of requests, stages and engines to an OpenTelemetry collector. See [metrics.md](metrics.md)."


def set_up(service: str, *, wanted: bool) -> None:
    """``service``: what this process is. Raises ConfigurationError where OpenTelemetry is not installed."""
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
    """``is_request``: whether it answers somebody else's request."""
    if not _tracers:
        yield _NOTHING
        return
    with _tracers[0].span(name, parent=parent, is_request=is_request, attributes=attributes or {}) as opened:
        yield opened


def traceparent() -> str | None:
    """What another process needs in order to go on with this trace; None where nothing is traced."""
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
