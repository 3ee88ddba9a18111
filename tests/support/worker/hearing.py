"""An engine whose events are heard before anybody else hears them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from domain.ports import Engine, OnEvent


@dataclass(frozen=True)
class HeardEngine:
    engine: Engine
    hear: OnEvent

    @property
    def hello(self) -> dict[str, Any]:
        return self.engine.hello

    @property
    def alive(self) -> bool:
        return self.engine.alive

    @property
    def pid(self) -> int | None:
        return self.engine.pid

    def request(
        self,
        method: str,
        params: dict[str, Any],
        *,
        timeout: float | None,
        on_event: OnEvent | None = None,
        canceled: Callable[[], bool] | None = None,
    ) -> dict[str, Any]:
        def both(kind: str, data: dict[str, Any]) -> None:
            self.hear(kind, data)
            if on_event is not None:
                on_event(kind, data)

        return self.engine.request(method, params, timeout=timeout, on_event=both, canceled=canceled)

    def limit_memory(self, data_bytes: int | None) -> None:
        self.engine.limit_memory(data_bytes)

    def close(self) -> None:
        self.engine.close()
