"""The processes that build and measure MetaSchedule's candidates."""

from __future__ import annotations

from tuner.engines.protocol import measuring
from tuner.engines.protocol.messages import Json
from tuner.engines.protocol.serving import EngineFailure
from tuner.engines.protocol.trials import Conditions, Measurement
from tuner.engines.relax import cuda, environment

__all__ = ["Conditions", "Measurement", "Measurer"]


class Measurer(measuring.Measurer):
    """Replaces MetaSchedule's LocalBuilder, which starts its processes anew for every batch, and LocalRunner."""

    def __init__(self) -> None:
        super().__init__("tuner.engines.relax.candidates", "tuner.engines.relax.rpc", environment.settings)


def conditions(params: Json) -> Conditions:
    """Of a ``tune`` request. Raises EngineFailure ``invalid_option`` and ``no_device``."""
    asked = Conditions.of(params, lambda _: None)
    if asked.runner is not None:
        raise EngineFailure("invalid_option", "the relax engine measures on its own machine, not through RPC")
    if asked.target.startswith("cuda") and not cuda.device_exists():
        raise EngineFailure("no_device", "this machine has no CUDA GPU to measure on")
    return asked
