"""Check of the workers' heartbeats."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from sqlalchemy.exc import SQLAlchemyError

from domain import release
from domain.workers import Worker, fleet_warnings
from serve.doctor import findings
from serve.doctor.findings import Finding
from storage import database as databases
from storage import statements, workers
from storage.database import Database
from storage.migrations import running
from worker import identity

CHECK = "workers"
_SHOWN = 5


def check(database: Database, *, alive_seconds: float) -> list[Finding]:
    try:
        known, now = _known(database)
    except SQLAlchemyError as error:
        return [findings.failed(CHECK, databases.unavailable(error))]
    if known is None:
        hint = "Update it with tunesmith migrate."
        return [findings.warn(CHECK, "not_checked", "the database's schema does not match this release", hint)]
    return judged(known, now=now, alive_seconds=alive_seconds)


def judged(known: Sequence[Worker], *, now: datetime, alive_seconds: float) -> list[Finding]:
    alive = _alive(known, now=now, alive_seconds=alive_seconds)
    if not alive:
        hint = "Start one: tunesmith worker. Until then, jobs stay queued."
        return [findings.warn(CHECK, "no_worker", "no worker has sent a heartbeat recently", hint)]
    busy = sum(worker.current_job is not None for worker in alive)
    names = ", ".join(sorted({worker.hostname for worker in alive})[:_SHOWN])
    found = [findings.ok(CHECK, f"{len(alive)} alive, {busy} busy ({names})")]
    warnings = fleet_warnings(alive, version=release.VERSION)
    return found + [findings.warn(CHECK, warning.code, warning.message, warning.hint) for warning in warnings]


def own(database: Database, *, alive_seconds: float) -> Finding:
    """Check the heartbeat of the worker on this host, in this container."""
    try:
        known, now = _known(database)
    except SQLAlchemyError as error:
        return findings.failed(CHECK, databases.unavailable(error))
    ours = [worker for worker in known or [] if identity.is_here(worker)]
    alive = _alive(ours, now=now, alive_seconds=alive_seconds)
    if alive:
        seconds = min((now - worker.last_seen_at).total_seconds() for worker in alive)
        return findings.ok(CHECK, f"this host's worker sent a heartbeat {max(0.0, seconds):.0f} s ago")
    message = f"no worker on {identity.hostname()} sent a heartbeat within {alive_seconds:g} s"
    return findings.fail(CHECK, "worker_silent", message, "Check its log. A worker needs up to a minute to start.")


def _known(database: Database) -> tuple[list[Worker] | None, datetime]:
    """Return the known workers, None without a table, and the earliest heartbeat of a live worker."""
    with database.reading() as session:
        now = statements.now(session)
        if running.current(session.connection()) != running.newest():
            return None, now
        return workers.known(session), now


def _alive(known: Sequence[Worker], *, now: datetime, alive_seconds: float) -> list[Worker]:
    oldest = now - timedelta(seconds=alive_seconds)
    return [worker for worker in known if worker.last_seen_at >= oldest and not identity.is_dead(worker)]
