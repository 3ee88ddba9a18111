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

    def __getattr__(self, name: str) -> Any:
        return getattr(self.engine, name)

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
