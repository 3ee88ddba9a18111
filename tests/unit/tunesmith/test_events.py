"""Events are followed through lost connections, however often, but not without any sign of the server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from tunesmith import errors, events

COMMENT = [": ping", ""]
END = ["id: 7", "event: state", 'data: {"state": "succeeded"}', ""]
SECONDS = 100.0


class Broken:
    """A server whose streams break after some lines and many seconds, and the clock by which they do."""

    def __init__(self, *streams: list[str]) -> None:
        self.streams, self.now = list(streams), 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    @contextmanager
    def stream(self, *_: object) -> Iterator[Any]:
        yield SimpleNamespace(status_code=200, iter_lines=self._lines)

    def _lines(self) -> Iterator[str]:
        yield from self.streams.pop(0)
        self.now += SECONDS
        raise errors.NetworkError("the connection broke")


def watched(monkeypatch: pytest.MonkeyPatch, server: Any) -> list[int]:
    monkeypatch.setattr(events, "time", server)
    return [event.id for event in events.watch(server, "j-1", patience=1.2 * SECONDS)]


def test_a_quiet_job_is_followed_through_every_interruption(monkeypatch: pytest.MonkeyPatch) -> None:
    assert watched(monkeypatch, Broken(*[COMMENT] * 5, END)) == [7]


def test_a_server_that_sends_nothing_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Broken(*[[]] * 5)
    with pytest.raises(errors.NetworkError):
        watched(monkeypatch, server)
    assert len(server.streams) == 2
