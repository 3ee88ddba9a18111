"""An engine without a process, for tests of what drives engines. It passes ``test_engine_contract.py``."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from typing import Any

from domain import errors
from domain.ports import Canceled, OnEvent
from tuner.engines.protocol.serving import EngineFailure

Json = dict[str, Any]
Answer = Callable[[Json, OnEvent], Json]
"""Takes params and a function to emit events with; returns the result's data or raises EngineFailure."""


class FakeEngine:
    """Answers with plain functions, which may raise any ``EngineError`` to die; ``requests`` keeps what was asked."""

    def __init__(self, answers: Mapping[str, Answer], *, hello: Json | None = None) -> None:
        self.answers = dict(answers)
        self.requests: list[tuple[str, Json]] = []
        self._hello = {"protocol": 1, "methods": sorted(self.answers), **(hello or {})}
        self._alive = True

    @property
    def hello(self) -> Json:
        return self._hello

    @property
    def alive(self) -> bool:
        return self._alive

    @property
    def pid(self) -> None:
        return None

    def request(
        self,
        method: str,
        params: Json,
        *,
        timeout: float | None,
        on_event: OnEvent | None = None,
        canceled: Callable[[], bool] | None = None,
    ) -> Json:
        if not self._alive:
            raise errors.EngineCrashed("the fake engine is gone")
        self.requests.append((method, json.loads(json.dumps(params))))
        deadline = None if timeout is None else time.monotonic() + timeout

        def emit(kind: str, data: Json) -> None:
            self._check(deadline, canceled)
            if on_event:
                on_event(kind, data)

        try:
            self._check(deadline, canceled)
            result = self._answer(method, params, emit)
            self._check(deadline, canceled)
        except errors.EngineRequestFailed:
            raise
        except BaseException:
            self._alive = False
            raise
        return result

    def limit_memory(self, data_bytes: int | None) -> None:
        """It has no memory of its own."""

    def close(self) -> None:
        self._alive = False

    def _answer(self, method: str, params: Json, emit: OnEvent) -> Json:
        if method not in self.answers:
            raise errors.EngineRequestFailed("unknown_method", f"unknown method {method!r}")
        try:
            return self.answers[method](params, emit)
        except EngineFailure as failure:
            raise errors.EngineRequestFailed(
                failure.code, failure.message, hint=failure.hint, details=failure.details
            ) from failure

    def _check(self, deadline: float | None, canceled: Callable[[], bool] | None) -> None:
        if canceled and canceled():
            raise Canceled
        if deadline is not None and time.monotonic() > deadline:
            raise errors.EngineTimeout("the fake engine is past its time limit")
