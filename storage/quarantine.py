"""Devices that are not measured on for a while, because they failed a job."""

from __future__ import annotations

from datetime import datetime, timedelta

from sqlalchemy import select
from sqlalchemy.orm import Session

from domain.quarantine import QuarantinedDevice
from storage import statements
from storage.tables import QuarantinedDeviceRow

_LONGEST_ID = 255
_LONGEST_REASON = 2000


def add(session: Session, device_id: str, *, job_id: str, reason: str, now: datetime, seconds: float) -> None:
    """From ``now`` on, for ``seconds``; one in quarantine already starts anew. Id: ``tracker/key/host:port``."""
    row = {
        "id": device_id[:_LONGEST_ID],
        "job_id": job_id,
        "reason": reason[:_LONGEST_REASON],
        "since": now,
        "until": now + timedelta(seconds=seconds),
    }
    statements.put(session, QuarantinedDeviceRow, row, key=["id"])


def active(session: Session, now: datetime) -> list[QuarantinedDevice]:
    """Those not to be used at ``now``, by id."""
    query = select(QuarantinedDeviceRow).where(QuarantinedDeviceRow.until > now).order_by(QuarantinedDeviceRow.id)
    return [
        QuarantinedDevice(id=row.id, job_id=row.job_id, reason=row.reason, since=row.since, until=row.until)
        for row in session.scalars(query, execution_options={"populate_existing": True})
    ]
