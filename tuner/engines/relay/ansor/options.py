"""What a request may ask of Ansor."""

from __future__ import annotations

import difflib
from dataclasses import dataclass

from tuner.engines.protocol.messages import Json
from tuner.engines.protocol.serving import EngineFailure

LAYOUTS = ("NCHW", "NHWC")


@dataclass(frozen=True, kw_only=True)
class Options:
    """Of ``domain.jobs.TunerOptions`` what concerns Ansor."""

    early_stopping: int | None = None
    n_trial: int | None = None
    layout: str | None = None
    """Of convolutions; None takes what suits the network, see ``networks.suited_layout``."""
    transfer: bool = True
    """Teach the cost model with the history of other workloads too."""

    @classmethod
    def of(cls, options: Json | None) -> Options:
        """Raises EngineFailure ``invalid_option``."""
        given = {name: value for name, value in (options or {}).items() if name in cls.__dataclass_fields__}
        chosen = cls(**given)
        if chosen.layout is not None and chosen.layout not in LAYOUTS:
            near = difflib.get_close_matches(str(chosen.layout).upper(), LAYOUTS, n=1)
            hint = f"Did you mean {near[0]}?" if near else None
            raise EngineFailure(
                "invalid_option", f"layout {chosen.layout!r} is none of {', '.join(LAYOUTS)}", hint=hint
            )
        return chosen
