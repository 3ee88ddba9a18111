"""Workers and their heartbeats, and devices in quarantine."""

from __future__ import annotations

from datetime import datetime, timedelta

from sqlalchemy import delete, select, tuple_
from sqlalchemy.orm import Session

from domain.workers import QuarantinedDevice, Worker
from storage import codec, paging, statements
from storage.tables import QuarantinedDeviceRow, WorkerRow


def beat(session: Session, worker: Worker) -> None:
    """Store a heartbeat with the worker's current state."""
    statements.put(session, WorkerRow, codec.to_row(worker), key=["id"])


def known(session: Session, *, seen_since: datetime | None = None) -> list[Worker]:
    """Return all known workers, longest-running first."""
    query = select(WorkerRow).order_by(WorkerRow.started_at, WorkerRow.id)
    if seen_since is not None:
        query = query.where(WorkerRow.last_seen_at >= seen_since)
    return [_worker(row) for row in session.scalars(query, execution_options={"populate_existing": True})]


def release_of(session: Session, worker_id: str) -> str | None:
    """Return the worker's release; None for an unknown worker."""
    return session.scalar(select(WorkerRow.release).where(WorkerRow.id == worker_id))


def living(session: Session, *, within_seconds: float) -> list[Worker]:
    """Return the workers with a heartbeat within these seconds, longest-running first."""
    return known(session, seen_since=living_since(session, within_seconds))


def living_since(session: Session, seconds: float) -> datetime:
    """Return the earliest heartbeat of a live worker, by the database's clock, which workers use for heartbeats."""
    return statements.now(session) - timedelta(seconds=seconds)


def page(session: Session, *, limit: int, page_token: str | None = None) -> tuple[list[Worker], str | None]:
    """Return a page of workers, longest-running first. Raises InvalidPageToken."""
    query = select(WorkerRow)
    if page_token is not None:
        query = query.where(tuple_(WorkerRow.started_at, WorkerRow.id) > tuple_(*paging.parse(page_token)))
    rows = session.scalars(query.order_by(WorkerRow.started_at, WorkerRow.id).limit(limit + 1)).all()
    token = paging.token_of(rows[limit - 1].started_at, rows[limit - 1].id) if len(rows) > limit else None
    return [_worker(row) for row in rows[:limit]], token


def forget(session: Session, worker_ids: list[str]) -> int:
    return statements.changed(session, delete(WorkerRow).where(WorkerRow.id.in_(worker_ids)))


def forget_gone(session: Session, *, seen_before: datetime) -> int:
    """Remove the workers without a heartbeat since a time, and return their number."""
    return statements.changed(session, delete(WorkerRow).where(WorkerRow.last_seen_at < seen_before))


def _worker(row: WorkerRow) -> Worker:
    return codec.from_row(Worker, row)


_LONGEST_ID = 255
_LONGEST_REASON = 2000


def quarantine(session: Session, device_id: str, *, job_id: str, reason: str, now: datetime, seconds: float) -> None:
    """Quarantine a device from ``now`` for ``seconds``; for one in quarantine, the time restarts. Id:
    ``tracker/key/host:port``."""
    row = {
        "id": device_id[:_LONGEST_ID],
        "job_id": job_id,
        "reason": reason[:_LONGEST_REASON],
        "since": now,
        "until": now + timedelta(seconds=seconds),
    }
    statements.put(session, QuarantinedDeviceRow, row, key=["id"])


def quarantined(session: Session, now: datetime) -> list[QuarantinedDevice]:
    """Return the devices in quarantine at ``now``, by id."""
    query = select(QuarantinedDeviceRow).where(QuarantinedDeviceRow.until > now).order_by(QuarantinedDeviceRow.id)
    return [
        codec.from_row(QuarantinedDevice, row)
        for row in session.scalars(query, execution_options={"populate_existing": True})
    ]
