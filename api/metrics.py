"""What Prometheus reads: the service's state, asked at every scrape, and this process's requests."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import prometheus_client as prometheus
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from sqlalchemy.exc import SQLAlchemyError
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from domain.records import TrialError
from storage import counts
from storage.database import Database

CONTENT_TYPE = prometheus.CONTENT_TYPE_LATEST
# Each would come with a gauge of when it was made, which nobody looks at.
prometheus.disable_created_metrics()  # type: ignore[no-untyped-call]

_METHODS = frozenset({"DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"})
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class Metrics:
    """With a registry of its own: applications of one process count apart."""

    def __init__(self, database: Database, *, worker_alive_seconds: float) -> None:
        self._registry = prometheus.CollectorRegistry()
        prometheus.ProcessCollector(registry=self._registry)
        self._registry.register(_ServiceState(database, worker_alive_seconds))
        self._requests = prometheus.Counter(
            "tunesmith_http_requests",
            "Requests answered, by route template.",
            ["method", "route", "status"],
            registry=self._registry,
        )
        self._seconds = prometheus.Histogram(
            "tunesmith_http_request_seconds",
            "Seconds until the answer began.",
            ["method", "route"],
            buckets=_SECONDS,
            registry=self._registry,
        )
        self._watchers = prometheus.Gauge(
            "tunesmith_event_watchers", "Streams of events that are open.", registry=self._registry
        )

    def text(self) -> bytes:
        return prometheus.generate_latest(self._registry)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """While one stream of events is open."""
        with self._watchers.track_inprogress():
            yield

    def count(self, *, method: str, route: str, status: int, seconds: float) -> None:
        method = method if method in _METHODS else "other"
        self._requests.labels(method, route, str(status)).inc()
        self._seconds.labels(method, route).observe(seconds)


class CountRequests:
    """The outermost middleware: it sees what the others answer, and which route was taken in the end."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        # Those inside may change it: a HEAD becomes a GET.
        method, started = scope["method"], time.monotonic()

        async def counted(message: Message) -> None:
            if message["type"] == "http.response.start":
                seconds = time.monotonic() - started
                self._metrics.count(method=method, route=_template(scope), status=message["status"], seconds=seconds)
            await send(message)

        await self._app(scope, receive, counted)


def _template(scope: Scope) -> str:
    """Never the path itself: everyone could make a new time series by asking for nonsense."""
    return str(getattr(scope.get("route"), "path", "none"))


class _ServiceState(Collector):
    """Trials are counted from the first scrape on, as Prometheus lets counters start anywhere: what was stored before
    would have to be read record by record."""

    def __init__(self, database: Database, worker_alive_seconds: float) -> None:
        self._database = database
        self._alive = timedelta(seconds=worker_alive_seconds)
        self._lock = threading.Lock()
        self._trials: Counter[str | None] = Counter()
        self._last_record: int | None = None

    def describe(self) -> list[Metric]:
        """Nothing: registering must not ask the database."""
        return []

    def collect(self) -> Iterator[Metric]:
        try:
            found = self._read()
        except SQLAlchemyError:
            yield GaugeMetricFamily("tunesmith_database_up", "Whether the database answers.", value=0)
            return
        yield GaugeMetricFamily("tunesmith_database_up", "Whether the database answers.", value=1)
        yield from found

    def _read(self) -> list[Metric]:
        now = datetime.now(UTC)
        with self._lock, self._database.reading() as session:
            by_state = counts.jobs_by_state(session)
            oldest = counts.oldest_queued(session)
            alive, busy = counts.workers(session, seen_since=now - self._alive)
            pending = counts.pending_deliveries(session)
            newest = counts.newest_record(session)
            if self._last_record is not None:
                self._trials.update(counts.trials(session, after=self._last_record, to=newest))
            self._last_record = newest
            trials = Counter(self._trials)
        jobs = GaugeMetricFamily("tunesmith_jobs", "Jobs by state.", labels=["state"])
        for state, count in by_state.items():
            jobs.add_metric([state.value], count)
        age = (now - oldest).total_seconds() if oldest else 0.0
        return [
            jobs,
            GaugeMetricFamily("tunesmith_queue_age_seconds", "Since when the oldest queued job waits.", value=age),
            GaugeMetricFamily("tunesmith_workers_alive", "Workers seen lately.", value=alive),
            GaugeMetricFamily("tunesmith_workers_busy", "Living workers that have a job.", value=busy),
            GaugeMetricFamily("tunesmith_webhooks_pending", "Webhook messages still to be sent.", value=pending),
            *_trials(trials),
        ]


def _trials(found: Counter[str | None]) -> Iterator[Metric]:
    yield CounterMetricFamily(
        "tunesmith_trials", "Trials stored since the first scrape, failed ones too.", value=found.total()
    )
    failures = CounterMetricFamily("tunesmith_trial_failures", "Failed ones of them, by kind.", labels=["kind"])
    for kind in TrialError:
        failures.add_metric([kind.value], found[kind.value])
    yield failures
