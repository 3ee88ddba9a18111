"""The port of engines."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

OnEvent = Callable[[str, dict[str, Any]], None]
"""Called with an event's kind and data, in the order the engine emitted them."""


class Canceled(Exception):
    """The request was stopped by its ``canceled`` callback, and the engine ended."""


class Engine(Protocol):
    """A running engine, which serves one request at a time. Not thread-safe.

    A failed request (EngineRequestFailed) leaves the engine usable. After any other error, and after Canceled, it has
    ended: ``alive`` is False, and further requests raise EngineCrashed.
    """

    @property
    def hello(self) -> dict[str, Any]:
        """The engine's first message: ``engine``, ``toolchain``, ``methods``, …"""
        ...

    @property
    def alive(self) -> bool: ...

    @property
    def pid(self) -> int | None:
        """Process id, for monitoring; None without a process."""
        ...

    def request(
        self,
        method: str,
        params: dict[str, Any],
        *,
        timeout: float | None,
        on_event: OnEvent | None = None,
        canceled: Callable[[], bool] | None = None,
    ) -> dict[str, Any]:
        """Send a request and return the result. ``timeout`` is in seconds; ``canceled`` is polled twice a second.

        Raises EngineRequestFailed with the engine's code, EngineTimeout, EngineSilent, EngineCrashed, EngineGarbled,
        Canceled, and errors of ``on_event``, after which the engine has ended, too.
        """
        ...

    def limit_memory(self, data_bytes: int | None) -> None:
        """Limit the private memory of the engine's process, and of those that it starts from now on.

        None lifts the limit, but no limit exceeds the one that the engine was started with.
        """
        ...

    def close(self) -> None:
        """End the engine and all of its processes; has no effect on one that has ended."""
        ...
