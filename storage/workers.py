"""The fleet: who was last seen when."""

from __future__ import annotations

from datetime import datetime, timedelta

from sqlalchemy import delete, select, tuple_
from sqlalchemy.orm import Session

from domain.workers import QuarantinedDevice, Worker
from storage import codec, paging, statements
from storage.tables import QuarantinedDeviceRow, WorkerRow


def beat(session: Session, worker: Worker) -> None:
    """Say that the worker lives, and what it is doing."""
    statements.put(session, WorkerRow, codec.to_row(worker), key=["id"])


def known(session: Session, *, seen_since: datetime | None = None) -> list[Worker]:
    """Longest-serving first."""
    query = select(WorkerRow).order_by(WorkerRow.started_at, WorkerRow.id)
    if seen_since is not None:
        query = query.where(WorkerRow.last_seen_at >= seen_since)
    return [_worker(row) for row in session.scalars(query, execution_options={"populate_existing": True})]


def release_of(session: Session, worker_id: str) -> str | None:
    """None where the worker is not known."""
    return session.scalar(select(WorkerRow.release).where(WorkerRow.id == worker_id))


def living(session: Session, *, within_seconds: float) -> list[Worker]:
    """Those that gave a sign of life so lately, longest-serving first."""
    return known(session, seen_since=living_since(session, within_seconds))


def living_since(session: Session, seconds: float) -> datetime:
    """Who was seen then or later lives: by the database's clock, which workers tell the time of their signs by."""
    return statements.now(session) - timedelta(seconds=seconds)


def page(session: Session, *, limit: int, page_token: str | None = None) -> tuple[list[Worker], str | None]:
    """Longest-serving first. Raises InvalidPageToken."""
    query = select(WorkerRow)
    if page_token is not None:
        query = query.where(tuple_(WorkerRow.started_at, WorkerRow.id) > tuple_(*paging.parse(page_token)))
    rows = session.scalars(query.order_by(WorkerRow.started_at, WorkerRow.id).limit(limit + 1)).all()
    token = paging.token_of(rows[limit - 1].started_at, rows[limit - 1].id) if len(rows) > limit else None
    return [_worker(row) for row in rows[:limit]], token


def forget(session: Session, worker_ids: list[str]) -> int:
    return statements.changed(session, delete(WorkerRow).where(WorkerRow.id.in_(worker_ids)))


def forget_gone(session: Session, *, seen_before: datetime) -> list[str]:
    """Remove those not seen since, and return their ids."""
    gone = list(session.scalars(select(WorkerRow.id).where(WorkerRow.last_seen_at < seen_before)))
    still = delete(WorkerRow).where(WorkerRow.id.in_(gone), WorkerRow.last_seen_at < seen_before)
    statements.changed(session, still)
    return gone


def _worker(row: WorkerRow) -> Worker:
    return codec.from_row(Worker, row)


_LONGEST_ID = 255
_LONGEST_REASON = 2000


def quarantine(session: Session, device_id: str, *, job_id: str, reason: str, now: datetime, seconds: float) -> None:
    """From ``now`` on, for ``seconds``; one in quarantine already starts anew. Id: ``tracker/key/host:port``."""
    row = {
        "id": device_id[:_LONGEST_ID],
        "job_id": job_id,
        "reason": reason[:_LONGEST_REASON],
        "since": now,
        "until": now + timedelta(seconds=seconds),
    }
    statements.put(session, QuarantinedDeviceRow, row, key=["id"])


def quarantined(session: Session, now: datetime) -> list[QuarantinedDevice]:
    """Those not to be used at ``now``, by id."""
    query = select(QuarantinedDeviceRow).where(QuarantinedDeviceRow.until > now).order_by(QuarantinedDeviceRow.id)
    return [
        codec.from_row(QuarantinedDevice, row)
        for row in session.scalars(query, execution_options={"populate_existing": True})
    ]
