"""The fleet: who was last seen when."""

from __future__ import annotations

from datetime import datetime, timedelta

from sqlalchemy import delete, select, tuple_
from sqlalchemy.orm import Session

from domain.targets import Device, Target, Toolchain
from domain.workers import Worker
from storage import codec, paging, statements
from storage.tables import WorkerRow


def beat(session: Session, worker: Worker) -> None:
    """Say that the worker lives, and what it is doing."""
    row = {
        "id": worker.id,
        "hostname": worker.hostname,
        "pid": worker.pid,
        "device": codec.dump(worker.device),
        "native_target": codec.dump(worker.native_target),
        "accelerators": [codec.dump(device) for device in worker.accelerators],
        "toolchains": [codec.dump(toolchain) for toolchain in worker.toolchains],
        "current_job": worker.current_job,
        "release": worker.release,
        "lock_place": worker.lock_place,
        "foreign_cpus": list(worker.foreign_cpus),
        "trackers": None if worker.trackers is None else list(worker.trackers),
        "clock_ahead": worker.clock_ahead,
        "started_at": worker.started_at,
        "last_seen_at": worker.last_seen_at,
    }
    statements.put(session, WorkerRow, row, key=["id"])


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
    return Worker(
        id=row.id,
        hostname=row.hostname,
        pid=row.pid,
        device=codec.load(Device, row.device),
        native_target=codec.load(Target, row.native_target),
        accelerators=tuple(codec.load(Device, device) for device in row.accelerators),
        toolchains=tuple(codec.load(Toolchain, toolchain) for toolchain in row.toolchains),
        current_job=row.current_job,
        release=row.release,
        lock_place=row.lock_place,
        foreign_cpus=tuple(row.foreign_cpus),
        trackers=None if row.trackers is None else tuple(row.trackers),
        clock_ahead=row.clock_ahead,
        started_at=row.started_at,
        last_seen_at=row.last_seen_at,
    )
