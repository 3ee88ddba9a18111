"""Events of a job as server-sent events (HTML Standard, section 9.2), with reconnection."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from tunesmith import errors
from tunesmith.transport import Transport

FINAL_STATES = frozenset({"succeeded", "failed", "canceled"})
PATIENCE_SECONDS = 120.0
"""How long to try to reconnect to a server."""
_RECONNECT_SECONDS = 1.0
_ENDED = 204
"""Status of a stream without further events: the job has ended."""


@dataclass(frozen=True, kw_only=True)
class Event:
    """An event; ``kind`` is state, stage, progress or note, and determines the fields of ``data``."""

    id: int
    kind: str
    data: dict[str, Any] = field(default_factory=dict)
    at: datetime | None = None


def watch(transport: Transport, job_id: str, *, after: int = 0, patience: float = PATIENCE_SECONDS) -> Iterator[Event]:
    """Iterate over the events after id ``after``, each once, until the job has ended.

    Raises NetworkError if the server is unreachable for ``patience`` seconds.
    """
    lost_at: float | None = None

    def received(lines: Iterable[str]) -> Iterator[str]:
        nonlocal lost_at
        for line in lines:
            lost_at = None  # a comment is enough: a job may have no events for longer than ``patience``
            yield line

    while True:
        try:
            with transport.stream(f"/v1/jobs/{job_id}/events", {"Last-Event-ID": str(after)}) as response:
                if response.status_code == _ENDED:
                    return
                for event in parse(received(response.iter_lines())):
                    after = event.id
                    yield event
                    if event.kind == "state" and event.data.get("state") in FINAL_STATES:
                        return
        except (errors.NetworkError, errors.TooMuch) as error:
            lost_at = lost_at or time.monotonic()
            if time.monotonic() - lost_at > patience:
                raise
            time.sleep(max(_RECONNECT_SECONDS, min(error.retry_after or 0.0, patience)))
        else:
            time.sleep(_RECONNECT_SECONDS)  # the server ended the stream because it is stopping


def parse(lines: Iterable[str]) -> Iterator[Event]:
    """Parse server-sent events; skips those without an id or with data other than a JSON object."""
    fields: dict[str, str] = {}
    for line in lines:
        if not line:
            event = _event(fields)
            fields = {}
            if event:
                yield event
            continue
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        fields[name] = f"{fields[name]}\n{value}" if name == "data" and name in fields else value


def _event(fields: dict[str, str]) -> Event | None:
    try:
        data = json.loads(fields.get("data", ""))
        identifier = int(fields["id"])
    except (ValueError, KeyError):
        return None
    if not isinstance(data, dict):
        return None
    at = data.pop("at", None)
    return Event(
        id=identifier, kind=fields.get("event", "message"), data=data, at=datetime.fromisoformat(at) if at else None
    )
