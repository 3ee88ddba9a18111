"""The processes that build and measure Relay's candidates."""

from __future__ import annotations

from tuner.engines.protocol import measuring
from tuner.engines.protocol.trials import Build, Conditions, Measurement, Options
from tuner.engines.relay import environment

__all__ = ["Build", "Conditions", "Measurement", "Measurer", "Options"]


class Measurer(measuring.Measurer):
    def __init__(self) -> None:
        super().__init__("tuner.engines.relay.candidates", environment.settings)
