"""Client and command line of Tunesmith. Programs start with ``from tunesmith import Client``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tunesmith.artifacts import Artifact
    from tunesmith.client import Client
    from tunesmith.data_sets import DataSet
    from tunesmith.errors import TunesmithError
    from tunesmith.events import Event
    from tunesmith.jobs import Job
    from tunesmith.models import Model
    from tunesmith.requests import Budget

__version__ = "0.1.0"

__all__ = ["Artifact", "Budget", "Client", "DataSet", "Event", "Job", "Model", "TunesmithError"]

_HOMES = {
    "Artifact": "tunesmith.artifacts",
    "Budget": "tunesmith.requests",
    "Client": "tunesmith.client",
    "DataSet": "tunesmith.data_sets",
    "Event": "tunesmith.events",
    "Job": "tunesmith.jobs",
    "Model": "tunesmith.models",
    "TunesmithError": "tunesmith.errors",
}


def __getattr__(name: str) -> Any:
    """Import public names on first use: loading the HTTP client would slow down ``tunesmith --help``."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_HOMES[name]), name)
