"""Messages of the engine protocol and their JSON form.

Version 1. The engine opens a session with ``hello``, then the host sends one request at a time; the engine answers each
with any number of ``progress``, ``log`` or method-specific events and exactly one ``result`` or ``error``.
``heartbeat`` may be sent at any time. Golden transcripts: ``tests/unit/tuner/engines/protocol/transcripts``.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

PROTOCOL_VERSION = 1
MAX_LINE_BYTES = 4 * 1024 * 1024
"""Maximum length of a line; a longer one is a protocol error. Large data is passed as files, by path."""

HELLO = "hello"
HEARTBEAT = "heartbeat"
RESULT = "result"
ERROR = "error"

Json = dict[str, Any]


class MalformedMessage(ValueError):
    """A line is not a message of this protocol."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """A call: ``method`` names a handler of the engine, ``params`` are its keyword arguments."""

    id: int
    method: str
    params: Json = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Event:
    """A message from the engine. ``request`` is None for ``hello`` and ``heartbeat``."""

    kind: str
    request: int | None = None
    data: Json = field(default_factory=dict)


def encode_request(request: Request) -> bytes:
    return _line({"id": request.id, "method": request.method, "params": request.params})


def encode_event(event: Event) -> bytes:
    return _line({"event": event.kind, "id": event.request, "data": event.data})


def decode_request(line: bytes) -> Request:
    """Raises MalformedMessage if ``line`` is not a request."""
    message = _object(line)
    identifier, method, params = message.get("id"), message.get("method"), message.get("params", {})
    if not isinstance(identifier, int) or not isinstance(method, str) or not isinstance(params, dict):
        raise MalformedMessage(f"not a request: {_shown(line)}")
    return Request(id=identifier, method=method, params=params)


def decode_event(line: bytes) -> Event:
    """Raises MalformedMessage if ``line`` is not an event."""
    message = _object(line)
    kind, request, data = message.get("event"), message.get("id"), message.get("data", {})
    if not isinstance(kind, str) or not isinstance(request, int | None) or not isinstance(data, dict):
        raise MalformedMessage(f"not an event: {_shown(line)}")
    return Event(kind=kind, request=request, data=data)


def _line(message: Json) -> bytes:
    encoded = json.dumps(message, separators=(",", ":"), allow_nan=False).encode() + b"\n"
    if len(encoded) > MAX_LINE_BYTES:
        raise MalformedMessage(f"message of {len(encoded)} bytes; at most {MAX_LINE_BYTES} fit on a line")
    return encoded


def _object(line: bytes) -> Json:
    try:
        message = json.loads(line, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise MalformedMessage(f"not JSON: {_shown(line)}") from error
    if not isinstance(message, dict):
        raise MalformedMessage(f"not a JSON object: {_shown(line)}")
    return message


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _shown(line: bytes) -> str:
    return repr(line[:120])
