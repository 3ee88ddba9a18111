"""What a test's traces came to."""

from __future__ import annotations

from opentelemetry.sdk.trace import ReadableSpan


def trace_of(span: ReadableSpan) -> int:
    assert span.context is not None
    return span.context.trace_id


def is_child(child: ReadableSpan, parent: ReadableSpan) -> bool:
    return child.parent is not None and parent.context is not None and child.parent.span_id == parent.context.span_id
