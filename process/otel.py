"""Tracing with OpenTelemetry, the only module that imports it; imported only if tracing is enabled.

OpenTelemetry's variables (``OTEL_EXPORTER_OTLP_ENDPOINT``, ``OTEL_TRACES_SAMPLER`` and so on) configure export and
sampling.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor, SpanExporter
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from domain import release
from process.tracing import Value

_FORMAT = TraceContextTextMapPropagator()
_HEADER = "traceparent"


class OpenTelemetryTracer:
    """Implementation of ``process.tracing.Tracer``."""

    def __init__(self, service: str, exporter: SpanExporter | None = None) -> None:
        """``service`` is the name of this process, unless OTEL_SERVICE_NAME is set; ``exporter`` defaults to
        OTLP over HTTP."""
        named = {"service.name": os.environ.get("OTEL_SERVICE_NAME", service), "service.version": release.VERSION}
        resource = Resource.create(named)
        self._provider = TracerProvider(resource=resource)
        processor = SimpleSpanProcessor(exporter) if exporter else BatchSpanProcessor(OTLPSpanExporter())
        self._provider.add_span_processor(processor)
        self._tracer = self._provider.get_tracer("tunesmith", release.VERSION)

    @contextmanager
    def span(
        self, name: str, *, parent: str | None, is_request: bool, attributes: Mapping[str, Value]
    ) -> Iterator[_Span]:
        kind = trace.SpanKind.SERVER if is_request else trace.SpanKind.INTERNAL
        context = _FORMAT.extract({_HEADER: parent}) if parent else None
        named = {f"tunesmith.{key}" if "." not in key else key: value for key, value in attributes.items()}
        with self._tracer.start_as_current_span(name, context=context, kind=kind, attributes=named) as opened:
            yield _Span(opened)

    def traceparent(self) -> str | None:
        carrier: dict[str, str] = {}
        _FORMAT.inject(carrier)
        return carrier.get(_HEADER)

    def close(self) -> None:
        self._provider.shutdown()


class _Span:
    def __init__(self, span: trace.Span) -> None:
        self._span = span

    def set(self, **attributes: Value) -> None:
        for name, value in attributes.items():
            self._span.set_attribute(f"tunesmith.{name}", value)

    def rename(self, name: str) -> None:
        self._span.update_name(name)

    def fail(self, why: str) -> None:
        self._span.set_status(trace.Status(trace.StatusCode.ERROR, why))
