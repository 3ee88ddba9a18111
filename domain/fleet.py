"""What is wrong with the workers taken together, though each of them works."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from domain.workers import Worker

CLOCK_SECONDS = 5.0
"""By how much a host's clock may differ from the database's before somebody is told."""


@dataclass(frozen=True, kw_only=True)
class Doubt:
    code: str
    message: str
    hint: str


def doubts(living: Sequence[Worker], *, version: str) -> list[Doubt]:
    """``version``: of the release that asks."""
    return [*_releases(living, version), *_clocks(living)]


def _releases(living: Sequence[Worker], version: str) -> list[Doubt]:
    others = sorted({worker.release or "of old" for worker in living if worker.release != version})
    if not others:
        return []
    message = f"some workers are of release {', '.join(others)}, and this is {version}"
    return [Doubt(code="workers_differ", message=message, hint="Upgrade them: docs/deploy.md tells in which order.")]


def _clocks(living: Sequence[Worker]) -> list[Doubt]:
    off = {worker.hostname: worker.clock_ahead for worker in living if abs(worker.clock_ahead or 0.0) > CLOCK_SECONDS}
    if not off:
        return []
    told = ", ".join(f"{name} by {seconds:+.0f} s" for name, seconds in sorted(off.items()))
    hint = "Set them by NTP: leases go by the database's time, logs and file dates do not."
    return [Doubt(code="clock_differs", message=f"clocks of hosts differ from the database's: {told}", hint=hint)]
