"""Log context, metrics and trace spans of an attempt, its stages and its engines."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager

from domain import errors
from domain.jobs import Job, Stage
from domain.shared_rounds import SharedRound
from process import logs, tracing
from storage import job_queries
from storage.database import Database
from worker import metrics

_log = logging.getLogger(__name__)


@contextmanager
def attempt(database: Database, job: Job) -> Iterator[None]:
    """Continue the trace of the request that created the job."""
    number = job.lease.attempt if job.lease else 0
    with logs.bound(job_id=job.id, attempt=number), _traced(database, job.id, "job"):
        yield


@contextmanager
def helping(database: Database, job: Job) -> Iterator[None]:
    """Continue the job's trace while this worker helps another one with it."""
    with logs.bound(job_id=job.id), _traced(database, job.id, "help"):
        yield


@contextmanager
def helped_round(claimed: SharedRound) -> Iterator[None]:
    """One round of another worker's attempt, from its claim to its end."""
    facts: dict[str, str | int] = {"round": claimed.id, "tuner": claimed.offer.tuner, "trials": claimed.offer.trials}
    with logs.bound(attempt=claimed.attempt, stage=str(Stage.TUNE)), tracing.span("round", {**facts, **_ids()}):
        yield


@contextmanager
def stage(name: str) -> Iterator[None]:
    started = time.monotonic()
    with logs.bound(stage=name), tracing.span(f"stage {name}", _ids()):
        yield
        seconds = time.monotonic() - started
        _log.info("%s took %.1f s", name, seconds)
    metrics.stage_done(name, seconds)


@contextmanager
def engine_starting(engine: str, *, again: bool) -> Iterator[None]:
    """``again``: whether it takes the place of one that had ended by itself."""
    started = time.monotonic()
    with _counted(engine), tracing.span(f"start {engine}", {"engine": engine, "again": again, **_ids()}):
        yield
    metrics.engine_started(engine, time.monotonic() - started, again=again)


def engine_started(engine: str, pid: int | None) -> None:
    with logs.bound(engine=engine, engine_pid=pid):
        _log.info("started the %s engine", engine)


@contextmanager
def engine_asked(engine: str, pid: int | None, method: str) -> Iterator[None]:
    """Trace an engine's request; log lines in between name the engine."""
    with (
        logs.bound(engine=engine, engine_pid=pid),
        _counted(engine),
        tracing.span(f"{engine} {method}", {"engine": engine, "method": method, **_ids()}),
    ):
        yield


@contextmanager
def _counted(engine: str) -> Iterator[None]:
    """Errors that end the engine. Error responses and missing environments, such as optional ones, are not counted."""
    try:
        yield
    except (errors.EngineRequestFailed, errors.EngineNotInstalled):
        raise
    except errors.EngineError as error:
        metrics.engine_failed(engine, error.code)
        # The message is stored with the job; the log has the time and place.
        _log.warning("the %s engine failed: %s", engine, error.message)
        raise


@contextmanager
def _traced(database: Database, job_id: str, name: str) -> Iterator[None]:
    """Start a span in the trace of the request that created the job."""
    if not tracing.is_on():
        yield
        return
    with database.reading() as session:
        parent = job_queries.trace_of(session, job_id)
    with tracing.span(name, _ids(), parent=parent):
        yield


def _ids() -> dict[str, str | int]:
    return {name: value for name, value in logs.ids().items() if name in ("job_id", "attempt", "stage")}
