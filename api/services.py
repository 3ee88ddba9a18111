"""Dependencies of the endpoints, created once at startup and injected as ``ServicesDep``."""

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
from domain.data_sets import DataFacts
from domain.jobs import Tuner
from domain.models import ModelFacts, ModelFormat
from domain.workers import Worker
from storage import workers
from storage.database import Database
from tuner.host.extraction import Planner
from tuner.native.reading import Batch
from tuner.search.operators import CheckedOperator

Inspect = Callable[[Path, ModelFormat, Callable[[], bool]], ModelFacts]
"""Reads an uploaded file, unless the last argument asks to give up. Raises InvalidModel, Canceled, or EngineError if it
cannot be read."""

InspectRows = Callable[[Path, Callable[[], bool]], DataFacts]
"""Reads an uploaded data set, unless the last argument asks to give up. Raises InvalidDataSet, Canceled, or EngineError
if it cannot be read."""

ReadRecords = Callable[[Path, Tuner, Callable[[Batch], None]], None]
"""Passes on the batches of an uploaded file of records. Raises InvalidRequest and Unavailable."""

MakeOperator = Callable[[CheckedOperator, Path], None]
"""Writes the ONNX model of an operator. Raises EngineError if this fails."""


@dataclass(frozen=True, kw_only=True)
class Services:
    settings: ApiSettings
    database: Database
    blobs: BlobStore
    publisher: Publisher
    inspect: Inspect
    inspect_rows: InspectRows
    read_records: ReadRecords
    make_operator: MakeOperator
    logs: Path
    """Folder with the engine log of each job, ``JOB.log``."""
    metrics: Metrics
    events: EventHub
    statuses: TTLCache[Status]
    """Cached job statuses, by job id and summary."""
    stopping: threading.Event
    """Set at shutdown, to end event streams."""
    uploads: UploadSlots
    failures: Buckets
    """Failed logins, by address."""
    planner: Planner
    plan_slots: threading.BoundedSemaphore
    plugins: dict[str, list[str]] = field(default_factory=dict)
    """Plugins that each engine reported when it made a plan."""

    def living_workers(self) -> list[Worker]:
        with self.database.reading() as session:
            return workers.living(session, within_seconds=self.settings.worker_alive_seconds)


async def _services(request: Request) -> Services:
    # Asynchronous because FastAPI runs synchronous dependencies in threads.
    services: Services = request.app.state.services
    return services


ServicesDep = Annotated[Services, Depends(_services)]
