"""The port behind which engines run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

OnEvent = Callable[[str, dict[str, Any]], None]
"""Called with an event's kind and data, in the order the engine emitted them."""


class Canceled(Exception):
    """The caller's own ``canceled`` said stop; the engine is gone. No error: whoever asked knows why."""


class Engine(Protocol):
    """A running engine, answering one request at a time. Not for use by several threads at once.

    A failed request (EngineRequestFailed) leaves the engine usable. After any other failure, and after Canceled, it is
    dead: ``alive`` is False and every further request raises EngineCrashed.
    """

    @property
    def hello(self) -> dict[str, Any]:
        """What the engine announced: ``engine``, ``toolchain``, ``methods``, …"""
        ...

    @property
    def alive(self) -> bool: ...

    @property
    def pid(self) -> int | None:
        """Of the process, for those who look at the host; None where there is none."""
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
        """The result's data. ``timeout`` is in seconds, None for no limit; ``canceled`` is asked about twice a second.

        Raises EngineRequestFailed with the engine's own code, EngineTimeout, EngineSilent, EngineCrashed,
        EngineGarbled, Canceled, and whatever ``on_event`` raises (the engine is then dead as well).
        """
        ...

    def close(self) -> None:
        """End the engine and everything it started; harmless when it already ended."""
        ...
