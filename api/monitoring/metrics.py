"""Prometheus metrics: the state of the service, queried at each scrape, and the requests of this process."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta

import prometheus_client as prometheus
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.middleware import Middleware, route_of
from domain import errors
from domain.blobs import BlobStore
from domain.jobs import PRIORITIES, Tuner
from domain.records import TrialError
from storage import counts, statements
from storage.database import Database

CONTENT_TYPE = prometheus.CONTENT_TYPE_LATEST
# Otherwise each counter has a gauge of its creation time, which is not needed.
prometheus.disable_created_metrics()  # type: ignore[no-untyped-call]

_METHODS = frozenset({"DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"})
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class Metrics:
    """Metrics with a registry per application, so that several applications in a process do not share counters."""

    def __init__(self, database: Database, blobs: BlobStore, *, worker_alive_seconds: float) -> None:
        # Without a description of the collectors, as registration must not query database and store.
        self._registry = prometheus.CollectorRegistry(auto_describe=False)
        prometheus.ProcessCollector(registry=self._registry)
        self._registry.register(_ServiceState(database, worker_alive_seconds))
        self._registry.register(_BlobStoreState(blobs))
        self._requests = prometheus.Counter(
            "tunesmith_http_requests",
            "Requests answered, by route template.",
            ["method", "route", "status"],
            registry=self._registry,
        )
        self._seconds = prometheus.Histogram(
            "tunesmith_http_request_seconds",
            "Seconds until the response started.",
            ["method", "route"],
            buckets=_SECONDS,
            registry=self._registry,
        )
        self._watchers = prometheus.Gauge("tunesmith_event_watchers", "Open event streams.", registry=self._registry)

    def text(self) -> bytes:
        return prometheus.generate_latest(self._registry)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Count an open event stream."""
        with self._watchers.track_inprogress():
            yield

    def count(self, *, method: str, route: str, status: int, seconds: float) -> None:
        method = method if method in _METHODS else "other"
        self._requests.labels(method, route, str(status)).inc()
        self._seconds.labels(method, route).observe(seconds)


class CountRequests(Middleware):
    """Counts requests outside of the middleware that answers them or changes their responses, with the final status.

    The status is 500 if the application failed without a response, as an outer middleware then sends one.
    """

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        super().__init__(app)
        self._metrics = metrics

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        # Inner middleware may change it: HEAD becomes GET.
        method, started, is_counted = scope["method"], time.monotonic(), False

        def count(status: int) -> None:
            nonlocal is_counted
            seconds = time.monotonic() - started
            self._metrics.count(method=method, route=route_of(scope), status=status, seconds=seconds)
            is_counted = True

        async def counted(message: Message) -> None:
            if message["type"] == "http.response.start":
                count(message["status"])
            await send(message)

        try:
            await self._app(scope, receive, counted)
        except Exception:
            if not is_counted:
                count(500)
            raise


_OTHER = "other"
"""Label for unknown tuners of imported records, to limit the number of label values."""
_VALID = "valid"


class _BlobStoreState(Collector):
    def __init__(self, blobs: BlobStore) -> None:
        self._blobs = blobs

    def collect(self) -> Iterator[Metric]:
        up = 1
        try:
            self._blobs.check()
        except (errors.TunesmithError, OSError):
            up = 0
        yield GaugeMetricFamily("tunesmith_blob_store_up", "Whether models and artifacts can be written.", value=up)


