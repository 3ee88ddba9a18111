"""Prometheus metrics of one worker process, and the port that serves them.

Facts about a process (a lost lease, an engine crash, an engine's start time) are counted in memory rather than in the
database: they cost no write.
"""

from __future__ import annotations

import logging

import prometheus_client as prometheus

from domain.jobs import JobState
from worker.settings import WorkerSettings

_log = logging.getLogger(__name__)

# Otherwise each metric comes with a gauge of its creation time.
prometheus.disable_created_metrics()  # type: ignore[no-untyped-call]

REGISTRY = prometheus.CollectorRegistry()
LOST, RELEASED = "lost", "released"
"""Ends of attempts that do not end the job: the lease was lost, or the job was released to the queue."""
_START_SECONDS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0)
_STAGE_SECONDS = (0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 14400.0)

_attempts = prometheus.Counter(
    "tunesmith_worker_attempts",
    "Attempts at jobs that ended on this worker, by outcome.",
    ["outcome"],
    registry=REGISTRY,
)
_failures = prometheus.Counter(
    "tunesmith_worker_job_failures", "Jobs that failed on this worker, by error code.", ["code"], registry=REGISTRY
)
_stages = prometheus.Histogram(
    "tunesmith_worker_stage_seconds",
    "Duration of completed stages, in seconds.",
    ["stage"],
    buckets=_STAGE_SECONDS,
    registry=REGISTRY,
)
_lost = prometheus.Counter("tunesmith_worker_lease_losses", "Leases lost during work on a job.", registry=REGISTRY)
_starts = prometheus.Counter(
    "tunesmith_worker_engine_starts", "Engines started for jobs.", ["engine"], registry=REGISTRY
)
_restarts = prometheus.Counter(
    "tunesmith_worker_engine_restarts",
    "Engines restarted after a crash.",
    ["engine"],
    registry=REGISTRY,
)
_start_seconds = prometheus.Histogram(
    "tunesmith_worker_engine_start_seconds",
    "Seconds until an engine sent its hello.",
    ["engine"],
    buckets=_START_SECONDS,
    registry=REGISTRY,
)
_engine_failures = prometheus.Counter(
    "tunesmith_worker_engine_failures",
    "Engines that failed to start or died during a request, by error code.",
    ["engine", "code"],
    registry=REGISTRY,
)
for _outcome in (JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELED, LOST, RELEASED):
    _attempts.labels(str(_outcome))
prometheus.ProcessCollector(registry=REGISTRY)


def attempt_ended(outcome: str, *, code: str | None = None) -> None:
    """``outcome``: the job's final state, LOST or RELEASED; with the code of its failure, if it failed."""
    _attempts.labels(outcome).inc()
    if code is not None:
        _failures.labels(code).inc()
    if outcome == LOST:
        _lost.inc()


def stage_done(stage: str, seconds: float) -> None:
    _stages.labels(stage).observe(seconds)


def engine_started(engine: str, seconds: float, *, again: bool) -> None:
    """``again``: whether it takes the place of one that had ended by itself."""
    _starts.labels(engine).inc()
    _restarts.labels(engine).inc(int(again))
    _start_seconds.labels(engine).observe(seconds)


def engine_failed(engine: str, code: str) -> None:
    """Count an engine that did not start or died during a request."""
    _engine_failures.labels(engine, code).inc()


def serve(settings: WorkerSettings) -> None:
    """Serve the metrics on the configured port, in a thread; a port that is in use is logged, not raised."""
    if settings.worker_metrics_port == 0:
        return
    place = (settings.worker_metrics_port, settings.worker_metrics_host)
    try:
        prometheus.start_http_server(*place, registry=REGISTRY)
    except OSError as error:
        _log.warning("cannot serve metrics on %s:%d: %s", *reversed(place), error)
    else:
        _log.info("metrics at http://%s:%d/metrics", *reversed(place))
