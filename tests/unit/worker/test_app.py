"""What a worker's Celery application does beside its tasks."""

from __future__ import annotations

import os
import signal
from types import SimpleNamespace

import pytest

from worker import app as worker_app


def test_signals_that_come_together_are_one_request(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, sent = [100.0], list[int]()
    monkeypatch.setattr(worker_app, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    monkeypatch.setattr(os, "kill", lambda _, number: sent.append(number))
    end = worker_app._end_when_told_again()
    for moment in (100.0, 100.05, 101.9):
        clock[0] = moment
        end(signal.SIGTERM, None)
    assert sent == []
    clock[0] = 102.1
    end(signal.SIGTERM, None)
    assert sent == [signal.SIGKILL]