class _ServiceState(Collector):
    """Collects the state of the service. Trials are counted from the first scrape on, as counting earlier ones would
    need a scan of all records."""

    def __init__(self, database: Database, worker_alive_seconds: float) -> None:
        self._database = database
        self._alive_seconds = worker_alive_seconds
        self._lock = threading.Lock()
        self._trials: Counter[tuple[str, str]] = Counter()
        self._last_record: int | None = None

    def collect(self) -> Iterator[Metric]:
        try:
            found = self._read()
        except SQLAlchemyError:
            yield GaugeMetricFamily("tunesmith_database_up", "Whether the database answers.", value=0)
            return
        yield GaugeMetricFamily("tunesmith_database_up", "Whether the database answers.", value=1)
        yield from found

    def _read(self) -> list[Metric]:
        with self._lock, self._database.reading() as session:
            now = statements.now(session)
            return [
                *_jobs(session, now),
                *_fleet(session, now - timedelta(seconds=self._alive_seconds)),
                *_webhooks(session, now),
                *self._new_trials(session),
            ]

    def _new_trials(self, session: Session) -> Iterator[Metric]:
        newest = counts.newest_record(session)
        if self._last_record is not None:
            for (tuner, error), count in counts.trials(session, after=self._last_record, to=newest).items():
                self._trials[tuner if tuner in _TUNERS else _OTHER, error or _VALID] += count
        self._last_record = newest
        return _trials(self._trials)


_TUNERS = tuple(tuner.value for tuner in Tuner.AUTO.considered)


def _jobs(session: Session, now: datetime) -> Iterator[Metric]:
    by_state = GaugeMetricFamily("tunesmith_jobs", "Jobs by state.", labels=["state"])
    for state, count in counts.jobs_by_state(session).items():
        by_state.add_metric([state.value], count)
    yield by_state
    waiting = counts.queued_by_priority(session)
    depth = GaugeMetricFamily("tunesmith_queue_jobs", "Queued jobs by priority.", labels=["priority"])
    age = GaugeMetricFamily(
        "tunesmith_queue_priority_age_seconds",
        "Seconds that the oldest queued job of a priority has waited.",
        labels=["priority"],
    )
    for priority in PRIORITIES:
        found = waiting.get(priority)
        depth.add_metric([str(priority)], found.jobs if found else 0)
        age.add_metric([str(priority)], _seconds(found.since if found else None, now))
    yield depth
    yield age
    oldest = min((found.since for found in waiting.values()), default=None)
    yield GaugeMetricFamily(
        "tunesmith_queue_age_seconds", "Seconds that the oldest queued job has waited.", value=_seconds(oldest, now)
    )


def _fleet(session: Session, seen_since: datetime) -> Iterator[Metric]:
    alive, busy = counts.workers(session, seen_since=seen_since)
    yield GaugeMetricFamily("tunesmith_workers_alive", "Workers with a recent heartbeat.", value=alive)
    yield GaugeMetricFamily("tunesmith_workers_busy", "Live workers that run a job.", value=busy)
    rounds = GaugeMetricFamily(
        "tunesmith_shared_rounds", "Rounds of trials that jobs share with other workers, by state.", labels=["state"]
    )
    for state, count in counts.rounds_at_work(session).items():
        rounds.add_metric([state.value], count)
    yield rounds


def _webhooks(session: Session, now: datetime) -> Iterator[Metric]:
    pending, oldest = counts.pending_deliveries(session)
    yield GaugeMetricFamily("tunesmith_webhooks_pending", "Webhook messages waiting to be sent.", value=pending)
    yield GaugeMetricFamily(
        "tunesmith_webhooks_age_seconds",
        "Seconds that the oldest waiting message has waited.",
        value=_seconds(oldest, now),
    )


def _trials(found: Counter[tuple[str, str]]) -> Iterator[Metric]:
    trials = CounterMetricFamily(
        "tunesmith_trials",
        "Trials stored since the first scrape, by tuner and outcome.",
        labels=["tuner", "outcome"],
    )
    outcomes = (_VALID, *(error.value for error in TrialError))
    # Present from the start, so that the first increment has a rate.
    for kind in {*((tuner, outcome) for tuner in _TUNERS for outcome in outcomes), *found}:
        trials.add_metric(list(kind), found[kind])
    yield trials
    failures = CounterMetricFamily(
        "tunesmith_trial_failures", "Failed trials among them, by kind of failure.", labels=["kind"]
    )
    for error in TrialError:
        failures.add_metric([error.value], sum(count for (_, kind), count in found.items() if kind == error))
    yield failures


def _seconds(since: datetime | None, now: datetime) -> float:
    return max(0.0, (now - since).total_seconds()) if since else 0.0
