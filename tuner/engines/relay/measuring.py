"""The processes that build and measure Relay's candidates."""

from __future__ import annotations

from tuner.engines.protocol import children, measuring
from tuner.engines.protocol.trials import Build, Conditions, Measurement, Options
from tuner.engines.relay import environment

__all__ = ["Build", "Conditions", "Measurement", "Measurer", "Options", "session_child"]

_SESSIONS = "tuner.engines.relay.rpc"


class Measurer(measuring.Measurer):
    def __init__(self) -> None:
        super().__init__("tuner.engines.relay.candidates", _SESSIONS, environment.settings)


def session_child() -> children.Child:
    """A process that opens sessions on devices behind an RPC tracker."""
    return children.Child(_SESSIONS, environment.settings(1))
