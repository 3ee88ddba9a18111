"""What a call on a device behind a tracker came to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tuner.engines.protocol.lanes import Call


@dataclass(frozen=True, kw_only=True)
class Answer:
    call: Call
    device: str
    error: str | None = None
    """A ``domain.records.TrialError`` value, or ``refused``; ``value`` then says why."""
    value: Any = None


def timed_out(call: Call, device: str) -> Answer:
    return Answer(call=call, device=device, error="run_timeout", value=f"not done within {call.timeout:g} s")
