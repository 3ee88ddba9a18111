"""What the endpoints work with, made once by whoever starts the API and reached through ``ServicesDep``."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from fastapi import Depends, Request

from api.jobs.events import EventHub
from api.jobs.publishing import Publisher
from api.middleware.rate_limit import Buckets
from api.middleware.upload_slots import UploadSlots
from api.monitoring.metrics import Metrics
from api.response_cache import Status, TTLCache
from api.settings import ApiSettings
from domain.blobs import BlobStore
from domain.models import ModelFacts, ModelFormat
from storage.database import Database
from tuner.host.extraction import Planner
from tuner.search.operators import CheckedOperator

Inspect = Callable[[Path, ModelFormat], ModelFacts]
"""Reads an uploaded file. Raises InvalidModel, or an EngineError when it cannot be read at all here."""


MakeOperator = Callable[[CheckedOperator, Path], None]
"""Writes the ONNX model of one operator. Raises an EngineError when it cannot be made here."""


@dataclass(frozen=True, kw_only=True)
class Services:
    settings: ApiSettings
    database: Database
    blobs: BlobStore
    publisher: Publisher
    inspect: Inspect
    make_operator: MakeOperator
    logs: Path
    """Folder that holds each job's engine log as ``JOB.log``."""
    metrics: Metrics
    events: EventHub
    statuses: TTLCache[Status]
    """By job and summary."""
    stopping: threading.Event
    """Set when the server shuts down: streams end then instead of holding it up."""
    uploads: UploadSlots
    failures: Buckets
    """Failed attempts to log in, by address."""
    planner: Planner
    plan_slots: threading.BoundedSemaphore
    plugins: dict[str, list[str]] = field(default_factory=dict)
    """What each engine that was asked for a plan announced as its plugins."""


async def _services(request: Request) -> Services:
    # Asynchronous only because FastAPI takes a thread for each dependency that is not.
    services: Services = request.app.state.services
    return services


ServicesDep = Annotated[Services, Depends(_services)]
