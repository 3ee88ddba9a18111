"""The processes that build and measure MetaSchedule's candidates."""

from __future__ import annotations

from collections.abc import Callable

from tuner.engines.protocol import children, measuring
from tuner.engines.protocol.messages import Json
from tuner.engines.protocol.serving import EngineFailure
from tuner.engines.protocol.trials import Conditions, Measurement
from tuner.engines.relax import cuda, environment

__all__ = ["Conditions", "Measurement", "Measurer", "conditions", "session_child"]

_SESSIONS = "tuner.engines.relax.rpc"


class Measurer(measuring.Measurer):
    """Replaces MetaSchedule's LocalBuilder, which starts its processes anew for every batch, and LocalRunner."""

    def __init__(self) -> None:
        super().__init__("tuner.engines.relax.candidates", _SESSIONS, environment.settings)


def session_child() -> children.Child:
    """A process that opens sessions on devices behind an RPC tracker."""
    return children.Child(_SESSIONS, environment.settings(1))


def conditions(params: Json, emit: Callable[[str, Json], None]) -> Conditions:
    """Of a ``tune`` request. Raises EngineFailure ``no_device``."""
    asked = Conditions.of(params, lambda lost: emit("device", lost))
    if asked.runner is None and asked.target.startswith("cuda") and not cuda.device_exists():
        raise EngineFailure("no_device", "this machine has no CUDA GPU to measure on")
    return asked
