"""The FastAPI application."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from fastapi import FastAPI
from starlette.middleware.gzip import DEFAULT_EXCLUDED_CONTENT_TYPES, GZipMiddleware

from api import auth, pages, problems
from api.artifacts import routes as artifacts
from api.data_sets import routes as data_sets
from api.documentation import openapi
from api.fleet import routes as fleet
from api.jobs import groups, outputs
from api.jobs import routes as jobs
from api.jobs.events import EventHub
from api.jobs.publishing import Publisher
from api.middleware.access_log import AccessLog
from api.middleware.body_limit import BodyLimit, RejectNulCharacters
from api.middleware.conditional import ConditionalResponses, HeadAsGet
from api.middleware.credentials import Credentials
from api.middleware.rate_limit import Buckets, RateLimit
from api.middleware.request_ids import RequestIds, TraceRequests
from api.middleware.upload_slots import UploadSlots
from api.models import operator_routes
from api.models import routes as models
from api.monitoring import health
from api.monitoring import routes as metrics
from api.monitoring.metrics import CountRequests, Metrics
from api.records import routes as records
from api.response_cache import TTLCache
from api.services import Inspect, InspectRows, MakeOperator, ReadRecords, Services
from api.settings import ApiSettings
from api.tokens import login
from api.tokens import routes as tokens
from api.webhooks import routes as webhooks
from domain import release
from domain.blobs import BlobStore
from domain.tokens import Scope
from storage.database import Database
from tuner.host.extraction import Planner

_MOST_STATUSES = 200
_LEAST_WORTH_COMPRESSING = 1024
_COMPRESSION_LEVEL = 5
_NEVER_COMPRESSED = (
    *DEFAULT_EXCLUDED_CONTENT_TYPES,
    "application/octet-stream",
    "application/x-ndjson",
    "application/x-tar",
    "image/*",
    "text/plain",
)
"""Types of streams and downloads: events must not be delayed, and bundles have a length, ranges and their digest as
ETag."""
_ALWAYS = problems.responses(400, 401, 403, 429, 500, 503)


def create_app(
    settings: ApiSettings,
    *,
    database: Database,
    blobs: BlobStore,
    publisher: Publisher,
    inspect: Inspect,
    inspect_rows: InspectRows,
    read_records: ReadRecords,
    make_operator: MakeOperator,
    planner: Planner,
    logs: Path,
) -> FastAPI:
    """Create the application. The caller migrates ``database``, and closes it and the other arguments afterwards."""
    app = _bare()
    stopping = threading.Event()
    services = Services(
        settings=settings,
        database=database,
        blobs=blobs,
        publisher=publisher,
        inspect=inspect,
        inspect_rows=inspect_rows,
        read_records=read_records,
        make_operator=make_operator,
        logs=logs,
        planner=planner,
        metrics=Metrics(database, blobs, worker_alive_seconds=settings.worker_alive_seconds),
        stopping=stopping,
        events=EventHub(database, poll_seconds=settings.events_poll_seconds, stopping=stopping),
        statuses=TTLCache(most=_MOST_STATUSES, seconds=settings.status_seconds),
        plan_slots=threading.BoundedSemaphore(settings.plan_slots),
        uploads=UploadSlots(settings.upload_slots),
        failures=Buckets(per_second=settings.failures_per_second, burst=settings.failures_burst),
    )
    app.state.services = services
    _add_middleware(app, services)
    problems.install(app)
    _include_routes(app, settings)
    pages.install(app)
    openapi.install(app)
    return app


def _bare() -> FastAPI:
    return FastAPI(
        title="Tunesmith",
        summary="Tunes neural networks for the machines that run them.",
        version=release.VERSION,
        docs_url=None,
        redoc_url=None,
        lifespan=_serving,
    )


def _add_middleware(app: FastAPI, services: Services) -> None:
    """Add the middleware; the last one is the outermost."""
    settings = services.settings
    app.add_middleware(BodyLimit)
    app.add_middleware(RateLimit, buckets=Buckets(per_second=settings.rate_per_second, burst=settings.rate_burst))
    app.add_middleware(Credentials, services=services)
    app.add_middleware(RejectNulCharacters)
    # Inside of ConditionalResponses, as each encoding of a resource needs an ETag of its own.
    app.add_middleware(
        GZipMiddleware,
        minimum_size=_LEAST_WORTH_COMPRESSING,
        compresslevel=_COMPRESSION_LEVEL,
        exclude_content_types=_NEVER_COMPRESSED,
    )
    app.add_middleware(ConditionalResponses)
    app.add_middleware(HeadAsGet)
    app.add_middleware(CountRequests, metrics=services.metrics)
    if settings.otel:
        app.add_middleware(TraceRequests)
    if settings.access_log:
        app.add_middleware(AccessLog)
    app.add_middleware(RequestIds)


def _include_routes(app: FastAPI, settings: ApiSettings) -> None:
    app.include_router(health.router)
    app.include_router(
        metrics.router,
        dependencies=[] if settings.metrics_open else [auth.require(Scope.READ)],
        responses=problems.responses(500) if settings.metrics_open else _ALWAYS,
    )
    app.include_router(login.router)
    for part in (
        models,
        operator_routes,
        data_sets,
        jobs,
        groups,
        webhooks,
        outputs,
        artifacts,
        records,
        fleet,
        tokens,
    ):
        app.include_router(part.router, dependencies=[auth.any_principal()], responses=_ALWAYS)


@asynccontextmanager
async def _serving(app: FastAPI) -> AsyncIterator[None]:
    services: Services = app.state.services
    services.stopping.clear()
    yield
    services.stopping.set()
    services.events.wake()
